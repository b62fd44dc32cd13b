"""Notes that are taken back or replaced, for those who have not seen them."""

from __future__ import annotations

import pytest

from chappe.errors import Unreachable
from chappe.push.admin.clients import Which
from chappe.push.admin.jobs import ratios
from chappe.push.admin.notes import Change
from chappe.push.admin.options import DeskOptions
from chappe.push.job import Tally
from chappe.wire.pushlink import Withdraw
from tests.push.desks import with_bench


def test_a_note_that_is_taken_back_waits_for_nobody():  # P7
    async def main(bench):
        app = await bench.app()
        seen, unseen = await bench.client(app, "a", on=1), await bench.client(app, "b")
        sent = await bench.send(app, devices=["a", "b"])
        await bench.states.message.settle({seen: [sent.note]})
        assert await bench.desk.notes.cancel(app, sent.note) == 1
        assert await bench.waiting(unseen) == []
        assert not await bench.states.message.bodies([sent.note])
        # Connected devices that have it unacknowledged are told by their comets.
        taken_back = Withdraw(app.key, sent.note, [seen, unseen])
        assert bench.comets.told == [(n, taken_back) for n in (1, 2)]
        assert bench.provider.taken_back == [(sent.note, [unseen])]
        job, tally = await bench.desk.jobs.find(app, sent.job)
        assert (job.cancelled_ms, tally.dropped) == (bench.clock.ms, 1)
        (told,) = bench.tells.of("push_dropped")
        assert (told["client"], told["reason"]) == (unseen, "cancelled")
        with pytest.raises(Unreachable, match="note"):
            await bench.desk.notes.cancel(app, sent.note)

    with_bench(main)


@pytest.mark.parametrize("aim", ["clients", "devices", "users"])
def test_one_target_is_found_again_by_its_name(aim):
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        await bench.desk.clients.bind(app.key, "alice", Which(client))
        name = {"clients": client, "devices": "a", "users": "alice"}[aim]
        sent = await bench.send(app, **{aim: [name]})
        assert await bench.desk.notes.cancel(app, sent.note) == 1
        assert await bench.waiting(client) == []

    with_bench(main)


def test_a_note_to_more_than_one_op_carries_is_taken_back_by_several():
    async def main(bench):
        app = await bench.app(sends_per_s=0)
        clients = [await bench.client(app, f"d{n}") for n in range(3)]
        sent = await bench.send(app, devices=["d0", "d1", "d2"])
        assert await bench.desk.notes.cancel(app, sent.note) == 3
        ops = [Withdraw(app.key, sent.note, some) for some in (clients[:2], clients[2:])]
        assert bench.comets.told == [(n, op) for n in (1, 2) for op in ops]

    with_bench(main, options=DeskOptions(batch=2))


def test_a_topics_note_that_is_taken_back_is_in_the_topic_no_more():
    async def main(bench):
        app = await bench.app()
        for device in ("a", "b", "c"):
            client = await bench.client(app, device, on=1)
            await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        sent = await bench.send(app, topic="news")
        await bench.states.meta.count({sent.job: {"arrived": 1}})
        assert await bench.desk.notes.cancel(app, sent.note) == 2
        tally = (await bench.states.meta.jobs([sent.job]))[sent.job][1]
        assert (tally.aimed, tally.arrived, tally.dropped) == (3, 1, 2)
        notes = await bench.states.topic.since(app.key, {"news": 0}, bench.clock.ms, 10)
        assert notes["news"] == []
        withdrawn = bench.comets.told_of(Withdraw)
        assert withdrawn == [(n, Withdraw(app.key, sent.note, topic="news")) for n in (1, 2)]

    with_bench(main)


def test_a_replaced_note_is_another_for_those_who_have_not_seen_it():  # P7
    async def main(bench):
        app = await bench.app()
        seen, unseen = await bench.client(app, "a", on=1), await bench.client(app, "b", on=1)
        sent = await bench.send(app, b"old", devices=["a", "b"], order={"type": 7, "name": "n"})
        await bench.states.message.settle({seen: [sent.note]})
        bench.comets.delivered.clear()
        new = await bench.desk.notes.replace(app, sent.note, Change(content=b"new"))
        assert new.note != sent.note
        assert bench.comets.delivered == [(1, new.note, b"new", [unseen])]
        assert await bench.waiting(unseen) == [new.note]
        assert await bench.waiting(seen) == []
        assert not await bench.states.message.bodies([sent.note])
        note = (await bench.states.message.bodies([new.note]))[new.note]
        assert (note.type, note.content) == (7, b"new")
        assert (await bench.desk.jobs.find(app, new.job))[0].name == "n"

    with_bench(main)


