"""The bus when Redis hesitates, forgets, moves, and what strangers leave in it does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from chappe import Hub, KeysOptions
from chappe.cluster.bus.redis import RedisBus
from chappe.cluster.bus.scripts import BEAT, BURY, CHANGE, FIND
from chappe.errors import BadRequest, BusAway, ChappeError
from chappe.redis.calls import Failure
from chappe.wire.bus import Close, encode_envelope
from tests.keys.rig import OPTIONS, Street, obedient, replicas, until
from tests.loop import on_loop
from tests.servers import RedisServer

BROKERS, BEATS = "{chappe}:brokers", "{chappe}:beats"
KEEPING = msgspec.structs.replace(OPTIONS, away="keep")
# Beats that do not come while anybody looks.
SELDOM = msgspec.structs.replace(OPTIONS, interval_s=600.0)
AWAY = Failure("cut off", temporary=True, maybe_done=False, everywhere=True)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def bus_of(hub: Hub) -> RedisBus:
    return hub._serving.broker._bus  # type: ignore[union-attr, return-value]


async def keys_of(redis: RedisServer, broker: str) -> set[str]:
    client = Redis(port=redis.port, decode_responses=True)
    try:
        return set(await client.smembers(f"{{chappe}}:keys:{broker}"))
    finally:
        await client.aclose()


async def attempt(hub: Hub, key: str, data: Any) -> int | ChappeError:
    try:
        return await hub.send(key, data)
    except ChappeError as error:
        return error


@on_loop
async def test_a_key_that_nobody_has_is_removed_at_once_and_not_at_the_next_beat(
    redis: RedisServer,
):  # K6
    async with replicas(redis.url, 1, SELDOM) as street:
        name = street.hubs[0].name
        person, other = await street.person(0, "a", "b"), await street.person(0, "c")
        await person.say("leave", "a")
        await other.leave()
        await until(lambda: is_so(redis, name, {"b"}), "only what somebody has is there")


async def is_so(redis: RedisServer, broker: str, keys: set[str]) -> bool:
    return await keys_of(redis, broker) == keys


@on_loop
async def test_keys_that_somebody_changed_are_written_anew_at_the_next_beat(redis: RedisServer):
    # K4, though their number is right.
    async with replicas(redis.url, 1) as street:
        name = street.hubs[0].name
        await street.person(0, "a", "b")
        redis.tell("SREM", f"{{chappe}}:keys:{name}", "a")
        redis.tell("SADD", f"{{chappe}}:keys:{name}", "z")
        await until(lambda: is_so(redis, name, {"a", "b"}), "the keys are right again")


@on_loop
async def test_who_has_just_beaten_is_not_buried_and_beats_of_the_future_have_two_intervals(
    redis: RedisServer,
):  # K3
    client = Redis(port=redis.port, decode_responses=True)
    seconds, _ = await client.time()
    now = seconds * 1000
    for name, beat in (("fresh", now), ("late", now - 60_000), ("ahead", now + 3_600_000)):
        await client.sadd(BROKERS, name)
        await client.hset(BEATS, name, beat)
        await client.sadd(f"{{chappe}}:keys:{name}", "k")
    await client.sadd(BROKERS, "silent")
    where = [BROKERS, BEATS, "{chappe}:keys:me"]
    _, _, late = await client.eval(BEAT.text, 3, *where, "me", "20000")
    assert set(late) == {"late", "silent"}
    # Redis's clock stepped back: who is dead does not stay for as long as it stepped.
    assert int(await client.hget(BEATS, "ahead")) < now + 60_000
    for name, buried in (("fresh", 0), ("ahead", 0), ("late", 1), ("silent", 1)):
        where = [BROKERS, BEATS, f"{{chappe}}:keys:{name}"]
        assert await client.eval(BURY.text, 3, *where, name, "20000") == buried
    assert await client.smembers(BROKERS) == {"fresh", "ahead", "me"}
    assert not await client.exists("{chappe}:keys:late")
    assert await client.exists("{chappe}:keys:fresh")
    await client.aclose()


@on_loop
async def test_of_who_is_not_registered_no_key_is_written(redis: RedisServer):
    client = Redis(port=redis.port)
    assert await client.eval(CHANGE.text, 2, BROKERS, "{chappe}:keys:gone", "gone", 1, "k") == [
        0,
        [],
    ]
    assert await client.keys("*") == []
    await client.aclose()


@on_loop
async def test_what_strangers_leave_in_redis_ends_nothing(redis: RedisServer):
    async with replicas(redis.url, 2) as street:
        client = Redis(port=redis.port)
        await client.sadd(BROKERS, b"\xff", "a name with spaces")
        channel = f"chappe:{street.hubs[1].name}"
        for garbage in (b"", b"\xff" * 20, encode_envelope("?", [Close(0, "k", 70_000, "x")])):
            await client.publish(channel, garbage)
        await client.aclose()
        await until(lambda: street.hubs[1].counts()["bus_malformed"], "they are counted")
        person = await street.person(1, "k")
        assert await street.hubs[0].send("key:k", "still here") == 1
        await person.gets("still here")


@on_loop
async def test_what_no_text_may_have_is_refused_and_disturbs_nobody(redis: RedisServer):
    async with replicas(redis.url, 2) as street:
        hub, person = street.hubs[0], await street.person(1, "j", "k")
        with pytest.raises(BadRequest, match="reason: "):
            await hub.close("key:j", reason="\ud800")
        with pytest.raises(BadRequest, match="type: "):
            await hub.send("key:j", 1, type="\ud800")
        assert await hub.send("key:k", 1) == 1
        await person.gets(1)


@on_loop
async def test_who_waits_for_a_key_is_answered_though_its_session_goes(redis: RedisServer):
    async with replicas(redis.url, 1, SELDOM) as street:
        first, second, other = [await street.person(0) for _ in range(3)]
        redis.tell("CLIENT", "PAUSE", "700", "ALL")
        under_way = asyncio.create_task(other.take("x"))  # so that the next have to wait
        counts = street.hubs[0].counts
        await until(lambda: counts()["keys"] == 1, "the first key is being written")
        await first.begin("take", "k")
        await until(lambda: counts()["keys"] == 2, "the second waits behind it")
        first.cut()
        await until(lambda: counts()["keys"] == 1, "and is gone")
        await asyncio.gather(second.take("k"), under_way)
        tasks = street.hubs[0]._listeners[0][1].tasks
        await until(lambda: not tasks, "no handler waits any more")


@on_loop
async def test_while_all_is_written_anew_nobody_is_told_that_it_is(redis: RedisServer):
    async with replicas(redis.url, 1) as street:
        first, second = await street.person(0), await street.person(0)
        register = bus_of(street.hubs[0])._register

        async def hang(keys: list[str]) -> set[str]:
            await asyncio.sleep(0.5)
            raise AWAY

        register._write = hang  # type: ignore[method-assign]
        register.doubt()
        await until(lambda: not register.up and not register._entering, "it is down")
        assert (await first.say("take", "k"))["data"] is False
        await until(lambda: register._entering, "it tries again")
        assert (await second.say("take", "k"))["data"] is False


@on_loop
async def test_an_answer_from_before_a_subscription_is_not_taken_for_one_after_it(
    redis: RedisServer,
):
    async with replicas(redis.url, 2) as street:
        hub, gate = street.hubs[0], asyncio.Event()
        await hub.send("key:warm", 1)
        calls = bus_of(hub)._calls
        run = calls.run_script

        async def late(script: Any, *arguments: Any, **more: Any) -> Any:
            answer = await run(script, *arguments, **more)
            if script is FIND:
                await gate.wait()
            return answer

        calls.run_script = late  # type: ignore[method-assign]
        early = asyncio.create_task(hub.send("key:k", "early"))
        await until(lambda: bus_of(hub)._lookup._asked, "it is asked who has the key")
        person = await street.person(1, "k")
        after = asyncio.create_task(hub.send("key:k", "after"))
        await asyncio.sleep(0)
        gate.set()
        assert [await early, await after] == [0, 1]
        await person.gets("after")


@on_loop
async def test_what_is_remembered_is_trusted_again_when_the_listener_is_back(redis: RedisServer):
    async with replicas(redis.url, 2) as street:
        hub = street.hubs[0]
        calls, began = bus_of(hub)._calls, asyncio.Event()
        run = calls.run_script

        async def slow(*arguments: Any, **more: Any) -> Any:
            began.set()
            await asyncio.sleep(0.5)
            return await run(*arguments, **more)

        calls.run_script = slow  # type: ignore[method-assign]
        await began.wait()
        redis.tell("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: not hub.counts()["bus_up"], "it is noticed")
        calls.run_script = run  # type: ignore[method-assign]
        await until(lambda: hub.counts()["bus_up"], "it is up")
        before = hub.counts()["bus_remembered"]
        for _ in range(3):
            await hub.send("key:quiet", 1)
        assert hub.counts()["bus_remembered"] > before


async def fails_twice(street: Street, redis: RedisServer) -> None:
    """Two requests fail, the second while what the first left in doubt is being mended."""
    hub = street.hubs[0]
    redis.tell("CLIENT", "PAUSE", "1600", "ALL")
    first = asyncio.create_task(attempt(hub, "key:other", 1))
    await asyncio.sleep(0.4)
    await asyncio.gather(first, attempt(hub, "key:k", 2))


@on_loop
async def test_what_is_kept_is_sent_however_often_requests_failed_meanwhile(redis: RedisServer):
    options = KeysOptions(interval_s=5.0, timeout_s=1.0, cache_s=2.0, answer_s=1.0, away="keep")
    async with replicas(redis.url, 2, options) as street:
        hub, person = street.hubs[0], await street.person(1, "k", "other")
        assert await hub.send("key:k", 0) == 1
        await fails_twice(street, redis)
        await until(lambda: hub.counts()["bus_up"], "it is up again")
        await until(lambda: hub.counts()["bus_kept"] == 0, "nothing is kept for ever")
        await until(lambda: bus_of(hub)._draining is None, "and sending goes its way")
        assert await hub.send("key:k", "last") == 1
        await until(lambda: "last" in person.got, "it arrives")


@on_loop
async def test_what_was_kept_is_neither_overtaken_nor_lost(redis: RedisServer):
    async with replicas(redis.url, 2, KEEPING) as street:
        hub, person = street.hubs[0], await street.person(1, "k")
        bus = bus_of(hub)
        bus._failed(AWAY)
        for number in range(3):
            await hub.send("key:k", number)
        find = bus._lookup._find

        async def fail_once(keys: list[str]) -> Any:
            bus._lookup._find = find  # type: ignore[method-assign]
            raise AWAY

        bus._lookup._find = fail_once  # type: ignore[method-assign]
        while len(bus._keeping):
            await asyncio.sleep(0)
        for number in range(3, 6):
            await hub.send("key:k", number)
        await person.gets(*range(6))


@on_loop
async def test_a_close_by_key_says_how_many_it_reached_though_redis_is_away(redis: RedisServer):
    async with replicas(redis.url, 1) as street:
        person = await street.person(0, "k")
        redis.kill()
        await until(lambda: not street.hubs[0].counts()["bus_up"], "it is noticed")
        with pytest.raises(BusAway) as away:
            await street.hubs[0].close("key:k")
        assert away.value.reached == 1
        await person.is_closed()


@on_loop
async def test_a_redis_that_is_away_at_the_start_is_joined_when_it_is_there(redis: RedisServer):
    redis.kill()
    late = obedient(Hub(redis.url, keys=OPTIONS))
    await late.start()
    try:
        with pytest.raises(BusAway, match=str(redis.port)):
            await late.send("key:k", 1)
        redis.start()
        await until(lambda: late.counts()["bus_up"], "it is joined")
        async with replicas(redis.url, 1) as street:
            person = await street.person(0, "k")
            assert await late.send("key:k", 2) == 1
            await person.gets(2)
    finally:
        await late.stop()


@pytest.mark.parametrize("slow", ["to listen", "to be written down"])
@pytest.mark.parametrize("empty", [False, True])
@on_loop
async def test_what_was_kept_waits_for_others_to_be_back(
    redis: RedisServer, slow: str, empty: bool
):
    options = msgspec.structs.replace(KEEPING, interval_s=60.0)
    async with replicas(redis.url, 2, options) as street:
        hub, person = street.hubs[0], await street.person(1, "k")
        assert await hub.send("key:k", "before") == 1
        # The second takes longer to come back.
        bus: Any = bus_of(street.hubs[1])
        owner, name = (
            (bus._servers, "connection") if slow == "to listen" else (bus._calls, "run_script")
        )
        quick = getattr(owner, name)

        async def slowly(*arguments: Any, **more: Any) -> Any:
            await asyncio.sleep(0.6)
            return await quick(*arguments, **more)

        setattr(owner, name, slowly)
        await asyncio.to_thread(redis.kill)
        await until(lambda: not hub.counts()["bus_up"], "it is noticed")
        for number in range(5):
            assert await hub.send("key:k", number) == 0
        await asyncio.to_thread(redis.restart, empty=empty)
        await person.gets("before", *range(5))


@on_loop
async def test_a_redis_that_forgets_everybody_is_found_out_by_the_first_who_sends(
    redis: RedisServer,
):
    async with replicas(redis.url, 3, SELDOM) as street:
        people = [await street.person(at, "k") for at in (1, 2)]
        redis.flush()
        # Nobody is told that all is well before it is.
        assert isinstance(await attempt(street.hubs[0], "key:k", "lost"), BusAway)

        async def reached() -> bool:
            return await attempt(street.hubs[0], "key:k", "found") == 2

        await until(reached, "they are found again")
        for person in people:
            await until(lambda: "found" in person.got, "it arrives")  # noqa: B023


@on_loop
async def test_a_redis_that_hangs_is_told_of_though_it_is_known_who_has_the_key(
    redis: RedisServer,
):
    options = msgspec.structs.replace(OPTIONS, answer_s=0.2, cache_s=1.0)
    async with replicas(redis.url, 2, options) as street:
        hub, _ = street.hubs[0], await street.person(1, "k")
        assert await hub.send("key:k", 1) == 1
        redis.tell("CLIENT", "PAUSE", "1000", "ALL")
        with pytest.raises(BusAway) as away:
            await hub.send("key:k", 2)
        assert away.value.outcome_unknown


@on_loop
async def test_an_end_in_good_order_is_no_alarm(redis: RedisServer):
    with capture_logs() as logs:
        async with replicas(redis.url, 1):
            pass
    assert [log["event"] for log in logs if log["log_level"] != "info"] == []
