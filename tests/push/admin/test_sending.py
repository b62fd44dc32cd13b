"""Sending: who gets a note, what waits, what is counted, and what a kill leaves."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import BadRequest, StorageError, Throttled, Unreachable
from chappe.push.admin.clients import Which
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.order import Aim, Order
from chappe.push.job import Tally
from tests.push.desks import Bench, make_bench, with_bench


def test_a_note_is_handed_to_who_is_there_and_waits_for_all():  # P7, P8
    async def main(bench):
        app = await bench.app()
        here = await bench.client(app, "a", on=1)
        away = await bench.client(app, "b")
        sent = await bench.send(app, b"hello", devices=["a", "b"])
        assert (sent.aimed, sent.sent, sent.offline) == (2, 1, 1)
        assert bench.comets.delivered == [(1, sent.note, b"hello", [here])]
        assert await bench.waiting(here) == await bench.waiting(away) == [sent.note]
        assert bench.provider.notes == [(sent.note, [away])]
        assert await bench.tally(app, sent.job) == Tally(aimed=2, sent=1, offline=1)
        (told,) = bench.tells.of("push_sent")
        assert (told["label"], told["job"]) == (sent.note, sent.job)
        assert (told["n"], told["offline"], told["target"]) == (2, 1, "many:")
        assert told["went_to"] == ["comet-1"]

    with_bench(main)


@pytest.mark.parametrize("aim", ["client", "device", "user"])
def test_one_is_found_by_any_of_its_names(aim):  # P8
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "phone", on=2)
        await bench.desk.clients.bind(app.key, "alice", Which(client))
        name = {"client": client, "device": "phone", "user": "alice"}[aim]
        sent = await bench.send(app, **{f"{aim}s": [name]})
        assert (sent.aimed, sent.sent) == (1, 1)
        job, _ = await bench.desk.jobs.find(app, sent.job)
        assert (job.aim, job.target, job.note) == (aim, name, sent.note)
        (note,) = (await bench.states.message.bodies([sent.note])).values()
        assert note.user == ("alice" if aim == "user" else None)

    with_bench(main)


def test_who_is_named_twice_gets_it_once_and_who_is_not_there_is_reported():  # P8
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "phone")
        await bench.desk.clients.bind(app.key, "alice", Which(client))
        sent = await bench.send(
            app,
            clients=[client, "c0100000ffffffff", "nonsense"],
            devices=["phone", "tablet"],
            users=["alice", "bob"],
        )
        assert sent.aimed == 1
        assert sent.missing.clients == ["c0100000ffffffff", "nonsense"]
        assert (sent.missing.devices, sent.missing.users) == (["tablet"], ["bob"])
        with pytest.raises(Unreachable, match="device"):
            await bench.send(app, devices=["tablet"])
        assert len(await bench.desk.jobs.page(app, None, 10)) == 1

    with_bench(main)


def test_what_a_comet_does_not_take_waits():  # P7
    async def main(bench):
        app = await bench.app()
        gone = await bench.client(app, "a", on=1)
        moved = await bench.client(app, "b", on=2)
        bench.comets.away = {1}
        bench.comets.here[2].clear()
        sent = await bench.send(app, devices=["a", "b"])
        assert (sent.sent, sent.offline) == (0, 2)
        assert await bench.waiting(gone) == await bench.waiting(moved) == [sent.note]
        assert bench.provider.notes == [(sent.note, [gone, moved])]

    with_bench(main)


def test_a_note_waits_before_it_is_asked_where_its_clients_are():  # P7
    """Else a client that logs in between the two would find nothing, and nobody would hand it."""

    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        find, waited = bench.states.route.find, []

        async def watched(clients):
            waited.extend(await bench.waiting(client))
            return await find(clients)

        bench.states.route.find = watched
        sent = await bench.send(app, devices=["a"])
        assert waited == [sent.note]

    with_bench(main)


def test_a_topic_costs_nothing_for_each_who_is_away():  # P8
    async def main(bench):
        app = await bench.app()
        here = await bench.client(app, "a", on=1)
        away = await bench.client(app, "b")
        for client in (here, away):
            await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        bench.comets.listening = {1: 1}
        sent = await bench.send(app, b"hello", topic="news")
        assert sent.note.startswith("m")
        assert (sent.aimed, sent.sent, sent.offline) == (2, 1, 1)
        assert bench.comets.broadcasts == [(1, sent.note, b"hello")]
        assert await bench.waiting(here) == await bench.waiting(away) == []
        ((position, id_),) = (
            await bench.states.topic.since(app.key, {"news": 0}, bench.clock.ms, 10)
        )["news"]
        note = (await bench.states.message.bodies([id_]))[sent.note]
        assert (note.topic, note.position) == ("news", position)
        assert await bench.tally(app, sent.job) == Tally(aimed=2, sent=1, offline=1)
        with pytest.raises(Unreachable, match="topic"):
            await bench.send(app, topic="olds")

    with_bench(main)


def test_a_topic_of_which_a_comet_is_gone_goes_to_the_others():
    async def main(bench):
        app = await bench.app()
        for device, server in (("a", 1), ("b", 2)):
            client = await bench.client(app, device, on=server)
            await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        bench.comets.listening, bench.comets.away = {1: 1, 2: 1}, {1}
        sent = await bench.send(app, topic="news")
        assert (sent.aimed, sent.sent, sent.offline) == (2, 1, 1)

    with_bench(main)


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({"type": 240}, "type"),
        ({"type": -1}, "type"),
        ({"content": b"x" * 60_001}, "data"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": 29 * 24 * 3600}, "ttl_s"),
        ({"priority": 3}, "priority"),
        ({"collapse": ""}, "collapse"),
        ({"collapse": "x" * 65}, "collapse"),
        ({"repeat": "a\nb"}, "idempotency_key"),
        ({"name": "n" * 256}, "name"),
        ({"once": True}, "once"),
        ({"aim": Aim()}, "to"),
        ({"aim": Aim(topic="t", devices=("a",))}, "topic"),
        ({"aim": Aim(topic="t*")}, "topic"),
        ({"aim": Aim(users=("a b",))}, "user"),
        ({"aim": Aim(devices=tuple(map(str, range(10_001))))}, "to"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_by_its_field(order, field):
    async def main(bench):
        app = await bench.app()
        await bench.client(app, "a")
        made = Order(**{"aim": Aim(devices=("a",)), "content": b"", **order})
        with pytest.raises(BadRequest, match=rf"^protocol: {field}:"):
            await bench.desk.sending.send(app, made)

    with_bench(main)


def test_a_note_waits_for_a_day_unless_told_otherwise():  # P6
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        day = await bench.send(app, devices=["a"])
        hour = await bench.send(app, devices=["a"], order={"ttl_s": 3600})
        bench.clock.pass_s(3600)
        assert await bench.waiting(client) == [day.note]
        bench.clock.pass_s(23 * 3600)
        assert await bench.waiting(client) == []
        assert not await bench.states.message.bodies([day.note, hour.note])

    with_bench(main)


def test_what_is_crowded_out_or_collapsed_is_counted_as_dropped():  # P9
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")
        first = await bench.send(app, devices=["a"])
        second = await bench.send(app, devices=["a"], order={"collapse": "score"})
        third = await bench.send(app, devices=["a"], order={"collapse": "score"})
        assert await bench.waiting(client) == [first.note, third.note]
        fourth = await bench.send(app, devices=["a"])
        assert await bench.waiting(client) == [third.note, fourth.note]
        dropped = [(await bench.tally(app, each.job)).dropped for each in (first, second, third)]
        assert dropped == [1, 1, 0]
        told = {row["label"]: row["reason"] for row in bench.tells.of("push_dropped")}
        assert told == {first.note: "crowded_out", second.note: "collapsed"}

    with_bench(main, options=DeskOptions(waiting_max=2))


def test_an_app_sends_at_its_rate_and_many_cost_as_many():
    async def main(bench):
        app = await bench.app(sends_per_s=3)
        for device in "abc":
            await bench.client(app, device)
        await bench.send(app, devices=["a", "b", "c"])
        with pytest.raises(Throttled) as refused:
            await bench.send(app, devices=["a"])
        assert refused.value.retry_after_s == 1
        bench.clock.pass_s(1)
        await bench.send(app, devices=["a"])

    with_bench(main)


def test_a_device_has_as_many_notes_in_an_hour_as_it_may():
    async def main(bench):
        app = await bench.app(device_notes_per_h=2)
        bench.clock.ms -= bench.clock.ms % 3_600_000
        limited = await bench.client(app, "a")
        await bench.client(app, "b")
        for _ in range(2):
            await bench.send(app, devices=["a"])
        sent = await bench.send(app, devices=["a", "b"])
        assert (sent.aimed, sent.limited) == (1, [limited])
        assert len(await bench.waiting(limited)) == 2
        with pytest.raises(Throttled, match="device") as refused:
            await bench.send(app, devices=["a"])
        assert 3500 < refused.value.retry_after_s <= 3601
        bench.clock.pass_s(3600)
        assert (await bench.send(app, devices=["a"])).limited == []

    with_bench(main)


def test_a_send_that_goes_on_after_a_failure_is_not_charged_to_the_device_twice():
    async def main(bench):
        app = await bench.app(device_notes_per_h=1)
        client = await bench.client(app, "a")
        put = bench.states.message.put

        async def failing(note):
            raise StorageError("disk: full")

        bench.states.message.put = failing
        keyed = {"order": {"repeat": "k"}}
        with pytest.raises(StorageError):
            await bench.send(app, devices=["a"], **keyed)
        bench.states.message.put = put
        sent = await bench.send(app, devices=["a"], **keyed)
        assert await bench.waiting(client) == [sent.note]

    with_bench(main)


def test_a_key_is_no_way_around_what_a_device_may_have():
    async def main(bench):
        app = await bench.app(device_notes_per_h=1)
        bench.clock.ms -= bench.clock.ms % 3_600_000
        client = await bench.client(app, "a")
        first = await bench.send(app, devices=["a"])
        keyed = {"devices": ["a"], "order": {"repeat": "k", "ttl_s": 60}}
        for _ in range(3):
            with pytest.raises(Throttled, match="device"):
                await bench.send(app, b"x", **keyed)
        assert await bench.waiting(client) == [first.note]
        bench.clock.pass_s(3600)
        # Its life begins when it is let through, not when it was refused.
        sent = await bench.send(app, b"x", **keyed)
        note = (await bench.states.message.bodies([sent.note]))[sent.note]
        assert note.expires_ms == bench.clock.ms + 60_000

    with_bench(main)


def test_a_send_that_goes_on_is_for_those_it_was_for_before():
    async def main(bench):
        app = await bench.app(device_notes_per_h=1)
        limited, client = await bench.client(app, "a"), await bench.client(app, "b")
        await bench.send(app, devices=["a"])
        put = bench.states.message.put

        async def failing(note):
            raise StorageError("disk: full")

        bench.states.message.put = failing
        keyed = {"devices": ["a", "b"], "order": {"repeat": "k"}}
        with pytest.raises(StorageError):
            await bench.send(app, **keyed)
        bench.states.message.put = put
        sent = await bench.send(app, **keyed)
        assert (sent.aimed, sent.limited) == (1, [limited])
        assert await bench.waiting(client) == [sent.note]

    with_bench(main)


def test_a_repeated_send_is_one_for_a_day():  # P9
    async def main(bench):
        app, other = await bench.app("one"), await bench.app("other")
        client = await bench.client(app, "a")
        await bench.client(other, "a")
        keyed = {"order": {"repeat": "order-7"}}
        first = await bench.send(app, b"x", devices=["a", "nobody"], **keyed)
        assert await bench.send(app, b"x", devices=["a", "nobody"], **keyed) == first
        assert await bench.waiting(client) == [first.note]
        with pytest.raises(BadRequest, match="idempotency_key"):
            await bench.send(app, b"y", devices=["a", "nobody"], **keyed)
        elsewhere = await bench.send(other, b"x", devices=["a", "nobody"], **keyed)
        assert elsewhere.job != first.job
        bench.clock.pass_s(24 * 3600 + 1)
        assert (await bench.send(app, b"x", devices=["a", "nobody"], **keyed)).job != first.job

    with_bench(main)


def test_sends_with_one_key_at_once_are_one():
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a", on=1)
        keyed = {"order": {"repeat": "k"}}
        sent = await asyncio.gather(*(bench.send(app, devices=["a"], **keyed) for _ in range(5)))
        assert len({each.job for each in sent}) == 1
        assert await bench.waiting(client) == [sent[0].note]
        assert (await bench.tally(app, sent[0].job)).aimed == 1

    with_bench(main)


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A state whose process is killed at its n-th call, before or after that is done."""

    def __init__(self, state, life):
        self._state, self._life = state, life

    def __getattr__(self, name):
        method = getattr(self._state, name)

        async def call(*args, **kwargs):
            self._life.step()
            done = await method(*args, **kwargs)
            self._life.step()
            return done

        return call


