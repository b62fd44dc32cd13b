"""The bus: brokers that know each other's keys, on one Redis, under Sentinel, and on a Cluster."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel

from chappe.errors import BadRequest
from chappe.redis.place import parse_url
from tests.keys.rig import replicas, until
from tests.loop import on_loop

EVERY_BYTE = bytes(range(256))
_prefixes = count()


@pytest.fixture(params=["redis_server", "redis_trio", "redis_cluster"])
def bus(request: pytest.FixtureRequest) -> str:
    """The address of a bus of its own on each kind of Redis."""
    server: Any = request.getfixturevalue(request.param)
    return f"{server.url}?prefix=bus{next(_prefixes)}"


class Looking:
    """Looks at what is in Redis, as a stranger would."""

    def __init__(self, bus: str) -> None:
        place = parse_url(bus, "bus", frozenset())
        self.prefix = place.prefix
        self._sentinels: list[Any] = []
        if place.kind == "cluster":
            nodes = [ClusterNode(*host) for host in place.hosts]
            self.redis: Any = RedisCluster(startup_nodes=nodes)
        elif place.kind == "sentinel":
            sentinel = Sentinel(place.hosts)
            self._sentinels = sentinel.sentinels
            self.redis = sentinel.master_for(place.path)
        else:
            self.redis = Redis(host=place.hosts[0][0], port=place.hosts[0][1])

    async def brokers(self) -> set[str]:
        found = await self.redis.smembers(f"{{{self.prefix}}}:brokers")
        return {one.decode() for one in found}

    async def beats(self) -> set[str]:
        found = await self.redis.hkeys(f"{{{self.prefix}}}:beats")
        return {one.decode() for one in found}

    async def keys(self, broker: str) -> set[str]:
        found = await self.redis.smembers(f"{{{self.prefix}}}:keys:{broker}")
        return {one.decode() for one in found}

    async def __aenter__(self) -> Looking:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in (self.redis, *self._sentinels):
            await one.aclose()


@on_loop
async def test_what_is_sent_by_key_reaches_every_session_that_has_it_once(bus: str):  # K8
    async with replicas(bus, 3) as street:
        first, second = await street.person(0, "7"), await street.person(1, "7")
        both = await street.person(2, "7", "8")
        stranger = await street.person(2, "9")
        for at, hub in enumerate(street.hubs):
            assert await hub.send("key:7", {"from": at}) == 3
        assert await street.hubs[0].send("key:8", "for one") == 1
        texts = [{"from": 0}, {"from": 1}, {"from": 2}]
        await first.gets(*texts)
        await second.gets(*texts)
        await both.gets(*texts, "for one")
        assert stranger.got == []


@on_loop
async def test_a_binary_message_crosses_with_every_byte(bus: str):  # K8
    async with replicas(bus, 2) as street:
        near, far = await street.person(0, "file"), await street.person(1, "file")
        assert await street.hubs[0].send("key:file", EVERY_BYTE) == 2
        await near.gets(EVERY_BYTE)
        await far.gets(EVERY_BYTE)


@on_loop
async def test_messages_of_one_sender_come_in_order(bus: str):
    async with replicas(bus, 2) as street:
        far = await street.person(1, "feed")
        await asyncio.gather(*(street.hubs[0].send("key:feed", n) for n in range(500)))
        await far.gets(*range(500))


@on_loop
async def test_redis_has_the_keys_of_each_broker_and_nothing_of_those_who_left(bus: str):  # K1, K6
    async with Looking(bus) as looking:
        async with replicas(bus, 2) as street:
            names = {hub.name for hub in street.hubs}
            here, there = street.hubs
            one, other = await street.person(0, "a", "b"), await street.person(0, "b")
            await street.person(1, "b")
            assert await looking.brokers() == await looking.beats() == names
            assert await looking.keys(here.name) == {"a", "b"}
            assert await looking.keys(there.name) == {"b"}
            assert (await one.say("leave", "b"))["data"] is True
            assert (await one.say("leave", "b"))["data"] is False
            await one.leave()

            async def only_b() -> bool:
                return await looking.keys(here.name) == {"b"}

            await until(only_b, "the key that nobody has is gone")
            # While another session has it, it stays.
            assert await there.send("key:b", 1) == 2
            await other.gets(1)
        assert await looking.brokers() == await looking.beats() == set()
        assert await looking.keys(here.name) == await looking.keys(there.name) == set()


@on_loop
async def test_sessions_are_closed_by_key_wherever_they_are(bus: str):  # K9
    async with replicas(bus, 2) as street:
        near, far = await street.person(0, "order"), await street.person(1, "order")
        other = await street.person(1, "another")
        await street.hubs[0].send("key:order", "last words")
        assert await street.hubs[0].close("key:order", code=4321, reason="shipped") == 2
        await near.is_closed()
        await far.is_closed()
        assert near.got == far.got == ["last words"]
        assert near.close_code == far.close_code == 4321
        assert await street.hubs[1].send("key:another", "still here") == 1
        await other.gets("still here")


@on_loop
async def test_who_has_a_key_is_asked_once_and_remembered_until_it_changes(bus: str):
    async with replicas(bus, 2) as street:
        here = street.hubs[0]
        before = here.counts()["bus_lookups"]
        # As long as it is fresh, and it may have to be asked about another broker first.
        assert await here.send("key:quiet", 0) == 0
        asked = here.counts()["bus_lookups"] - before
        assert 1 <= asked <= 2
        assert [await here.send("key:quiet", n) for n in range(20)] == [0] * 20
        assert here.counts()["bus_lookups"] - before <= asked + 1
        # Whoever gets the key then is found at once by everybody.
        far = await street.person(1, "quiet")
        assert await here.send("key:quiet", "heard") == 1
        await far.gets("heard")


@on_loop
async def test_a_key_that_comes_and_goes_all_the_time_is_where_it_was_last_seen(bus: str):
    async with replicas(bus, 2) as street:
        person = await street.person(1)
        for turn in range(30):
            await person.take("restless")
            assert await street.hubs[0].send("key:restless", turn) == 1
            assert (await person.say("leave", "restless"))["data"] is True
        await person.gets(*range(30))


@on_loop
async def test_what_is_no_key_or_no_message_is_refused_by_name(bus: str):
    async with replicas(bus, 1) as street:
        hub = street.hubs[0]
        for wrong in ("key:", "key:a b", "key:*", "k" * 300):
            with pytest.raises(BadRequest, match="key"):
                await hub.send(wrong, 1)
        with pytest.raises(BadRequest, match="data"):
            await hub.send("key:7", object())
        with pytest.raises(BadRequest, match=r"data: .* bytes are more"):
            await hub.send("key:7", b"x" * (2 * 1024 * 1024))
        with pytest.raises(BadRequest, match="code"):
            await hub.close("key:7", code=1006)
        person = await street.person(0)
        told = await person.say("take", "a b")
        assert (told["type"], told["data"]["error"]) == ("error", "protocol")
        assert told["data"]["reason"].startswith("key: ")


@on_loop
async def test_brokers_under_other_prefixes_do_not_meet(bus: str):
    async with replicas(bus, 1) as ours, replicas(f"{bus}x", 1) as theirs:
        person = await theirs.person(0, "7")
        assert await ours.hubs[0].send("key:7", "not for you") == 0
        assert await theirs.hubs[0].send("key:7", "for you") == 1
        await person.gets("for you")
