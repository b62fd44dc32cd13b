"""Replicas of a web application as processes of their own on one Redis, and who is connected."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import httpx
import msgspec
from redis.asyncio import Redis
from websockets.asyncio.client import connect

from chappe.keys.options import KeysOptions
from tests.keys.rig import Person, until
from tests.processes import END_S, kill
from tests.servers import RedisServer, free_port

OPTIONS = KeysOptions(interval_s=1.0, timeout_s=1.0, cache_s=0.3, answer_s=0.5)


class Replica:
    """One of them; found at its port again after a death."""

    def __init__(self, folder: Path, bus: str, options: KeysOptions) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self._stderr = folder / "stderr"
        keys = msgspec.json.encode(options).decode()
        self._environment = {**os.environ, "BUS": bus, "KEYS": keys}
        self.start()

    def start(self) -> None:
        """Begin to start it."""
        serve = [sys.executable, "-m", "uvicorn", "tests.faults.bus_app:app", "--log-level=warning"]
        with self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*serve, "--port", str(self.port)], env=self._environment, stderr=stderr
            )

    async def ready(self) -> None:
        """Wait until it serves."""
        async with httpx.AsyncClient() as http:

            async def serves() -> bool:
                assert self._process.poll() is None, self.said()
                with suppress(httpx.TransportError):
                    return (await http.get(f"{self.url}/counts")).status_code == 200
                return False

            await until(serves, "a replica starts")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def said(self) -> str:
        """What it wrote to its log."""
        return self._stderr.read_text()

    def kill(self) -> None:
        kill(self._process)

    def hold(self) -> None:
        """Let it sleep: its connections stay, and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Ask it to end, and see that it does so in good order."""
        self._process.terminate()
        assert self._process.wait(END_S) in (0, -signal.SIGTERM), self.said()


class BusStreet:
    """Replicas, clients of them with keys, and what was sent to whom."""

    def __init__(self, folder: Path, redis: RedisServer, options: KeysOptions = OPTIONS) -> None:
        self.redis = redis
        self.replicas: list[Replica] = []
        self._folder = folder
        self._options = options
        self._http = httpx.AsyncClient(timeout=30.0)
        self._people: dict[Person, tuple[int, set[str]]] = {}
        self._all: list[Person] = []
        self._numbers = 0
        self._looking = Redis(port=redis.port, decode_responses=True)

    async def open(self, count: int) -> None:
        """Start so many replicas."""
        for at in range(count):
            self.replicas.append(Replica(self._folder / f"r{at}", self.redis.url, self._options))
        await asyncio.gather(*(replica.ready() for replica in self.replicas))

    async def close(self) -> None:
        await asyncio.gather(*(person.leave() for person in self._all), return_exceptions=True)
        await self._http.aclose()
        await self._looking.aclose()
        with ExitStack() as stack:
            for replica in self.replicas:
                stack.callback(replica.kill)

    async def person(self, at: int, *keys: str) -> Person:
        """Somebody at a replica who has keys."""
        address = f"ws://127.0.0.1:{self.replicas[at].port}/ws/keys"
        person = Person(await connect(address, compression=None, ping_interval=None))
        self._all.append(person)
        self._people[person] = (at, set(keys))
        await person.take(*keys)
        return person

    def lost(self, at: int) -> list[set[str]]:
        """Those who were at a replica that died, as the keys that each had."""
        gone = [person for person, (where, _) in self._people.items() if where == at]
        return [self._people.pop(person)[1] for person in gone]

    async def send(self, at: int, key: str) -> tuple[int, Any]:
        """Send a number that no other message has; it, and what was answered."""
        self._numbers += 1
        number = self._numbers
        answer = await self._http.post(f"{self.replicas[at].url}/send/{key}", json=number)
        assert answer.status_code in (200, 503), answer.text
        return number, answer

    async def send_bytes(self, at: int, key: str, data: bytes) -> Any:
        """Send a binary message; what was answered."""
        headers = {"content-type": "application/octet-stream"}
        url = f"{self.replicas[at].url}/send/{key}"
        return (await self._http.post(url, content=data, headers=headers)).json()

    async def counts(self, at: int) -> dict[str, Any]:
        answer = await self._http.get(f"{self.replicas[at].url}/counts")
        return cast(dict[str, Any], answer.json())

    async def true(self, live: tuple[int, ...]) -> bool:
        """Whether all live replicas are on the bus, and Redis has exactly the keys of those who are
        connected to them."""
        wanted: dict[str, set[str]] = {}
        for at in live:
            told = await self.counts(at)
            if not told["bus_up"]:
                return False  # it has not noticed yet that all is well
            name = told["name"]
            keys = [has for where, has in self._people.values() if where == at]
            wanted[name] = set().union(*keys)
        if await self._looking.smembers("{chappe}:brokers") != wanted.keys():
            return False
        found = [key async for key in self._looking.scan_iter("{chappe}:keys:*")]
        if set(found) != {f"{{chappe}}:keys:{name}" for name, keys in wanted.items() if keys}:
            return False
        for name, keys in wanted.items():
            if await self._looking.smembers(f"{{chappe}}:keys:{name}") != keys:
                return False
        return True

    async def heals_alone(self) -> None:
        """See that Redis is true, with everybody alive."""
        everybody = tuple(range(len(self.replicas)))
        await until(lambda: self.true(everybody), "Redis has all keys")

    async def heals(self, live: tuple[int, ...]) -> None:
        """See that Redis becomes true again, and that each later message arrives once."""
        await until(lambda: self.true(live), "Redis has the keys of the live, and no others")
        keys = sorted(set().union(*(keys for _, keys in self._people.values())))
        sent: list[tuple[str, int]] = []
        for at in live:
            for key in keys:
                number, answer = await self.send(at, key)
                having = sum(key in has for _, has in self._people.values())
                assert (answer.status_code, answer.json()) == (200, {"reached": having}), key
                sent.append((key, number))
        for person, (_, has) in self._people.items():
            wanted = [number for key, number in sent if key in has]
            await until(lambda: set(wanted) <= set(person.got), "all arrived")  # noqa: B023
        self.nothing_came_twice()

    def nothing_came_twice(self) -> None:
        for person in self._all:
            counted = Counter(person.got)
            assert not [one for one, times in counted.items() if times > 1]

    async def crowd(self, rng: Random, people: int = 12, keys: int = 20) -> None:
        """Some at every replica, with some keys each; each key somewhere."""
        for n in range(people):
            has = {f"k{rng.randrange(keys)}" for _ in range(4)}
            await self.person(n % len(self.replicas), *has)


class Chatter:
    """Sends all the time, whatever happens; what is answered does not matter."""

    def __init__(self, street: BusStreet, rng: Random) -> None:
        self._street = street
        self._rng = rng
        self._task = asyncio.create_task(self._run())
        self.answers: Counter[int] = Counter()

    async def _run(self) -> None:
        while True:
            at = self._rng.randrange(len(self._street.replicas))
            try:
                async with asyncio.timeout(3.0):
                    _, answer = await self._street.send(at, f"k{self._rng.randrange(20)}")
                self.answers[answer.status_code] += 1
            except (httpx.TransportError, TimeoutError):
                self.answers[0] += 1
            await asyncio.sleep(0.005)

    async def goes_well(self) -> None:
        """Wait until some more were answered well."""
        wanted = self.answers[200] + 20
        await until(lambda: self.answers[200] >= wanted, "messages are sent")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()
