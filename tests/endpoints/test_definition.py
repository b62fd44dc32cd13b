"""Definitions: what administrators make and remove, here and on other nodes (H16, H17)."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from chappe.endpoints.definition import QueueRecord
from chappe.endpoints.record import Record
from chappe.errors import Overload
from chappe.hub.grant import Grant, scope_of
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import Stored
from chappe.wire.ops import Create, Delete, Fetch, Hello, Reply, Subscribe
from tests.hub.rig import Endpoint, Rig, publish, send
from tests.loop import on_loop

APP = "default"
JOBS = "queue:jobs"
encode = msgspec.msgpack.encode


class Office(Rig):
    """A hub with an administrator."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.admin = self.endpoint("admin")
        self.version = 1 << 60

    async def ask(self, op: Any, who: Endpoint | None = None) -> Reply:
        who = who or self.admin
        who.say(op)
        await self.tick()
        return who.reply()

    def hear(self, address: str, value: bytes | None) -> None:
        """Another node changed a record."""
        self.version += 1
        self.application.directory.merge([Record(APP, address, self.version, value, 0)])

    def owner(self) -> str | None:
        return self.application.definitions.owner_of(APP, JOBS)


@on_loop
async def test_a_topic_is_made_changed_and_removed() -> None:
    office = Office()
    bob = office.endpoint("bob")
    await office.ask(Subscribe(id=1, to="topic:t"), bob)
    assert (await office.ask(Create(id=1, to="topic:t", anonymous=True))).ok
    office.admin.say(publish("topic:t", 1))
    assert (await office.ask(Create(id=2, to="topic:t", history=5))).ok
    assert (await office.ask(publish("topic:t", 2, id=9))).ok
    assert (await office.ask(Delete(id=3, to="topic:t"))).ok
    office.admin.say(publish("topic:t", 3))
    await office.tick()
    got = [op for op in bob.heard() if hasattr(op, "from_")]
    assert [(op.from_, op.offset) for op in got] == [("", 0), ("user:admin", 1), ("user:admin", 0)]


@on_loop
async def test_a_queue_is_made_keeps_what_it_holds_when_changed_and_is_removed_with_it() -> None:
    office = Office()
    assert (await office.ask(send(JOBS, 1, id=1))).error == "unreachable"
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True, depth_max=2))).ok
    assert office.owner() == "node"
    for n, ok in ((1, True), (2, True), (3, False)):
        assert (await office.ask(send(JOBS, n, id=1))).ok is ok
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True, depth_max=5))).ok
    assert (await office.ask(send(JOBS, 3, id=1))).ok
    assert office.owner() == "node"
    assert (await office.ask(Delete(id=1, to=JOBS))).ok
    assert office.owner() is None
    assert (await office.ask(Fetch(id=2, to=JOBS))).error == "unreachable"
    assert (await office.ask(Delete(id=1, to=JOBS))).error == "unreachable"
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True))).ok
    assert (await office.ask(Fetch(id=2, to=JOBS, n=5))).n == 0


@pytest.mark.parametrize(
    ("op", "named"),
    [
        (Create(id=1, to="user:x"), "to:"),
        (Create(id=1, to="nonsense"), "to:"),
        (Create(id=1, to="topic:"), "to:"),
        (Delete(id=1, to="user:x"), "to:"),
        (Create(id=1, to="topic:t", volatile=True), "volatile"),
        (Create(id=1, to="topic:t", depth_max=1), "depth_max"),
        (Create(id=1, to="topic:t", bytes_max=1), "bytes_max"),
        (Create(id=1, to="topic:t", ack_timeout_s=1), "ack_timeout_s"),
        (Create(id=1, to="topic:t", attempts_max=1), "attempts_max"),
        (Create(id=1, to="topic:t", history=-1), "history"),
        (Create(id=1, to=JOBS, volatile=True, history=1), "history"),
        (Create(id=1, to=JOBS), "volatile"),
    ],
)
@on_loop
async def test_what_cannot_be_made_is_refused_by_name_and_nothing_changes(
    op: Any, named: str
) -> None:
    office = Office()
    reply = await office.ask(op)
    assert reply.error == "protocol"
    assert named in (reply.reason or "")
    assert list(office.application.directory.snapshot()) == []


class Narrow:
    """Lets everybody administer what is theirs."""

    def authenticate(self, hello: Hello) -> Grant:
        own = scope_of([f"topic:{hello.as_.partition(':')[2]}-*"])
        return Grant(app=APP, address=hello.as_, administer=own)


@on_loop
async def test_only_an_administrator_makes_and_removes() -> None:
    office = Office(authenticator=Narrow())
    for op in (Create, Delete):
        assert (await office.ask(op(id=1, to="topic:other-x"))).error == "forbidden"
        assert (await office.ask(op(id=1, to=JOBS))).error == "forbidden"
        assert (await office.ask(op(id=1, to="topic:admin-x"))).ok
    office.admin.say(Create(to="topic:admin-y"))
    await office.tick()
    assert office.admin.heard() == []


