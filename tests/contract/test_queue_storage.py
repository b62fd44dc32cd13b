"""What every engine promises to the queues that it keeps."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from chappe.errors import RequestError
from chappe.queues.options import QueueOptions
from chappe.queues.progress import ranges_of
from chappe.queues.record import (
    DEAD_GROUP,
    DEAD_LANE,
    DELAY_GROUP,
    DELAY_LANE,
    Death,
    Done,
    Made,
    Record,
    Registered,
    Stored,
    Tried,
    Unregistered,
)
from chappe.queues.state import QueueState
from chappe.queues.storage import Found, Storage
from tests.contract.storages import (
    KEY,
    LIMITS,
    Engine,
    InJournal,
    InMemory,
    InRedis,
    all_of,
    committed,
    committing,
    found,
    made,
    opened,
    seen,
    started,
    stored,
)
from tests.loop import on_loop

REDIS = {"redis": "redis_server", "sentinel": "redis_trio", "cluster": "redis_cluster"}


def _engine(request: pytest.FixtureRequest, folder: Path) -> Engine:
    if request.param == "memory":
        return InMemory()
    if request.param == "local":
        return InJournal(folder / "journal")
    server = request.getfixturevalue(REDIS[request.param])
    return InRedis(f"{server.url}?wait=1" if request.param == "sentinel" else server.url)


@pytest.fixture(params=["memory", "local", *REDIS])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return _engine(request, tmp_path)


@pytest.fixture(params=["local", *REDIS])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An engine that keeps what it was told."""
    return _engine(request, tmp_path)


async def again(engine: Engine) -> dict[str, object]:
    """What a node that opens the queue later knows."""
    async with started(engine) as storage:
        return seen(await opened(storage))


@on_loop
async def test_a_queue_that_was_never_made_is_new(engine: Engine):
    async with started(engine) as storage:
        state = await opened(storage)
        assert (state.app, state.address) == KEY
        assert state.lanes == []
        assert state.heads == {DEAD_LANE: 0, DELAY_LANE: 0}
        other = await opened(storage, ("other", "queue:jobs"))
        assert other.number != state.number


@on_loop
async def test_messages_come_back_with_every_field_in_order(engine: Engine):  # Q13, Q4
    async with started(engine) as storage:
        state = await made(storage, (3, 7))
        full = stored(
            state,
            3,
            bytes(range(256)),
            binary=True,
            type=4,
            num=-(2**40),
            key="key \0 }",
            headers={"h": "1", "": "é"},
            tags=["a", "b"],
            consumers=["one"],
            producer="p/1",
            producer_seq=2**53 + 1,
            death=Death("too often", "g", 16, 5, 3, 9),
        )
        plain = stored(state, 7, b"")
        late = stored(state, DELAY_LANE, b"later", due_ms=1_800_000_000_000)
        dead = stored(state, DEAD_LANE, b"dead", death=Death("r", "", 1, 2, 3, 4))
        await committed(storage, state, full, plain, late)
        await committed(storage, state, dead, stored(state, 3, b"second", ahead=1))
        assert (await all_of(storage, state, 3))[0] == full
        assert [one.payload for one in await all_of(storage, state, 3)] == [
            bytes(range(256)),
            b"second",
        ]
        assert await all_of(storage, state, 7) == [plain]
        assert await all_of(storage, state, DELAY_LANE) == [late]
        assert await all_of(storage, state, DEAD_LANE) == [dead]


@on_loop
async def test_reads_begin_anywhere_and_end_where_they_say(engine: Engine):
    async with started(engine) as storage:
        state = await made(storage)
        assert await found(storage, state, 1, 1, 10) == Found([], 0)
        for part in range(4):
            batch = [stored(state, 1, b"%d" % (part * 5 + n), ahead=n) for n in range(1, 6)]
            await committed(storage, state, *batch)
        some = await found(storage, state, 1, 8, 5)
        assert [one.seq for one in some.messages] == [8, 9, 10, 11, 12]
        assert some.upto == 12
        rest = await found(storage, state, 1, 18, 100)
        assert ([one.seq for one in rest.messages], rest.upto) == ([18, 19, 20], 20)
        beyond = await found(storage, state, 1, 21, 5)
        assert (beyond.messages, beyond.upto) == ([], 20)
        for n in (1, 3, 20, 100):
            assert len(await all_of(storage, state, 1, n)) == 20


