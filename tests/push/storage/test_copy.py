"""What push remembers, copied between SQLite and real Redis servers, both ways (P14)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest

from chappe.errors import StorageError
from chappe.push.state.record import KINDS, Record
from chappe.push.state.records import Records
from chappe.push.state.states import States
from chappe.push.state.url import open_places
from chappe.push.storage import Copy
from chappe.push.storage.copy import alive
from tests.contract.push_states import MOST, NAMES, NOW_MS, a_note
from tests.loop import on_loop
from tests.push.storage.stock import CROWD, HOUR_MS, Stock

_numbers = count()
# After the notes that expire soon have done so.
LATER_MS = NOW_MS + 10_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Side:
    """Places of all states."""

    def __init__(self, urls, data, clock: Clock) -> None:
        self.urls = urls
        data.mkdir(parents=True, exist_ok=True)
        self.places = at = open_places(urls, data, clock)
        every = list(dict.fromkeys(at.values()))
        self.states = States(*(getattr(at[name], name) for name in at), every)
        self.records = {name: at[name].records for name in KINDS}


@pytest.fixture
def urls(redis_server):
    """Addresses by what a test calls them."""

    def redis(buckets: int) -> str:
        return f"{redis_server.url}/?prefix=c*[{next(_numbers)}]&buckets={buckets}"

    return {
        "sqlite": lambda: "sqlite:",
        "redis": lambda: redis(32),
        "more": lambda: redis(512),
        "five": lambda: {name: redis(16) for name in ("meta", "user", "route", "message", "topic")},
    }


@asynccontextmanager
async def sides(urls, tmp_path, source: str, target: str):
    clock = Clock()
    here = Side(urls[source](), tmp_path / "here", clock)
    there = Side(urls[target](), tmp_path / "there", clock)
    try:
        yield here, there, clock
    finally:
        await here.states.close()
        await there.states.close()


def copy_of(here: Side, there: Side, clock: Clock, target=None) -> Copy:
    names = dict.fromkeys(KINDS, "here")
    return Copy(here.records, target or there.records, names, wall_ms=clock)


async def copied(here: Side, there: Side, clock: Clock):
    copy = copy_of(here, there, clock)
    await copy.prepare(resume=False)
    await copy.run()
    return await copy.check()


WAYS = [
    *(("sqlite", "redis"), ("redis", "sqlite"), ("redis", "more"), ("redis", "five")),
    *(("five", "sqlite"), ("sqlite", "sqlite"), ("more", "redis")),
]


@pytest.mark.parametrize(("source", "target"), WAYS)
@on_loop
async def test_a_copy_says_all_that_its_source_says(urls, tmp_path, source, target):  # P14
    async with sides(urls, tmp_path, source, target) as (here, there, clock):
        stock = await Stock().fill(here.states)
        clock.now_ms = LATER_MS
        before = await stock.told(here.states, LATER_MS)
        found = await copied(here, there, clock)
        assert all(each.same for each in found)
        numbers = {each.kind: each.source.number for each in found}
        meta = {
            "app": 3,
            "job": 30,
            "click": 1,
            "nonce": 1,
            "record": 1 + len(set(NAMES)),
            "use": 2,
        }
        user = {"client": len(set(NAMES)) + CROWD, "token": 60, "bridge": 3}
        topic = {"topic": 43, "topic note": 5, "subscription": 2 * CROWD + 40}
        assert numbers == meta | user | {"body": 12, "waiting": 13} | topic
        assert await stock.told(there.states, LATER_MS) == before
        # Each of them still does what it did.
        meta = there.states.meta
        assert await meta.click([("c070000100000000", "p070000100000000")]) == [False]
        assert not await meta.claim("a:nonce*", NOW_MS + HOUR_MS)
        assert await meta.spend(["device 1", "a:b"], 2, NOW_MS + HOUR_MS) == [False, True]
        assert not await meta.cancel_job(stock.jobs[2], LATER_MS)


@pytest.mark.parametrize(("source", "target"), WAYS[:2])
@on_loop
async def test_collapse_keys_topics_and_tokens_go_on_at_the_new_place(
    urls, tmp_path, source, target
):
    async with sides(urls, tmp_path, source, target) as (here, there, clock):
        stock = await Stock().fill(here.states)
        await copied(here, there, clock)
        message, topic, user = there.states.message, there.states.topic, there.states.user
        third, crowd = stock.clients[2], stock.clients[-CROWD:]
        new = a_note(collapse="k1")
        assert await message.add(new, [third], MOST) == {third: stock.notes[10].id}
        # The position goes on, the note with that key is taken out, and who is told is right.
        newest = a_note()
        last = (await topic.since("b:c", {"news": 0}, NOW_MS, 100))["news"][-1][0]
        position = await topic.append(
            "b:c", "news", newest.id, NOW_MS - 9, NOW_MS + HOUR_MS, "same", MOST
        )
        assert position == last + 1
        assert len((await topic.since("b:c", {"news": 0}, NOW_MS, 100))["news"]) == 5
        # Who subscribes is on no server until it connects.
        assert await topic.servers("b:c", "news") == []
        await topic.move("b:c", crowd[0], 4)
        assert await topic.servers("b:c", "news") == [4]
        assert await topic.count("b:c", "news") == CROWD
        await topic.unsubscribe("b:c", crowd[0], ["news"])
        assert await topic.count("b:c", "news") == CROWD - 1
        # All tokens of a client are found.
        live = stock.clients[1]
        assert await user.revoke_client(live) == 3
        assert await user.remove_client(stock.clients[2]) is not None
        assert await user.count_clients("app") == len(set(NAMES)) - 1


@pytest.mark.parametrize("target", ["sqlite", "redis"])
@pytest.mark.parametrize("what", ["app", "token", "waiting", "order", "mark", "more"])
@on_loop
async def test_a_difference_is_found_and_named(urls, tmp_path, target, what):
    async with sides(urls, tmp_path, "sqlite", target) as (here, there, clock):
        stock = await Stock().fill(here.states)
        copy = copy_of(here, there, clock)
        await copy.prepare(resume=False)
        await copy.run()
        await _plant(what, stock, there.states)
        wrong = {each.kind for each in await copy.check() if not each.same}
        expected = {"order": "waiting", "mark": "subscription", "more": "client"}
        assert wrong == {expected.get(what, what)}
        # What was found wrong is copied again by who goes on; what is more is still there.
        again = copy_of(here, there, clock)
        await again.prepare(resume=True)
        await again.run()
        still = {each.kind for each in await again.check() if not each.same}
        assert still == ({"client"} if what == "more" else set())


async def _plant(what: str, stock: Stock, states: States) -> None:
    if what == "app":
        (app,) = (await states.meta.apps(["app"])).values()
        changed = type(app)(**{**_fields(app), "sealed_secret": app.sealed_secret[:-1] + b"\0"})
        assert await states.meta.put_app(changed, new=False)
    elif what == "token":
        assert await states.user.revoke(stock.digests[7])
    elif what == "waiting":
        assert await states.message.settle({stock.clients[0]: [stock.notes[0].id]})
    elif what == "order":
        client, first = stock.clients[1], stock.notes[7]
        assert await states.message.settle({client: [first.id]})
        await states.message.add(first, [client], MOST)
    elif what == "mark":
        marks = await states.topic.topics_of("b:c", stock.clients[-1])
        beyond = marks["news"]._replace(beyond=(marks["news"].position + 1,))
        await states.topic.advance("b:c", {(stock.clients[-1], "news"): beyond})
    else:
        await states.user.claim_client("app", "one more", "c080000100000000")


def _fields(app) -> dict[str, object]:
    return {name: getattr(app, name) for name in app.__struct_fields__}


class Breaking:
    """Records that can be written so many times."""

    def __init__(self, records: Records, times: int) -> None:
        self._records = records
        self.times = times

    def __getattr__(self, name: str):
        return getattr(self._records, name)

    async def restore(self, records: Sequence[Record]) -> None:
        if self.times == 0:
            raise StorageError("the power is out")
        self.times -= 1
        await self._records.restore(records)


@pytest.mark.parametrize("times", [1, 4, 9, 12])
@pytest.mark.parametrize("target", ["sqlite", "redis"])
@on_loop
async def test_an_interrupted_copy_is_gone_on_with(urls, tmp_path, target, times):
    async with sides(urls, tmp_path, "sqlite", target) as (here, there, clock):
        stock = await Stock().fill(here.states)
        clock.now_ms = LATER_MS
        shared = Breaking(there.records["meta"], times)
        copy = copy_of(here, there, clock, dict.fromkeys(KINDS, shared))
        await copy.prepare(resume=False)
        with pytest.raises(StorageError, match="the power is out"):
            await copy.run()
        # Nobody takes it for a whole one, nor goes on with it by mistake, nor with another's.
        assert not all(each.same for each in await copy.check())
        with pytest.raises(StorageError, match=r"meta: a copy was begun: --resume goes on with it"):
            await copy.prepare(resume=False)
        other = Copy(here.records, there.records, dict.fromkeys(KINDS, "another"), wall_ms=clock)
        with pytest.raises(StorageError, match="a copy of here was begun, not of another"):
            await other.prepare(resume=True)
        again = copy_of(here, there, clock)
        await again.prepare(resume=True)
        await again.run()
        assert all(each.same for each in await again.check())
        told = await stock.told(there.states, LATER_MS)
        assert told == await stock.told(here.states, LATER_MS)
        # It is a place like any other now.
        with pytest.raises(StorageError, match="there is something at the target already"):
            await again.prepare(resume=True)


@pytest.mark.parametrize("target", ["sqlite", "redis"])
@pytest.mark.parametrize("resume", [False, True])
@on_loop
async def test_nothing_is_copied_to_where_something_is(urls, tmp_path, target, resume):
    async with sides(urls, tmp_path, "redis", target) as (here, there, clock):
        await there.states.user.claim_client("app", "device", "c080000100000000")
        with pytest.raises(StorageError, match="user: there is something at the target already"):
            await copy_of(here, there, clock).prepare(resume=resume)


@pytest.mark.parametrize("source", ["sqlite", "redis"])
@on_loop
async def test_what_expired_is_left_out_and_counted(urls, tmp_path, source):
    async with sides(urls, tmp_path, source, "redis") as (here, there, clock):
        stock = await Stock().fill(here.states)
        # Of some, Redis knows by itself that they expired: these are gone, and nobody's to count.
        clock.now_ms = NOW_MS + 2000
        counted = {each.kind: each.expired for each in await copy_of(here, there, clock).count()}
        assert counted["waiting"] == 4
        assert counted["topic note"] == 1
        assert counted["token"] == 1
        await copied(here, there, clock)
        assert await there.states.user.tokens([stock.digests[-1]], 0) == [None]


@on_loop
async def test_what_expires_while_it_is_copied_is_no_difference(urls, tmp_path):
    async with sides(urls, tmp_path, "sqlite", "redis") as (here, there, clock):
        await Stock().fill(here.states)
        copy = copy_of(here, there, clock)
        await copy.prepare(resume=False)
        await copy.run()
        # Sweeping forgets it at one place, and not at the other.
        clock.now_ms = LATER_MS
        while await here.states.sweep():
            pass
        found = await copy.check()
        assert all(each.same for each in found)
        assert {each.kind: each.expired for each in found}["waiting"] == 0


@pytest.mark.parametrize("source", ["sqlite", "redis"])
@on_loop
async def test_what_this_version_does_not_know_is_not_left_behind(urls, tmp_path, source):
    async with sides(urls, tmp_path, source, "redis") as (here, there, clock):
        if source == "sqlite":
            database = here.places["meta"]._database
            await database.do(lambda c: c.execute("CREATE TABLE later (x)"), writes=True)
        else:
            line = here.states.meta._line
            await line.run(("SET", line.key("later", "x"), "1"))
        with pytest.raises(StorageError, match="later: this version cannot copy it"):
            await copied(here, there, clock)


@on_loop
async def test_processes_that_sweep_are_seen(urls, tmp_path):
    async with sides(urls, tmp_path, "redis", "redis") as (here, _, _clock):

        async def nobody() -> None:
            pass

        async def somebody() -> None:
            await here.states.sweep()

        assert await alive(here.records, nobody) == []
        await here.states.sweep()
        assert await alive(here.records, nobody) == []
        assert await alive(here.records, somebody) == ["user", "message", "topic"]