@on_loop
async def test_there_is_a_bound_on_queues_and_one_that_is_known_may_be_changed() -> None:
    office = Office()
    office.application.queues.limits = QueueLimits(queues_max=1)
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True))).ok
    assert (await office.ask(Create(id=1, to="queue:more", volatile=True))).error == "overload"
    assert office.application.directory.get(APP, "queue:more") is None
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True, depth_max=9))).ok
    # One that another node made for here is counted, and the node goes on.
    office.hear("queue:third", encode(QueueRecord("node", QueueOptions(volatile=True))))
    assert office.application.queues.get(APP, "queue:third") is None
    recorder: Any = office.recorder
    assert recorder.refusals["overload"] == 2


@on_loop
async def test_what_other_nodes_make_is_known_and_lives_there() -> None:
    office = Office()
    office.hear(JOBS, encode(QueueRecord("far", QueueOptions(volatile=True, depth_max=7))))
    assert office.owner() == "far"
    assert office.application.queues.get(APP, JOBS) is None
    # Its node is not linked: who changes it here goes on with it here.
    assert (await office.ask(Create(id=1, to=JOBS, volatile=True, depth_max=9))).ok
    assert office.owner() == "node"
    value = office.application.directory.get(APP, JOBS)
    assert value is not None
    record = msgspec.msgpack.decode(value, type=QueueRecord)
    assert (record.owner, record.options.depth_max) == ("node", 9)


@on_loop
async def test_a_queue_whose_owner_is_gone_is_taken_over_once_with_its_options() -> None:
    office = Office()
    definitions = office.application.definitions
    office.hear(JOBS, encode(QueueRecord("far", QueueOptions(volatile=True, depth_max=1))))
    told: list[Record] = []
    office.application.directory.on_change = told.append
    for _ in range(3):
        definitions.take_over(APP, JOBS)
    definitions.take_over(APP, "queue:unmade")
    assert [record.address for record in told] == [JOBS]
    assert office.owner() == "node"
    assert (await office.ask(send(JOBS, 1, id=1))).ok
    assert (await office.ask(send(JOBS, 2, id=2))).error == "overload"


@on_loop
async def test_a_queue_that_lives_elsewhere_now_is_given_up_and_its_messages_handed_over() -> None:
    office = Office()
    handed: list[Any] = []
    office.application.definitions.hand_over = lambda *what: handed.append(what)
    await office.ask(Create(id=1, to=JOBS, volatile=True))
    worker = office.endpoint("worker")
    for n in range(3):
        await office.ask(send(JOBS, n, id=n))
    worker.say(Fetch(id=1, to=JOBS))
    await office.tick()
    waiting = office.endpoint("waiting")
    await office.ask(Create(id=1, to="queue:empty", volatile=True))
    waiting.say(Fetch(id=1, to="queue:empty", wait_ms=1000))
    await office.tick()
    office.hear(JOBS, encode(QueueRecord("far", QueueOptions(volatile=True))))
    office.hear("queue:empty", encode(QueueRecord("far", QueueOptions(volatile=True))))
    await office.tick()
    ((*_, app, messages),) = handed
    assert app == APP
    # Also what a worker had in hand: nobody here can take its answer any more.
    assert sorted(int(message.payload) for _, message in messages) == [0, 1, 2]
    assert {queue for queue, _ in messages} == {JOBS}
    assert waiting.reply().error == "unreachable"
    assert office.application.queues.get(APP, JOBS) is None


@on_loop
async def test_messages_that_come_from_the_node_before_are_kept_as_far_as_there_is_room() -> None:
    office = Office()
    await office.ask(Create(id=1, to=JOBS, volatile=True, depth_max=2))
    worker = office.endpoint("worker")
    worker.say(Fetch(id=1, to=JOBS, wait_ms=1000))
    await office.tick()
    office.hub.ensure_tick()
    messages = [(JOBS, Stored(0, 0, 0, n, 1, "user:x", str(n).encode())) for n in range(1, 5)]
    other = ("queue:unmade", Stored(0, 0, 0, 9, 1, "user:x", b"9"))
    assert office.application.queues.take_on(APP, [*messages, other]) == 3
    await office.tick()
    assert worker.got() == [1]  # and one is kept: what a worker has in hand counts, too
    assert (await office.ask(Fetch(id=2, to=JOBS, n=5))).n == 1


@on_loop
async def test_a_record_of_a_later_release_removes_no_queue_and_defines_no_topic() -> None:
    office = Office()
    await office.ask(Create(id=1, to=JOBS, volatile=True))
    await office.ask(send(JOBS, 1, id=2))
    for value in (b"\xc1", encode(5), encode({"history": -5})):
        office.hear(JOBS, value)
        office.hear("topic:t", value)
        assert office.owner() == "node"
    assert (await office.ask(Fetch(id=3, to=JOBS))).n == 1
    reply = await office.ask(Subscribe(id=1, to="topic:t"))
    assert reply.epoch is None


@on_loop
async def test_what_waits_for_a_queue_in_the_making_is_bounded_and_goes_on_in_order() -> None:
    definitions, key = Office().application.definitions, (APP, JOBS)
    done: list[int] = []
    for _ in range(2):
        done.clear()
        with definitions._change(key):
            for n in range(16):
                definitions.wait(key, partial(done.append, n), 1 << 20)
            with pytest.raises(Overload, match="16 ops wait"):
                definitions.wait(key, lambda: None, 1)
        definitions._changed(key)
        assert done == list(range(16))
        assert definitions.changing == {}