@on_loop
async def test_what_all_are_done_with_may_be_gone_and_the_rest_is_there(engine: Engine):
    async with started(engine) as storage:
        state = await made(storage)
        await committed(storage, state, Registered(0, "g", "", since_ms=1))
        await committed(storage, state, *[stored(state, 1, ahead=n) for n in range(1, 201)])
        await committed(storage, state, Tried(0, 1, "g", 200))
        gone = [seq for seq in range(1, 201) if seq % 7 and seq < 190]
        await committed(storage, state, Done(0, 1, "g", ranges_of(gone), len(gone)))
        storage.discard(state, 1, gone)
        await committed(storage, state, stored(state, 1))
        kept = set(range(1, 202)) - set(gone)
        for n in (1, 10, 500):
            there = {one.seq for one in await all_of(storage, state, 1, n)}
            assert kept <= there <= set(range(1, 202))


@on_loop
async def test_commits_are_told_in_the_order_they_were_made(engine: Engine):
    async with started(engine) as storage:
        state = await made(storage)
        told: list[int] = []
        commits = []
        for n in range(50):
            commit = committing(storage, state, [stored(state, 1)])
            commit.add_done_callback(lambda _, n=n: told.append(n))
            commits.append(commit)
            if n % 10 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*commits)
        await committed(storage, state)
        assert told == list(range(50))
        assert [one.seq for one in await all_of(storage, state, 1)] == list(range(1, 51))


@on_loop
async def test_a_commit_of_nothing_is_told_after_those_before_it(engine: Engine):
    async with started(engine) as storage:
        state = await made(storage)
        first = committing(storage, state, [stored(state, 1)])
        told: list[str] = []
        first.add_done_callback(lambda _: told.append("first"))
        nothing = committing(storage, state, [])
        nothing.add_done_callback(lambda _: told.append("nothing"))
        await asyncio.gather(first, nothing)
        await asyncio.sleep(0)
        assert told == ["first", "nothing"]


@on_loop
async def test_a_removed_queue_is_new_when_it_is_opened_again(engine: Engine):
    async with started(engine) as storage:
        state = await made(storage, (1, 2))
        await committed(storage, state, Registered(0, "g", "c", since_ms=1))
        late = stored(state, DELAY_LANE, due_ms=5)
        await committed(storage, state, stored(state, 1), late, Tried(0, 1, "g", 5))
        kept = await made(storage, key=("app", "queue:kept"))
        await committed(storage, kept, stored(kept, 1, b"kept"))
        gone: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        storage.remove(state, gone.set_result)
        assert await gone is None
        fresh = await opened(storage)
        assert (fresh.lanes, fresh.groups.keys()) == ([], {DEAD_GROUP, DELAY_GROUP})
        await committed(storage, fresh, Made(0, *KEY, QueueOptions(), [1]))
        await committed(storage, fresh, stored(fresh, 1, b"new"))
        assert [one.payload for one in await all_of(storage, fresh, 1)] == [b"new"]
        assert [one.payload for one in await all_of(storage, kept, 1)] == [b"kept"]


