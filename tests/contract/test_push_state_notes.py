"""What the states of push promise of notes, wherever they are kept (P6, P7, P8)."""

from __future__ import annotations

import asyncio

import pytest

from chappe.push.state.topic import BEYOND_MAX, Mark, Subscriber
from tests.contract.push_states import (
    DAY_MS,
    NOW_MS,
    Opening,
    a_note,
    client_id,
    note_id,
    opened,
    opening,
)
from tests.loop import on_loop

__all__ = ["opening"]

LATER_MS = NOW_MS + DAY_MS


@on_loop
async def test_a_body_is_there_until_it_expires(opening: Opening):  # P6
    async with opened(opening) as states:
        message = states.message
        short = a_note(life_ms=1000, content=bytes(range(256)) * 200)
        long = a_note(topic="t:é", position=5, user="ann", once=True, collapse="c", priority=2)
        for note in (short, long, short):
            await message.put(note)
        asked = [short.id, long.id, note_id()]
        assert await message.bodies(asked) == {short.id: short, long.id: long}
        opening.now_ms += 999
        assert await message.bodies(asked) == {short.id: short, long.id: long}
        opening.now_ms += 1
        assert await message.bodies(asked) == {long.id: long}
        assert await message.cancel(short.id) is None
        await message.put(a_note(life_ms=-1))  # comes too late, and disturbs nobody


@on_loop
async def test_a_body_that_is_cancelled_is_gone_and_told_once(opening: Opening):
    async with opened(opening) as states:
        note = a_note()
        await states.message.put(note)
        told = await asyncio.gather(*(states.message.cancel(note.id) for _ in range(5)))
        assert [one for one in told if one is not None] == [note]
        assert await states.message.bodies([note.id]) == {}


@on_loop
async def test_notes_wait_for_a_client_in_order_until_they_are_settled(opening: Opening):  # P7
    async with opened(opening) as states:
        message, a, b = states.message, client_id(), client_id()
        notes = [a_note() for _ in range(40)]
        for note in notes:
            assert await message.add(note, [a, b], 100) == {}
        ids = [note.id for note in notes]
        nobody = client_id()
        assert await message.waiting([a, b, nobody]) == {a: ids, b: ids, nobody: []}
        # Again, as after an error: it waits once, and where it did.
        assert await message.add(notes[3], [a], 100) == {}
        assert (await message.waiting([a]))[a] == ids
        some = [ids[7], note_id(), ids[0], ids[39]]
        assert await message.settle({a: some, client_id(): ids}) == {a: [ids[7], ids[0], ids[39]]}
        left = [one for one in ids if one not in some]
        assert await message.waiting([a, b]) == {a: left, b: ids}
        assert await message.holders(ids[7], [a, b, client_id()]) == [b]
        assert await message.holders(ids[8], [b, a]) == [b, a]
        for at in range(0, len(left), 5):
            assert await message.settle({a: left[at : at + 5]}) == {a: left[at : at + 5]}
        assert await message.waiting([a]) == {a: []}
        assert await message.settle({}) == {}


