"""The blocking face, against a hub in a loop of another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chappe import blocking
from chappe.client import ClientOptions, Reconnected
from chappe.errors import BadRequest, ConfigError, ConnectionClosed, Unreachable

from .conftest import QUICK, Service, serving

WAIT_S = 30.0


class Neighbour:
    """A hub that lives in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        # A daemon: a test that failed must not keep the process from ending.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S), "the hub did not start"

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with serving() as self.service:
            self._ready.set()
            await self._over.wait()

    def drop(self, client: blocking.Client) -> None:
        """Cut a client's connection."""
        self._loop.call_soon_threadsafe(self._drop, self.service, client.session)

    @staticmethod
    def _drop(service: Service, session: str) -> None:
        service.hub.sessions[session].sink.abort()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the hub did not end"


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    neighbour = Neighbour()
    yield neighbour
    neighbour.stop()


@pytest.fixture
def url(neighbour: Neighbour, edge: str) -> str:
    return neighbour.service.url(edge)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "chappe-client"]


def test_the_same_methods_without_await(url):
    with (
        blocking.connect(url, as_="user:a") as alice,
        blocking.connect(url, as_="user:b") as bob,
    ):
        assert alice.connected
        assert alice.address == "user:a"
        sent = alice.send("user:b", {"n": 1})
        message = bob.receive()
        assert (str(message.id), message.data) == (sent, {"n": 1})
        bob.subscribe("topic:t")
        assert bob.subscriptions == ("topic:t",)
        assert alice.publish("topic:t", b"\xff").nodes == 1
        assert bob.receive().data == b"\xff"
        bob.unsubscribe("topic:t")
        alice.post("user:b", "posted")
        assert bob.receive(timeout=5).data == "posted"
        assert alice.presence("user:b")
        assert not alice.presence("user:nobody")
        with pytest.raises(Unreachable):
            alice.send("user:nobody", 1)


def test_receive_gives_up_after_its_timeout_and_loses_nothing(url):
    with blocking.connect(url, as_="user:a") as alice:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                alice.receive(timeout=0.01)
        alice.send("user:a", 1)
        assert alice.receive(timeout=5).data == 1


def test_iteration_ends_when_another_thread_closes(url):
    alice = blocking.connect(url, as_="user:a")
    alice.send("user:a", 1)
    with ThreadPoolExecutor(1) as pool:
        first = threading.Event()

        def read() -> list[int]:
            got = []
            for message in alice:
                got.append(message.data)
                first.set()
            return got

        reading = pool.submit(read)
        came = first.wait(WAIT_S)
        # Also when nothing came: who reads would not end.
        alice.close()
        assert came
        assert reading.result(WAIT_S) == [1]
    alice.close()
    with pytest.raises(ConnectionClosed):
        alice.send("user:a", 2)
    with pytest.raises(ConnectionClosed):
        alice.receive()


def test_many_threads_may_use_one_client(url):
    with blocking.connect(url, as_="user:a") as alice, ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda n: alice.send("user:a", n), range(200)))
        got = list(pool.map(lambda _: alice.receive(timeout=5), range(200)))
        assert sorted(message.data for message in got) == list(range(200))
        assert sorted(str(message.id) for message in got) == sorted(ids)


def test_a_lost_connection_comes_back(neighbour, url):
    back = threading.Event()
    with blocking.connect(
        url,
        as_="user:a",
        options=ClientOptions(**QUICK),
        on_notice=lambda notice: back.set() if isinstance(notice, Reconnected) else None,
    ) as alice:
        alice.subscribe("topic:t")
        neighbour.drop(alice)
        assert back.wait(10)
        assert alice.reconnects == 1
        assert alice.publish("topic:t", 1).nodes == 1
        assert alice.receive(timeout=5).data == 1


def test_a_failed_connect_raises_and_leaves_no_thread():
    with pytest.raises(ConnectionClosed, match="cannot connect"):
        blocking.connect("tcp://127.0.0.1:1", as_="user:a")
    with pytest.raises(ConfigError):
        blocking.connect("nonsense")


def test_queues_without_await(url):  # H17
    with (
        blocking.connect(url, as_="user:a") as alice,
        blocking.connect(url, as_="user:b") as bob,
    ):
        alice.create("queue:jobs", volatile=True)
        assert alice.fetch("queue:jobs") == []
        for n in range(6):
            alice.send("queue:jobs", n)
        first, second = bob.fetch("queue:jobs", 2, wait_s=5)
        assert (first.data, first.queue, first.message.sender) == (0, "queue:jobs", "user:a")
        assert first.nack()
        assert second.ack()
        got = []
        with bob.consume("queue:jobs", credit=2) as items:
            for item in items:
                if item.data == 3 and "broken" not in got:
                    got.append("broken")
                    with pytest.raises(ValueError, match="no"), item:
                        raise ValueError("no")
                    continue
                with item:
                    got.append(item.data)
                if len(got) == 6:
                    break
        assert sorted(map(str, got)) == ["0", "2", "3", "4", "5", "broken"]
        assert alice.fetch("queue:jobs") == []
        alice.delete("queue:jobs")


def test_a_consumer_ends_with_its_client(url):
    alice = blocking.connect(url, as_="user:a")
    alice.create("queue:jobs", volatile=True)
    alice.send("queue:jobs", 1)
    with ThreadPoolExecutor(1) as pool:
        first = threading.Event()

        def consume() -> list[int]:
            got = []
            for item in alice.consume("queue:jobs"):
                got.append(item.data)
                first.set()
            return got

        consuming = pool.submit(consume)
        came = first.wait(WAIT_S)
        alice.close()
        assert came
        assert consuming.result(WAIT_S) == [1]


def test_services_without_await(url):  # H18
    inside = threading.Barrier(3)

    def handler(data: int) -> int:
        if data < 0:
            raise BadRequest("data: below 0")
        inside.wait(10)
        return data * 2

    with (
        blocking.connect(url, as_="user:a") as alice,
        blocking.connect(url, as_="user:b") as bob,
        ThreadPoolExecutor(3) as pool,
    ):
        alice.provide("service:double", handler, concurrency=3)
        with pytest.raises(BadRequest, match="already"):
            alice.provide("service:double", handler)
        # Three handlers are inside at once: each in a thread of its own.
        asked = [pool.submit(bob.request, "service:double", n) for n in range(3)]
        assert [answer.result(WAIT_S) for answer in asked] == [0, 2, 4]
        with pytest.raises(BadRequest, match="below 0"):
            bob.request("service:double", -1, timeout_s=5, idempotent=True)
        alice.unprovide("service:double")
        with pytest.raises(Unreachable):
            bob.request("service:double", 1)


def test_avatars_and_positions_without_await(url):  # H14
    with (
        blocking.connect(url, as_="user:a") as alice,
        blocking.connect(url, as_="user:b") as bob,
    ):
        alice.create("topic:kept", history=5)
        alice.add_avatar("avatar:x", "user:b")
        assert bob.subscribe("topic:kept", as_="avatar:x")
        alice.publish("topic:kept", 1)
        assert bob.receive(timeout=5).data == 1
        kept = bob.position("topic:kept")
        assert kept is not None
        bob.unsubscribe("topic:kept", as_="avatar:x")
        alice.publish("topic:kept", 2)
        assert bob.subscribe("topic:kept", since=kept)
        assert bob.receive(timeout=5).data == 2
        bob.remove_avatar("avatar:x")