async def live(storage: object, state: QueueState) -> None:
    """Let a queue have a bit of everything."""
    options = QueueOptions(lanes=2, attempts_max=3, consumers=["a"], retry_s=0.5)
    await committed(storage, state, Made(0, *KEY, options, [4, 2]))  # type: ignore[arg-type]
    commits: list[list[Record]] = [
        [Registered(0, "", "", since_ms=10)],
        [
            Registered(0, "g", "one", ["t"], {"h": "v"}, 11),
            Registered(0, "g", "two", ["t"], {"h": "v"}, 12),
            Registered(0, "never", "", since_ms=13, expected=True),
        ],
    ]
    for records in commits:
        await committed(storage, state, *records)  # type: ignore[arg-type]
    for n in range(6):
        meant = {"consumers": ["never"]} if n % 2 else {}
        known = {"producer": f"p{n % 2}", "producer_seq": 100 + n}
        lane4, lane2 = stored(state, 4, b"abc", **meant, **known), stored(state, 2, b"de")
        await committed(storage, state, lane4, lane2)  # type: ignore[arg-type]
    last: list[list[Record]] = [
        # Marks, one beyond the last message; attempts; what is done below, at and above a mark.
        [Tried(0, 4, "", 4), Tried(0, 2, "", 1_000), Tried(0, 4, "g", 2), Tried(0, 4, "g", 2, 7)],
        [Done(0, 4, "", [1, 2, 4, 4], 9), Done(0, 4, "g", [1, 1, 5, 5], 6)],
        [Done(0, 2, "", [1, 3], 6), Tried(0, 4, "", 3, 2)],
        [
            Tried(0, 4, "never", 2, 1),
            Done(0, 4, "unheard of", [1, 1]),
            Tried(0, 4, "unheard of", 3),
        ],
        [Registered(0, "new", "x", since_ms=20, new=True), Registered(0, "late", "y", since_ms=21)],
        [stored(state, DELAY_LANE, b"1", ahead=n, due_ms=900 + n) for n in (1, 2, 3)],
        [
            stored(state, DEAD_LANE, b"2", ahead=n, death=Death("r", "g", 3, 1, 4, n))
            for n in (1, 2)
        ],
        [Done(0, DELAY_LANE, DELAY_GROUP, [2, 2]), Done(0, DEAD_LANE, DEAD_GROUP, [1, 1])],
        [Made(0, *KEY, QueueOptions(lanes=3), [4, 2, 9]), Unregistered(0, "g", "one")],
        [stored(state, 4, b"last"), stored(state, 2, b"last")],
        [Tried(0, 9, "", 10), Registered(0, "gone", "z", since_ms=30)],
        [Tried(0, 4, "gone", 2), Unregistered(0, "gone")],
    ]
    for records in last:
        await committed(storage, state, *records)  # type: ignore[arg-type]


@on_loop
async def test_a_queue_comes_back_as_it_was(durable: Engine):  # Q11
    async with started(durable) as storage:
        state = await opened(storage)
        await live(storage, state)
        before = seen(state)
    assert await again(durable) == before
    # What comes after a return is added to what was there.
    async with started(durable) as storage:
        state = await opened(storage)
        more = [stored(state, 4, b"more"), Tried(0, 4, "g", 7), Done(0, 4, "", [3, 3], 3)]
        await committed(storage, state, *more, stored(state, 9, b"new lane"))
        before = seen(state)
    assert await again(durable) == before


@on_loop
async def test_a_group_that_was_awaited_and_came_goes_on_with_what_was_kept(durable: Engine):  # Q6
    async with started(durable) as storage:
        state = await made(storage)
        await committed(storage, state, Registered(0, "c", "", since_ms=1, expected=True))
        await committed(
            storage, state, stored(state, 1, consumers=["c"]), stored(state, 1, ahead=2)
        )
        await committed(storage, state, Registered(0, "c", "c", since_ms=2))
        await committed(storage, state, stored(state, 1), stored(state, 1, b"yz", ahead=2))
        before = seen(state)
    assert await again(durable) == before


@on_loop
async def test_producers_are_remembered_up_to_a_bound(durable: Engine):  # Q5
    async with started(durable) as storage:
        state = await made(storage)
        for n in range(30):
            known = {"producer": "abcde"[n % 5 if n < 20 else 1], "producer_seq": n}
            await committed(storage, state, stored(state, 1, **known))
        before = seen(state)
    after = await again(durable)
    assert after["producers"] == before["producers"]
    assert [name for name, _ in after["producers"]] == ["d", "e", "b"]  # type: ignore[attr-defined]


@on_loop
async def test_of_a_producer_the_highest_numbers_are_remembered(durable: Engine):  # Q5
    async with started(durable) as storage:
        state = await made(storage)
        for seq in (10, 2, 7, 8, 3, 9):
            await committed(storage, state, stored(state, 1, producer="p", producer_seq=seq))
        before = seen(state)
    after = await again(durable)
    assert after["producers"] == before["producers"]
    assert [seq for seq, _ in dict(after["producers"])["p"]] == [7, 8, 9, 10]  # type: ignore[call-overload]


@on_loop
async def test_a_queue_without_groups_knows_what_the_last_was_done_with(durable: Engine):
    async with started(durable) as storage:
        state = await made(storage)
        await committed(storage, state, Registered(0, "g", "", since_ms=1))
        await committed(storage, state, *[stored(state, 1, b"abc", ahead=n) for n in (1, 2, 3)])
        await committed(storage, state, Tried(0, 1, "g", 3), Done(0, 1, "g", [1, 2], 6))
        await committed(storage, state, Unregistered(0, "g"), stored(state, 1))
        before = seen(state)
        assert before["floors"] == {1: 2}
    assert await again(durable) == before