@pytest.mark.parametrize("topic", [False, True])
def test_a_replaced_note_ends_when_it_would_have_unless_another_life_is_asked_for(topic):
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        aim = {"topic": "news"} if topic else {"devices": ["a"]}

        async def life_ms(sent) -> int:
            note = (await bench.states.message.bodies([sent.note]))[sent.note]
            return note.expires_ms - bench.clock.ms

        sent = await bench.send(app, **aim, order={"ttl_s": 60})
        bench.clock.ms += 20_500
        same = await bench.desk.notes.replace(app, sent.note, Change(content=b"2"))
        assert await life_ms(same) == 40_000
        longer = await bench.desk.notes.replace(app, same.note, Change(content=b"3", ttl_s=600))
        assert await life_ms(longer) == 600_000

    with_bench(main)


def test_a_note_that_everybody_has_seen_is_not_replaced():
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        sent = await bench.send(app, devices=["a"])
        await bench.states.message.settle({client: [sent.note]})
        with pytest.raises(Unreachable, match="nobody waits"):
            await bench.desk.notes.replace(app, sent.note, Change(content=b"new"))

    with_bench(main)


def test_a_topics_note_is_replaced_for_all_who_subscribe():
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a", on=1)
        await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        sent = await bench.send(app, b"old", topic="news")
        new = await bench.desk.notes.replace(app, sent.note, Change(content=b"new"))
        notes = await bench.states.topic.since(app.key, {"news": 0}, bench.clock.ms, 10)
        assert [id_ for _, id_ in notes["news"]] == [new.note]
        assert bench.comets.broadcasts[-1] == (1, new.note, b"new")

    with_bench(main)


def test_the_new_one_is_there_before_the_old_one_goes():  # P7
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        sent = await bench.send(app, b"old", devices=["a"])
        cancel = bench.states.message.cancel

        async def watched(id_):
            assert len(await bench.waiting(client)) == 2
            return await cancel(id_)

        bench.states.message.cancel = watched
        new = await bench.desk.notes.replace(app, sent.note, Change(content=b"new"))
        assert await bench.waiting(client) == [new.note]

    with_bench(main)


def test_another_apps_notes_and_jobs_are_not_there():
    async def main(bench):
        app, other = await bench.app("one"), await bench.app("other")
        client = await bench.client(app, "a")
        await bench.client(other, "a")
        sent = await bench.send(app, devices=["a"])
        with pytest.raises(Unreachable):
            await bench.desk.notes.cancel(other, sent.note)
        with pytest.raises(Unreachable):
            await bench.desk.notes.replace(other, sent.note, Change(content=b""))
        with pytest.raises(Unreachable):
            await bench.desk.jobs.find(other, sent.job)
        with pytest.raises(Unreachable):
            await bench.desk.jobs.page(other, sent.job, 10)
        assert await bench.waiting(client) == [sent.note]

    with_bench(main)


def test_jobs_are_listed_the_newest_first_and_by_page():  # P9
    async def main(bench):
        app = await bench.app()
        await bench.client(app, "a")
        made = []
        for _ in range(5):
            made.append((await bench.send(app, devices=["a"])).job)
            bench.clock.pass_s(1)
        first = await bench.desk.jobs.page(app, None, 3)
        rest = await bench.desk.jobs.page(app, first[-1][0].id, 3)
        assert [job.id for job, _ in (*first, *rest)] == made[::-1]

    with_bench(main)


def test_ratios_are_of_those_it_was_aimed_at_and_clicks_of_those_it_arrived_at():  # P9
    tally = Tally(aimed=200, sent=100, arrived=80, clicked=20, offline=90, dropped=10)
    assert ratios(tally) == (0.5, 0.4, 0.25, 0.45, 0.05)
    assert ratios(Tally()) == (0, 0, 0, 0, 0)
