"""The blocking face, against a hub in a loop of another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chappe import blocking
from chappe.client import ClientOptions, Reconnected
from chappe.errors import ConfigError, ConnectionClosed, Unreachable

from .conftest import QUICK, Service, serving


class Neighbour:
    """A hub that lives in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait()

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
        self._thread.join()


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
        first.wait()
        alice.close()
        assert reading.result() == [1]
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