@on_loop
async def test_queues_of_the_same_name_in_two_apps_are_two(durable: Engine):
    keys = [("a", "queue:b"), ("b", "queue:b"), ("a", "queue:{b}:}"), ("a", "queue:lane:1")]
    async with started(durable) as storage:
        for n, key in enumerate(keys):
            state = await made(storage, key=key)
            await committed(storage, state, stored(state, 1, b"%d" % n))
    async with started(durable) as storage:
        for n, key in enumerate(keys):
            state = await opened(storage, key)
            assert [one.payload for one in await all_of(storage, state, 1)] == [b"%d" % n]


@pytest.mark.parametrize("seed", range(6))
@on_loop
async def test_whatever_happens_comes_back_as_it_was(durable: Engine, seed: int):
    rng = random.Random(seed)
    async with started(durable) as storage:
        state = await made(storage, (1, 2))
        commits = []
        for _ in range(60):
            records: list[Record] = []
            for _ in range(rng.randint(1, 5)):
                record = _some(rng, state)
                if record is not None:
                    record.queue = state.number
                    state.apply(record, LIMITS)
                    records.append(record)
            answer: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
            storage.commit(state, records, answer.set_result)
            commits.append(answer)
            if rng.random() < 0.3:
                assert await answer is None
        assert set(await asyncio.gather(*commits)) == {None}
        before = seen(state)
        messages = {lane: await left(storage, state, lane) for lane in (1, 2)}
    async with started(durable) as storage:
        state = await opened(storage)
        assert seen(state) == before
        assert {lane: await left(storage, state, lane) for lane in (1, 2)} == messages


async def left(storage: Storage, state: QueueState, lane: int) -> list[Stored]:
    """The messages of a lane that some group is not done with."""
    groups = list(state.readers())
    return [
        one
        for one in await all_of(storage, state, lane)
        if not groups or not all(group.at(lane).is_done(one.seq) for group in groups)
    ]


def _some(rng: random.Random, state: QueueState) -> Record | None:  # noqa: PLR0911
    """Something that may happen to a queue."""
    lane, group = rng.choice((1, 2)), rng.choice(("", "a", "b"))
    head, known = state.heads[lane], state.groups.get(group)
    what = rng.randrange(10)
    if what < 4:
        body, more = bytes(rng.randrange(20)), {}
        if rng.random() < 0.5:
            more = {"producer": rng.choice("pqrst"), "producer_seq": rng.randrange(10**6)}
        return stored(state, lane, body, **more)
    if what == 4:
        return stored(state, DELAY_LANE, b"d", due_ms=rng.randrange(10**6))
    if what == 5 and state.delayed:
        seq = rng.choice(list(state.delayed))
        return Done(0, DELAY_LANE, DELAY_GROUP, [seq, seq])
    if known is None:
        expected = rng.random() < 0.2
        return Registered(0, group, "" if expected else "c", since_ms=len(group), expected=expected)
    if what == 6 and rng.random() < 0.1:
        return Unregistered(0, group)
    at = known.at(lane)
    if what == 7:
        return Tried(0, lane, group, min(at.mark, head) + rng.randrange(5))
    waiting = sorted(seq for seq in at.open if seq <= head)
    if what == 8 and waiting:
        return Tried(0, lane, group, rng.choice(waiting), rng.randrange(2, 17))
    if waiting:
        seqs = sorted(rng.sample(waiting, rng.randint(1, min(5, len(waiting)))))
        return Done(0, lane, group, ranges_of(seqs), 0)
    return None


@on_loop
async def test_a_long_backlog_is_read_in_parts(durable: Engine):
    body = b"x" * 128
    async with started(durable) as storage:
        state = await made(storage)
        for _ in range(20):
            await committed(
                storage, state, *[stored(state, 1, body, ahead=n) for n in range(1, 501)]
            )
    async with started(durable) as storage:
        state = await opened(storage)
        assert len(await all_of(storage, state, 1, 1_000)) == 10_000


@on_loop
async def test_large_messages_do_not_come_all_at_once(durable: Engine):
    async with started(durable) as storage:
        state = await made(storage)
        for n in range(12):
            await committed(storage, state, stored(state, 1, bytes([n]) * 500_000))
        first = await found(storage, state, 1, 1, 1_000)
        assert first.error is None
        assert 1 <= len(first.messages) == first.upto
        there = await all_of(storage, state, 1, 1_000)
        assert [one.payload[:1] for one in there] == [bytes([n]) for n in range(12)]
