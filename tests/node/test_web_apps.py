"""The examples of web applications, in replicas and workers, under the servers people use."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from tests.contract.keyed import Talker, talking, until
from tests.loop import on_loop
from tests.processes import END_S, kill
from tests.servers import RedisServer, free_port
from tests.test_docs import APPLICATIONS

ROOT = Path(__file__).parents[2]
ALL_BYTES = bytes(range(256))
UVICORN = ("uvicorn", "--log-level", "warning")
GRANIAN = ("granian", "--interface", "asgi", "--log-level", "warning")
# As many as are spread over two workers with next to no doubt.
CROWD = 24


class Replica:
    """A process that serves an example, maybe with workers of its own."""

    def __init__(self, folder: Path, app: str, bus: str, server: tuple[str, ...]) -> None:
        self.port = free_port()
        # Beside the examples, what a test wrote.
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        self._stderr = folder / f"{self.port}.stderr"
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", server[0], app, *server[1:], "--port", str(self.port)],
                env={**os.environ, "BUS": bus, "PYTHONPATH": path},
                stdout=stderr,
                stderr=stderr,
                cwd=ROOT,
                # A group of its own: workers outlive a server that is killed.
                start_new_session=True,
            )

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def ask(self, method: str, path: str, **body: object) -> object:
        """Ask over HTTP."""
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"http://127.0.0.1:{self.port}{path}"
            answer = await client.request(method, url, **body)  # type: ignore[arg-type]
        assert answer.status_code == 200, (answer.text, self.said())
        return answer.json()

    async def ready(self) -> None:
        """Wait until it serves."""

        async def serves() -> bool:
            assert self._process.poll() is None, self.said()
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return True
            return False

        await until(serves)

    def said(self) -> str:
        return self._stderr.read_text()

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        self._process.terminate()
        assert self._process.wait(END_S) in (0, -15), self.said()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        kill(self._process)


class Replicas:
    """Starts them, on a Redis that they alone use."""

    def __init__(self, folder: Path, redis: RedisServer, prefix: str) -> None:
        self._folder = folder
        self._redis = redis
        self._prefix = prefix
        self._started = ExitStack()

    async def start(self, app: str, count: int, server: tuple[str, ...]) -> list[Replica]:
        bus = f"{self._redis.url}?prefix={self._prefix}"
        started = [Replica(self._folder, app, bus, server) for _ in range(count)]
        for one in started:
            self._started.callback(one.kill)
        for one in started:
            await one.ready()
        return started

    def brokers(self) -> int:
        """How many brokers Redis knows."""
        answer = self._redis.ask("SCARD", f"{{{self._prefix}}}:brokers")
        return int(answer.removeprefix(b":"))

    def left(self) -> bytes:
        """What there is in Redis."""
        return self._redis.ask("KEYS", f"{{{self._prefix}}}:*")

    def kill(self) -> None:
        self._started.close()


@pytest.fixture
def replicas(tmp_path: Path, redis_server: RedisServer) -> Iterator[Replicas]:
    found = Replicas(tmp_path, redis_server, f"web-{free_port()}")
    yield found
    found.kill()


async def watch(url: str, talkers: AsyncExitStack, key: str = "7") -> Talker:
    """Connect, and watch an order."""
    talker = await talkers.enter_async_context(talking(f"{url}/ws/orders"))
    await talker.say("watch", key)
    assert await talker.hear() == ("watching", key, "from now on")
    return talker


@pytest.mark.parametrize(
    "server",
    [
        UVICORN,
        (*UVICORN, "--root-path", "/api"),
        GRANIAN,
        (*GRANIAN, "--task-impl", "rust"),
        ("granian", "--interface", "asginl", "--log-level", "warning"),
    ],
    ids=["uvicorn", "root-path", "granian", "rust-tasks", "no-lifespan"],
)
@on_loop
async def test_two_replicas_tell_each_others_sessions(
    replicas: Replicas, server: tuple[str, ...]
) -> None:
    one, two = await replicas.start("examples.orders_fastapi:app", 2, server)
    async with AsyncExitStack() as talkers:
        here, there = [await watch(replica.ws, talkers) for replica in (one, two)]
        other = await watch(two.ws, talkers, "8")
        for n in range(20):
            sender = (one, two)[n % 2]
            told = await sender.ask("POST", "/orders/7", json={"n": n})
            assert told == {"reached": 2}
        for talker in (here, there):
            assert [await talker.hear() for _ in range(20)] == [
                ("message", "7", {"n": n}) for n in range(20)
            ]
        await here.say("leave", "7")
        await here.say("watch", "9")
        assert (await here.hear())[0] == "watching"
        assert await one.ask("POST", "/orders/7", json={}) == {"reached": 1}
        assert await one.ask("DELETE", "/orders/7") == {"closed": 1}
        assert await there.end() == (1000, "the order is done")
        await here.say("watch", "no key")
        kind, key, error = await here.hear()
        assert (kind, key, error["error"]) == ("error", "no key", "protocol")
        assert await one.ask("POST", "/orders/8", json={"still": "there"}) == {"reached": 1}
        assert await other.hear() == ("message", "8", {"still": "there"})


@pytest.mark.parametrize("server", [UVICORN, GRANIAN], ids=["uvicorn", "granian"])
@on_loop
async def test_workers_of_one_port_are_replicas(
    replicas: Replicas, server: tuple[str, ...]
) -> None:
    (one,) = await replicas.start("examples.orders_fastapi:app", 1, (*server, "--workers", "2"))
    await until(lambda: replicas.brokers() == 2)
    async with AsyncExitStack() as talkers:
        crowd = [await watch(one.ws, talkers) for _ in range(CROWD)]
        for n in range(10):
            told = await one.ask("POST", "/orders/7", json={"n": n})
            assert told == {"reached": CROWD}, one.said()
        for talker in crowd:
            assert [(await talker.hear())[2]["n"] for _ in range(10)] == list(range(10))
        assert await one.ask("DELETE", "/orders/7") == {"closed": CROWD}
        for talker in crowd:
            # Nothing comes twice: the next thing is the end.
            with pytest.raises(ConnectionClosedOK):
                await talker.hear()
    one.end()
    await until(lambda: replicas.left() == b"*0\r\n")


@pytest.mark.parametrize("server", [UVICORN, GRANIAN], ids=["uvicorn", "granian"])
@on_loop
async def test_a_server_that_ends_closes_sessions_and_leaves_no_broker_behind(
    replicas: Replicas, server: tuple[str, ...]
) -> None:
    one, two = await replicas.start("examples.orders_fastapi:app", 2, server)
    async with AsyncExitStack() as talkers:
        ends, stays = [await watch(replica.ws, talkers) for replica in (one, two)]
        assert replicas.brokers() == 2
        await asyncio.to_thread(one.end)
        code, _ = await ends.end()
        assert code in (1001, 1006, 1012)
        await until(lambda: replicas.brokers() == 1)
        assert await two.ask("POST", "/orders/7", json={"n": 1}) == {"reached": 1}
        assert await stays.hear() == ("message", "7", {"n": 1})
        await stays.ws.close()
        two.end()
        assert replicas.left() == b"*0\r\n"


@pytest.mark.parametrize("server", [UVICORN, GRANIAN], ids=["uvicorn", "granian"])
@on_loop
async def test_a_chat_in_django_spans_replicas(replicas: Replicas, server: tuple[str, ...]) -> None:
    one, two = await replicas.start("examples.chat_django:application", 2, server)
    async with talking(f"{one.ws}/ws/chat?room=tea&name=ada") as ada:
        assert await ada.hear() == ("came", "room-tea", "ada")
        async with talking(f"{two.ws}/ws/chat?room=tea&name=bob") as bob:
            for talker in (ada, bob):
                assert await talker.hear() == ("came", "room-tea", "bob")
            await ada.say("say", data="hello")
            await bob.hear()
            await bob.ws.send("plainly")
            told = await one.ask("POST", "/announce/tea", content="the kettle is on")
            assert told == {"reached": 2}
            heard = [await ada.hear() for _ in range(3)]
            assert sorted(heard, key=str) == sorted(
                [
                    ("said", "room-tea", {"name": "ada", "text": "hello"}),
                    ("said", "room-tea", {"name": "bob", "text": "plainly"}),
                    ("notice", "room-tea", "the kettle is on"),
                ],
                key=str,
            )
            for _ in range(2):
                await bob.hear()
            await bob.ws.send(ALL_BYTES)
            assert [await talker.ws.recv() for talker in (ada, bob)] == [ALL_BYTES] * 2
        assert await ada.hear() == ("left", "room-tea", "bob")
        assert await two.ask("POST", "/close/tea") == {"closed": 1}
        assert await ada.end() == (1000, "the room closes")


@on_loop
async def test_who_ends_says_who_has_left(replicas: Replicas) -> None:
    one, two = await replicas.start("examples.chat_django:application", 2, UVICORN)
    async with talking(f"{one.ws}/ws/chat?room=tea&name=ada") as ada:
        await ada.hear()
        async with talking(f"{two.ws}/ws/chat?room=tea&name=bob"):
            assert await ada.hear() == ("came", "room-tea", "bob")
            await asyncio.to_thread(two.end)
        assert await ada.hear() == ("left", "room-tea", "bob")
    one.end()
    assert replicas.left() == b"*0\r\n"


@on_loop
async def test_a_page_of_the_example_may_connect_and_others_may_not(replicas: Replicas) -> None:
    (one,) = await replicas.start("examples.orders_fastapi:app", 1, UVICORN)
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(f"http://127.0.0.1:{one.port}/")
    assert "new WebSocket" in page.text
    origin = f"http://127.0.0.1:{one.port}"
    async with talking(f"{one.ws}/ws/orders", origin=origin) as talker:
        await talker.say("watch", "7")
        assert (await talker.hear())[0] == "watching"
    with pytest.raises(InvalidStatus, match="403"):
        async with talking(f"{one.ws}/ws/orders", origin="https://evil.example"):
            pass
    with pytest.raises(InvalidStatus, match="403"):
        async with talking(f"{one.ws}/ws/nothing"):
            pass


@pytest.mark.parametrize("block", APPLICATIONS, ids=["README.md", "docs/keys.md"])
@on_loop
async def test_the_example_of_the_pages_works_as_it_stands(
    replicas: Replicas, tmp_path: Path, block: str
) -> None:
    (tmp_path / "shop.py").write_text(block)
    one, two = await replicas.start("shop:app", 2, UVICORN)
    async with talking(f"{one.ws}/ws/orders") as here, talking(f"{two.ws}/ws/orders") as there:
        for talker in (here, there):
            await talker.say("watch", "7")
            # It is not told when it watches; that it does is seen at the other replica.

        async def both() -> bool:
            return await two.ask("POST", "/orders/7", json={"n": 0}) == {"reached": 2}

        await until(both)
        assert await one.ask("POST", "/orders/7", json={"n": 1}) == {"reached": 2}
        for talker in (here, there):
            heard = [await talker.hear()]
            while heard[-1][2] == {"n": 0}:
                heard.append(await talker.hear())
            assert heard[-1] == ("message", "7", {"n": 1})