class Life:
    def __init__(self, steps):
        self.steps = steps

    def step(self):
        self.steps -= 1
        if self.steps == 0:
            raise Killed


@pytest.mark.parametrize("topic", [False, True])
def test_a_kill_at_any_step_loses_nothing_and_a_repeat_ends_the_same_send(topic):  # P7
    """Killed at each step in turn; the sender, who got no answer, asks another process again."""

    async def attempt(steps):
        bench = await make_bench()
        app = await bench.app()
        client = await bench.client(app, "a", on=1)
        bench.comets.listening = {1: 1}
        await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        life = Life(steps)
        mortal = bench.states._replace(
            **{
                name: Mortal(getattr(bench.states, name), life)
                for name in ("meta", "user", "route", "message", "topic")
            }
        )
        identity = bench.desk.tokens._identity
        dying = Bench(mortal, identity, bench.comets, bench.clock, None, server=2)
        aim = {"topic": "news"} if topic else {"devices": ["a"]}
        keyed = {"order": {"repeat": "k"}}
        killed = False
        try:
            sent = await dying.send(app, b"x", **aim, **keyed)
        except Killed:
            killed = True
            sent = await bench.send(app, b"x", **aim, **keyed)
        assert (sent.aimed, sent.sent) == (1, 1)
        assert await bench.send(app, b"x", **aim, **keyed) == sent
        jobs = await bench.desk.jobs.page(app, None, 10)
        assert [job.id for job, _ in jobs] == [sent.job]
        assert jobs[0][1].aimed == 1
        if topic:
            notes = await bench.states.topic.since(app.key, {"news": 0}, bench.clock.ms, 10)
            assert [id_ for _, id_ in notes["news"]] == [sent.note]
            handed = {id_ for _, id_, _ in bench.comets.broadcasts}
        else:
            assert await bench.waiting(client) == [sent.note]
            handed = {id_ for _, id_, _, _ in bench.comets.delivered}
        # A device shows an id once, however often it comes.
        assert handed == {sent.note}
        await bench.states.close()
        return killed

    async def main():
        steps = 1
        while await attempt(steps):
            steps += 1
        assert steps > 12

    asyncio.run(main())


def test_a_store_that_fails_is_told_of_and_a_tally_that_fails_is_not():
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a")

        async def failing(*args, **kwargs):
            raise StorageError("disk: full")

        count, bench.states.meta.count = bench.states.meta.count, failing
        sent = await bench.send(app, devices=["a"])
        bench.states.meta.count = count
        assert await bench.waiting(client) == [sent.note]
        bench.states.message.add = failing
        with pytest.raises(StorageError):
            await bench.send(app, devices=["a"])

    with_bench(main)


def test_many_are_handed_over_in_batches():
    async def main(bench):
        app = await bench.app(sends_per_s=0)
        for n in range(5):
            await bench.client(app, f"d{n}", on=1)
        sent = await bench.send(app, devices=[f"d{n}" for n in range(5)])
        assert (sent.aimed, sent.sent) == (5, 5)
        assert [len(clients) for *_, clients in bench.comets.delivered] == [2, 2, 1]

    with_bench(main, options=DeskOptions(batch=2))