@on_loop
async def test_what_is_settled_twice_is_told_once(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        client, notes = client_id(), [a_note() for _ in range(10)]
        for note in notes:
            await one.message.add(note, [client], 100)
        ids = [note.id for note in notes]
        told = await asyncio.gather(
            *((one, other)[i % 2].message.settle({client: [*ids, ids[0]]}) for i in range(6))
        )
        assert [one for one in told if one] == [{client: ids}]


@on_loop
async def test_of_notes_that_collapse_the_last_waits(opening: Opening):
    async with opened(opening) as states:
        message, a, b = states.message, client_id(), client_id()
        first, plain, second = a_note(collapse="score"), a_note(), a_note(collapse="score")
        other, last = a_note(collapse="else"), a_note(collapse="score")
        for note in (first, plain, other):
            assert await message.add(note, [a], 10) == {}
        assert await message.add(second, [a, b], 10) == {a: first.id}
        assert await message.waiting([a, b]) == {
            a: [plain.id, other.id, second.id],
            b: [second.id],
        }
        assert await message.add(last, [b, a], 3) == {a: second.id, b: second.id}
        assert await message.waiting([a]) == {a: [plain.id, other.id, last.id]}
        assert await message.settle({a: [second.id, last.id]}) == {a: [last.id]}
        assert await message.add(a_note(collapse="score"), [a], 10) == {}


@pytest.mark.parametrize("most", [1, 3, 30])
@on_loop
async def test_what_is_too_much_takes_the_place_of_the_oldest(opening: Opening, most: int):
    async with opened(opening) as states:
        message, client = states.message, client_id()
        notes = [a_note(collapse=f"k{i}" if i % 3 else None) for i in range(2 * most)]
        ids = [note.id for note in notes]
        replaced = [(await message.add(note, [client], most)).get(client) for note in notes]
        assert replaced == [None] * most + ids[:most]
        assert await message.waiting([client]) == {client: ids[most:]}


@on_loop
async def test_what_expired_waits_no_more_and_makes_room(opening: Opening):
    async with opened(opening) as states:
        message, client = states.message, client_id()
        # Seconds: a store may round up how long it remembers, never down.
        notes = [a_note(life_ms=2000 if i % 2 else DAY_MS) for i in range(20)]
        for note in notes:
            assert await message.add(note, [client], 20) == {}
        opening.now_ms += 1999
        assert len((await message.waiting([client]))[client]) == 20
        opening.now_ms += 1001
        stay = [note.id for note in notes[::2]]
        assert await message.waiting([client]) == {client: stay}
        assert await message.holders(notes[1].id, [client]) == []
        assert await message.settle({client: [notes[1].id]}) == {}
        more = a_note(at_ms=opening.now_ms)
        assert await message.add(more, [client], 20) == {}
        assert await message.waiting([client]) == {client: [*stay, more.id]}


@on_loop
async def test_notes_that_come_at_once_all_wait(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        clients = [client_id() for _ in range(300)]
        notes = [a_note() for _ in range(20)]
        await asyncio.gather(
            *((one, other)[i % 2].message.add(note, clients, 100) for i, note in enumerate(notes))
        )
        waiting = await one.message.waiting(clients)
        assert {frozenset(ids) for ids in waiting.values()} == {frozenset(n.id for n in notes)}


@on_loop
async def test_subscribers_are_counted_listed_and_found_on_servers(opening: Opening):
    async with opened(opening) as states:
        topic = states.topic
        a, b, c = sorted(client_id() for _ in range(3))
        assert await topic.count("app", "t") == 0
        assert await topic.subscribe("app", a, ["t", "u", "t"], 1, NOW_MS, 2)
        assert await topic.subscribe("app", b, ["t"], 2, NOW_MS, 2)
        assert await topic.subscribe("app", c, ["t"], -1, NOW_MS, 2)
        assert await topic.count("app", "t") == 3
        assert sorted(await topic.servers("app", "t")) == [1, 2]
        assert await topic.list_topics("app", "", 10) == [("t", 3), ("u", 1)]
        assert await topic.list_topics("app", "t", 10) == [("u", 1)]
        assert set(await topic.list_clients("app", "t", "", 10)) == {a, b, c}
        assert set(await topic.move("app", a, 2)) == {"t", "u"}
        assert await topic.servers("app", "t") == [2]
        assert await topic.servers("app", "u") == [2]
        await topic.unsubscribe("app", b, ["t", "never"])
        await topic.move("app", a, -1)
        assert await topic.servers("app", "t") == []
        assert set(await topic.list_clients("app", "t", "", 10)) == {a, c}
        await topic.remove("app", a)
        assert await topic.topics_of("app", a) == {}
        assert await topic.count("app", "t") == 1
        assert await topic.count("app", "u") == 0
        assert await topic.move("app", client_id(), 1) == {}
        nobody, there = await topic.move_all("app", [client_id(), c], 3)
        assert (nobody, set(there)) == ({}, {"t"})
        assert await topic.servers("app", "t") == [3]
        assert await topic.move_all("app", [], 3) == []
        assert await topic.subscribers("app", [client_id(), c]) == [
            Subscriber(-1, {}),
            Subscriber(3, there),
        ]
        await topic.leave_all("app", [client_id(), c], 2)
        assert await topic.subscribers("app", [c]) == [Subscriber(3, there)]
        await topic.leave_all("app", [client_id(), c], 3)
        assert await topic.subscribers("app", [c]) == [Subscriber(-1, there)]
        await topic.leave_all("app", [], 3)
        assert await topic.subscribers("app", []) == []


@on_loop
async def test_more_topics_than_a_client_may_have_change_nothing(opening: Opening):
    async with opened(opening) as states:
        topic, client = states.topic, client_id()
        assert await topic.subscribe("app", client, ["a", "b"], 1, NOW_MS, 3)
        assert not await topic.subscribe("app", client, ["b", "c", "d"], 2, NOW_MS, 3)
        assert set(await topic.topics_of("app", client)) == {"a", "b"}
        assert await topic.count("app", "c") == 0
        assert await topic.servers("app", "a") == [1]
        assert await topic.subscribe("app", client, ["b", "c", "a"], 1, NOW_MS, 3)
        assert set(await topic.topics_of("app", client)) == {"a", "b", "c"}
        many = [f"t{i}" for i in range(97)]
        assert await topic.subscribe("app", client, many, 1, NOW_MS, 100)
        assert len(await topic.move("app", client, 3)) == 100
        await topic.unsubscribe("app", client, many)
        assert set(await topic.topics_of("app", client)) == {"a", "b", "c"}


@on_loop
async def test_a_client_is_subscribed_where_it_is_by_who_does_not_know(opening: Opening):
    async with opened(opening) as states:
        topic, client = states.topic, client_id()
        assert await topic.subscribe("app", client, ["a"], 5, NOW_MS, 10)
        assert await topic.subscribe("app", client, ["b"], -1, NOW_MS, 10)
        assert await topic.servers("app", "b") == [5]
        assert await topic.subscribe("app", client, ["c"], 6, NOW_MS, 10)
        assert [await topic.servers("app", name) for name in "abc"] == [[6]] * 3


@on_loop
async def test_many_subscribers_are_listed_in_pages(opening: Opening):
    async with opened(opening) as states:
        topic = states.topic
        clients = [client_id() for _ in range(1500)]
        for start in range(0, 1500, 100):
            await asyncio.gather(
                *(
                    topic.subscribe("app", client, ["t"], i % 3 - 1, NOW_MS, 10)
                    for i, client in enumerate(clients[start : start + 100])
                )
            )
        assert await topic.count("app", "t") == 1500
        listed: list[str] = []
        while page := await topic.list_clients("app", "t", listed[-1] if listed else "", 400):
            assert len(page) <= 400
            listed += page
        assert len(listed) == 1500
        assert set(listed) == set(clients)
        await asyncio.gather(*(topic.remove("app", client) for client in clients[:-1]))
        assert await topic.list_clients("app", "t", "", 400) == clients[-1:]
        assert await topic.count("app", "t") == 1


@on_loop
async def test_moves_at_once_leave_a_client_on_one_server(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        client = client_id()
        assert await one.topic.subscribe("app", client, ["t", "u"], 0, NOW_MS, 10)
        await asyncio.gather(
            *((one, other)[i % 2].topic.move("app", client, i) for i in range(1, 30))
        )
        assert len(await one.topic.servers("app", "t")) == 1
        assert await one.topic.servers("app", "t") == await one.topic.servers("app", "u")
        await one.topic.move("app", client, -1)
        assert await other.topic.servers("app", "t") == []


@on_loop
async def test_whoever_left_a_server_stays_where_it_is_by_now(opening: Opening):
    async with opened(opening) as states:
        topic, client = states.topic, client_id()
        await topic.leave("app", client, 1)
        assert await topic.subscribe("app", client, ["t", "u"], 1, NOW_MS, 10)
        await topic.move("app", client, 2)
        await topic.leave("app", client, 1)
        assert await topic.servers("app", "t") == [2]
        await topic.leave("app", client, 2)
        assert await topic.servers("app", "t") == await topic.servers("app", "u") == []
        assert set(await topic.topics_of("app", client)) == {"t", "u"}
        assert await topic.count("app", "t") == 1


@on_loop
async def test_positions_grow_also_when_the_clock_steps_back(opening: Opening):
    async with opened(opening) as states:
        topic, positions = states.topic, []
        for now_ms in (NOW_MS, NOW_MS, NOW_MS - 5000, NOW_MS + 5, 17):
            at = await topic.append("app", "t", note_id(), now_ms, LATER_MS, None, 10)
            positions += [at]
        assert positions == [NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 5, NOW_MS + 6]
        at_once = await asyncio.gather(
            *(topic.append("app", "t", note_id(), NOW_MS, LATER_MS, None, 100) for _ in range(20))
        )
        assert sorted(at_once) == list(range(NOW_MS + 7, NOW_MS + 27))
        found = (await topic.since("app", {"t": NOW_MS + 5}, NOW_MS, 3))["t"]
        assert [position for position, _ in found] == [NOW_MS + 6, NOW_MS + 7, NOW_MS + 8]


@on_loop
async def test_a_position_stays_given_when_its_note_is_taken_out(opening: Opening):
    async with opened(opening) as states:
        topic, note = states.topic, note_id()
        at = await topic.append("app", "t", note, NOW_MS, LATER_MS, None, 10)
        # Again, as after an error.
        assert await topic.append("app", "t", note, NOW_MS + 9, LATER_MS, None, 10) == at
        await topic.take_out("app", "t", note)
        await topic.take_out("app", "t", note)
        assert await topic.since("app", {"t": 0}, NOW_MS, 10) == {"t": []}
        assert await topic.append("app", "t", note_id(), NOW_MS, LATER_MS, None, 10) == at + 1


@on_loop
async def test_a_topics_notes_are_read_from_a_position_until_they_expire(opening: Opening):
    async with opened(opening) as states:
        topic, ids = states.topic, [note_id() for _ in range(6)]
        for i, note in enumerate(ids):
            expires_ms = NOW_MS + 1000 if i == 2 else LATER_MS
            assert (
                await topic.append("app", "t", note, NOW_MS + i, expires_ms, None, 5) == NOW_MS + i
            )
        # The first was crowded out.
        all_ = [(NOW_MS + i, note) for i, note in enumerate(ids)][1:]
        asked = {"t": 0, "none": 0}
        assert await topic.since("app", asked, NOW_MS, 10) == {"t": all_, "none": []}
        assert await topic.since("app", asked, NOW_MS, 2) == {"t": all_[:2], "none": []}
        assert (await topic.since("app", {"t": NOW_MS + 3}, NOW_MS, 9))["t"] == all_[3:]
        assert (await topic.since("app", asked, NOW_MS + 1000, 2))["t"] == [all_[0], all_[2]]
        assert (await topic.since("app", asked, LATER_MS, 10))["t"] == []


@on_loop
async def test_a_note_of_a_topic_takes_the_place_of_one_it_collapses_with(opening: Opening):
    async with opened(opening) as states:
        topic, ids = states.topic, [note_id() for _ in range(5)]
        for i, collapse in enumerate(["x", None, "y", "x", "x"]):
            await topic.append("app", "t", ids[i], NOW_MS + i, LATER_MS, collapse, 10)
        found = (await topic.since("app", {"t": 0}, NOW_MS, 10))["t"]
        assert [note for _, note in found] == [ids[1], ids[2], ids[4]]
        await topic.take_out("app", "t", ids[4])
        last = note_id()
        await topic.append("app", "t", last, NOW_MS, LATER_MS, "x", 10)
        found = (await topic.since("app", {"t": 0}, NOW_MS, 10))["t"]
        assert [note for _, note in found] == [ids[1], ids[2], last]


@on_loop
async def test_a_subscriber_begins_after_the_last_note_and_gets_what_comes(opening: Opening):
    async with opened(opening) as states:
        topic, client = states.topic, client_id()
        # Whoever sends has a clock behind the subscriber's.
        before = await topic.append("app", "t", note_id(), NOW_MS - 9000, LATER_MS, None, 10)
        assert await topic.subscribe("app", client, ["t", "new"], 1, NOW_MS, 10)
        marks = await topic.topics_of("app", client)
        assert marks["t"] == Mark(before)
        for name in ("t", "new"):
            note = note_id()
            at = await topic.append("app", name, note, NOW_MS - 8000, LATER_MS, None, 10)
            asked = {name: marks[name].position}
            assert await topic.since("app", asked, NOW_MS, 10) == {name: [(at, note)]}
        # To subscribe once more is no reason to forget how far it had got.
        assert await topic.subscribe("app", client, ["t", "new"], 1, NOW_MS, 10)
        assert await topic.topics_of("app", client) == marks


@on_loop
async def test_a_mark_goes_forward_only_and_keeps_what_is_beyond_it(opening: Opening):
    async with opened(opening) as states:
        topic, client, other = states.topic, client_id(), client_id()
        assert await topic.subscribe("app", client, ["t", "u"], 1, NOW_MS, 10)

        async def mark(mark: Mark) -> Mark:
            await topic.advance("app", {(client, "t"): mark, (other, "t"): mark})
            return (await topic.topics_of("app", client))["t"]

        at = NOW_MS
        assert await mark(Mark(at)) == Mark(at)
        assert await mark(Mark(at, (at + 9, at + 3))) == Mark(at, (at + 3, at + 9))
        assert await mark(Mark(at - 50, (at - 2, at + 5))) == Mark(at, (at + 3, at + 5, at + 9))
        assert await mark(Mark(at + 5)) == Mark(at + 5, (at + 9,))
        many = tuple(range(at + 10, at + 10 + BEYOND_MAX))
        kept = (at + 9, *many[:-1])
        assert await mark(Mark(at, many)) == Mark(at + 5, kept)
        assert await mark(Mark(at + 100)) == Mark(at + 100)
        assert (await topic.topics_of("app", client))["u"] == Mark(0)
        assert await topic.topics_of("app", other) == {}
        await topic.unsubscribe("app", client, ["t"])
        await topic.advance("app", {(client, "t"): Mark(at + 200)})
        assert set(await topic.topics_of("app", client)) == {"u"}
        await topic.advance("app", {})
