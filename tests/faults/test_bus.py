"""Replicas of a web application on one Redis: killed, asleep, cut off, forgotten (K3, K4).

Afterwards Redis has the keys of those who live, and no others, and whoever has a key gets each
message once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random

import msgspec
import pytest

from chappe.keys.options import KeysOptions
from tests.faults.bus_street import OPTIONS, BusStreet, Chatter
from tests.faults.figures import FULL
from tests.faults.trio import story
from tests.keys.rig import until
from tests.servers import RedisServer

pytestmark = pytest.mark.timeout(1200 if FULL else 180)
ROUNDS = 10 if FULL else 1
# Of them, so many in one run; each key is had by one session at the least.
SESSIONS, KEYS = (2_000, 10_000) if FULL else (500, 2_500)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@asynccontextmanager
async def street_of(
    folder: Path, redis: RedisServer, count: int, options: KeysOptions = OPTIONS
) -> AsyncIterator[BusStreet]:
    street = BusStreet(folder, redis, options)
    try:
        await street.open(count)
        yield street
    finally:
        await street.close()


async def killed(street: BusStreet, rng: Random) -> None:
    """One dies without a word; those who were there go elsewhere; it comes back as another."""
    others = tuple(at for at in range(len(street.replicas)) if at != 1)
    street.replicas[1].kill()
    for keys in street.lost(1):
        await street.person(rng.choice(others), *keys)
    await street.heals(others)
    street.replicas[1].start()
    await street.replicas[1].ready()


async def asleep(street: BusStreet, rng: Random) -> None:
    """One sleeps for longer than two intervals: the others bury it; then it wakes."""
    name = (await street.counts(1))["name"]
    street.replicas[1].hold()

    async def buried() -> bool:
        return name.encode() not in await asyncio.to_thread(
            street.redis.ask, "SMEMBERS", "{chappe}:brokers"
        )

    await until(buried, "who sleeps is taken for dead")
    street.replicas[1].resume()


async def paused(street: BusStreet, rng: Random) -> None:
    """Redis answers nobody for a while."""
    ms = rng.choice((500, 2_500))
    street.redis.tell("CLIENT", "PAUSE", str(ms), "ALL")
    await asyncio.sleep(ms / 1000)


async def restarted(street: BusStreet, rng: Random) -> None:
    """Redis comes back without anything."""
    await asyncio.to_thread(street.redis.restart, empty=True)


async def cut(street: BusStreet, rng: Random) -> None:
    """All connections to Redis break."""
    street.redis.cut_connections()


async def forgotten(street: BusStreet, rng: Random) -> None:
    """Redis forgets everything while it runs."""
    street.redis.flush()


FAULTS = [killed, asleep, paused, restarted, cut, forgotten]


@pytest.mark.parametrize("replicas", [2, 3])
def test_keys_are_true_and_messages_come_once_whatever_happens(
    tmp_path: Path, redis: RedisServer, replicas: int
) -> None:
    faults = FAULTS if FULL or replicas == 3 else [killed, asleep]

    async def run() -> None:
        rng = Random(replicas)
        async with street_of(tmp_path / "street", redis, replicas) as street:
            await street.crowd(rng)
            everybody = tuple(range(replicas))
            await street.heals(everybody)
            for at in range(ROUNDS * len(faults)):
                chatter = Chatter(street, rng)
                try:
                    await chatter.goes_well()
                    await faults[at % len(faults)](street, rng)
                    await chatter.goes_well()
                finally:
                    await chatter.stop()
                await street.heals(everybody)

    story(run, limit_s=1_100 if FULL else 150)


def test_while_redis_is_away_sessions_here_go_on_and_others_are_refused_with_a_reason(
    tmp_path: Path, redis: RedisServer
) -> None:
    async def run() -> None:
        async with street_of(tmp_path / "street", redis, 2) as street:
            near, far = await street.person(0, "7"), await street.person(1, "7")
            first, _ = await street.send(0, "7")
            redis.kill()
            refused, answer = await street.send(0, "7")
            while answer.status_code == 200:  # nobody has noticed yet
                refused, answer = await street.send(0, "7")
            told = answer.json()
            assert told["reached"] == 1
            assert told["reason"].startswith("bus: ")
            assert redis.url.partition("://")[2] in told["reason"]
            await until(lambda: refused in near.got, "sessions here go on")
            assert (await street.counts(0))["bus_refused"] >= 1
            # Who comes meanwhile is found when Redis is back.
            late = await street.person(1)
            assert (await late.say("take", "8"))["data"] is False
            redis.start()

            async def known() -> bool:
                return (await street.send(0, "8"))[1].json().get("reached") == 1

            await until(known, "it heals by itself")
            last, answer = await street.send(0, "7")
            assert answer.json() == {"reached": 2}
            await until(lambda: last in far.got, "and messages go on")
            assert refused not in far.got
            assert far.got[0] == first
            street.nothing_came_twice()

    story(run)


def test_what_is_kept_while_redis_is_away_comes_when_it_is_back_in_order_and_once(
    tmp_path: Path, redis: RedisServer
) -> None:
    keeping = msgspec.structs.replace(OPTIONS, away="keep", keep_s=60.0, keep_bytes_max=50_000)

    async def run() -> None:
        async with street_of(tmp_path / "street", redis, 2, keeping) as street:
            near, far = await street.person(0, "7"), await street.person(1, "7")
            redis.kill()
            await until(lambda: is_down(street, 0), "the bus is known to be away")
            sent = [await street.send(0, "7") for _ in range(50)]
            assert {answer.status_code for _, answer in sent} == {200}
            numbers = [number for number, _ in sent]
            assert far.got == []
            redis.start()
            await until(lambda: set(numbers) <= set(far.got), "what was kept comes")
            assert [one for one in far.got if one in numbers] == numbers
            assert [one for one in near.got if one in numbers] == numbers
            street.nothing_came_twice()
            # There is an end to what is kept.
            redis.kill()
            await until(lambda: is_down(street, 0), "the bus is known to be away again")
            for _ in count():
                _, answer = await street.send(0, "7")
                if answer.status_code == 503:
                    break
            assert "kept" in answer.json()["reason"]

    story(run)


async def is_down(street: BusStreet, at: int) -> bool:
    return (await street.counts(at))["bus_up"] == 0


def test_thousands_of_keys_come_and_go_and_leave_nothing_behind(
    tmp_path: Path, redis: RedisServer
) -> None:
    async def run() -> None:
        async with street_of(tmp_path / "street", redis, 2) as street:
            people = []
            for first in range(0, SESSIONS, 100):
                people += await asyncio.gather(
                    *(street.person(n % 2, *keys_of(n)) for n in range(first, first + 100))
                )
            assert sum([(await street.counts(at))["keys"] for at in (0, 1)]) == KEYS
            await street.heals_alone()
            half = len(people) // 2
            for person, n in zip(people[:half], range(half), strict=True):
                for key in keys_of(n):
                    assert (await person.say("leave", key))["data"] is True
            await asyncio.gather(*(person.leave() for person in people[half:]))

            async def nothing_left() -> bool:
                found = await asyncio.to_thread(redis.ask, "KEYS", "{chappe}:keys:*")
                return found == b"*0\r\n"

            await until(nothing_left, "no key is left")
            assert [(await street.counts(at))["keys"] for at in (0, 1)] == [0, 0]

    story(run, limit_s=600 if FULL else 120)


def keys_of(n: int) -> list[str]:
    each = KEYS // SESSIONS
    return [f"k{key}" for key in range(n * each, (n + 1) * each)]


def test_every_byte_crosses_replicas_unchanged(tmp_path: Path, redis: RedisServer) -> None:  # K8
    async def run() -> None:
        async with street_of(tmp_path / "street", redis, 2) as street:
            far = await street.person(1, "file")
            assert await street.send_bytes(0, "file", bytes(range(256))) == {"reached": 1}
            await far.gets(bytes(range(256)))

    story(run)
