"""The application layer, joined: what is carried to its home, and what is carried out here."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.endpoints.application import LINK
from chappe.endpoints.cluster import Alone
from chappe.endpoints.definition import QueueRecord
from chappe.endpoints.record import Record
from chappe.hub.session import Session
from chappe.message import Message
from chappe.queues.options import QueueOptions
from chappe.wire.ops import (
    Ack,
    Avatar,
    Consume,
    Create,
    Fetch,
    Nack,
    Op,
    Presence,
    Provide,
    Request,
    Respond,
    Unprovide,
)
from tests.cluster.hamlet import Hamlet
from tests.endpoints.test_definition import encode
from tests.hub.rig import Rig, send
from tests.loop import on_loop

APP = "default"


class Neighbour:
    """A node that takes nothing along."""

    name = "far"

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        raise AssertionError("nothing is relayed here")


class Neighbours(Alone):
    """A cluster in which what is called far lives elsewhere."""

    def __init__(self) -> None:
        self.far = Neighbour()
        self.carried: list[Op] = []
        self.stood: list[Op] = []
        self.given: set[str | int] = set()

    def home(self, app: str, address: str) -> Neighbour | None:
        return self.far if "far" in address else None

    def carry(self, home: Any, session: Session, op: Op) -> None:
        assert home is self.far
        self.carried.append(op)

    def stand(self, session: Session, op: Op) -> None:
        self.stood.append(op)

    def giver(self, session: Session, op: Ack | Nack | Respond) -> Neighbour | None:
        given = op.request if isinstance(op, Respond) else op.message
        return self.far if given in self.given else None

    def gave(self, session: Session) -> bool:
        return bool(self.given)


class Village(Rig):
    """A hub among others."""

    def __init__(self) -> None:
        super().__init__()
        self.neighbours = Neighbours()
        self.application.join(self.neighbours)


DATA = send("x", 1).data
AT_HOME = [
    Fetch(id=1, to="queue:far"),
    Consume(id=1, to="queue:far"),
    send("queue:far", 1, id=1),
    Presence(id=1, to="queue:far"),
    Presence(id=1, to="service:far"),
    Presence(id=1, to="topic:far"),
    Provide(id=1, to="service:far"),
    Unprovide(id=1, to="service:far"),
    Request(id=1, to="service:far", data=DATA),
]


@pytest.mark.parametrize("op", AT_HOME, ids=lambda op: f"{type(op).__name__} {op.to}")
@on_loop
async def test_what_lives_elsewhere_is_carried_there_and_not_answered_here(op: Any) -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.say(op)
    await village.tick()
    assert village.neighbours.carried == [op]
    assert alice.heard() == []
    lasting = isinstance(op, Consume | Provide | Unprovide)
    assert village.neighbours.stood == ([op] if lasting else [])


@on_loop
async def test_what_is_carried_out_for_another_node_is_not_carried_on() -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.session.edge = LINK
    village.neighbours.given = {7}
    for op in (Provide(id=1, to="service:far"), Ack(id=2, message=7)):
        alice.say(op)
    await village.tick()
    assert village.neighbours.carried == []
    assert [(reply.id, reply.ok) for reply in alice.heard()] == [(1, True), (2, False)]
    assert village.application.services.online(APP, "service:far")


@pytest.mark.parametrize(
    "op",
    [Ack(id=1, message=7), Nack(id=1, message="7"), Respond(id=1, request="far.7", data=DATA)],
    ids=lambda op: type(op).__name__,
)
@on_loop
async def test_an_answer_goes_to_the_node_that_gave_what_it_answers(op: Any) -> None:
    village = Village()
    village.neighbours.given = {7, "7", "far.7"}
    alice = village.endpoint("alice")
    alice.say(op)
    await village.tick()
    assert village.neighbours.carried == [op]
    assert alice.heard() == []
    village.neighbours.given.clear()
    alice.say(op)
    await village.tick()
    assert len(village.neighbours.carried) == 1
    assert alice.reply().error == "protocol"


@pytest.mark.parametrize("op", [Fetch, Consume, Provide, Request])
@on_loop
async def test_an_address_that_is_none_is_refused_before_it_travels(op: type[Any]) -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.say(op(id=1, to="far"), op(id=2, to="queue:far*"))
    await village.tick()
    assert [reply.error for reply in alice.heard()] == ["protocol"] * 2
    assert village.neighbours.carried == []
    assert village.neighbours.stood == []


@on_loop
async def test_what_stands_here_is_remembered_in_case_its_home_moves() -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.say(Create(to="queue:q", volatile=True))
    ops = [Consume(to="queue:q"), Provide(to="service:s"), Unprovide(to="service:s")]
    alice.say(*ops, Fetch(to="queue:q"))
    await village.tick()
    assert village.neighbours.stood == ops
    # What was refused does not stand.
    alice.say(Consume(id=1, to="queue:unmade"))
    await village.tick()
    assert village.neighbours.stood == ops


@on_loop
async def test_presence_of_queues_and_services_here() -> None:  # H8
    village = Village()
    alice, bob = village.endpoint("alice"), village.endpoint("bob")

    async def online(to: str) -> bool | None:
        alice.say(Presence(id=1, to=to), Presence(to=to))
        await village.tick()
        return alice.reply().online

    assert not await online("queue:q")
    assert not await online("service:s")
    bob.say(Create(to="queue:q", volatile=True), Provide(to="service:s"))
    await village.tick()
    assert await online("queue:q")
    assert await online("service:s")
    village.hub.lost(bob.session)
    assert await online("queue:q")
    assert not await online("service:s")


@pytest.mark.parametrize("op", [Fetch(id=1, to="queue:q"), send("queue:q", 1, id=1)])
@on_loop
async def test_a_queue_whose_owner_is_gone_is_taken_over_by_the_first_who_needs_it(
    op: Any,
) -> None:
    village = Village()
    record = QueueRecord("gone", QueueOptions(volatile=True))
    village.application.directory.merge([Record(APP, "queue:q", 5, encode(record), 0)])
    definitions = village.application.definitions
    assert definitions.owner_of(APP, "queue:q") == "gone"
    alice = village.endpoint("alice")
    alice.say(op)
    await village.tick()
    assert alice.reply().ok
    assert definitions.owner_of(APP, "queue:q") == "node"


@on_loop
async def test_an_avatar_of_an_app_that_nobody_uses_here_is_removed_in_peace() -> None:
    village = Village()
    directory = village.application.directory
    directory.put("other", "avatar:x", encode("user:bob"))
    directory.remove("other", "avatar:x")
    assert village.application.avatars.user_of("other", "avatar:x") is None
    assert "other" not in village.hub.apps


@on_loop
async def test_a_message_to_a_user_called_like_a_queue_is_not_the_queues() -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.say(Avatar(id=1, do="add", avatar="avatar:queue:q", user="user:alice"))
    alice.say(send(["queue:far", "user:alice"], 1, id=2))
    await village.tick()
    replies = {reply.id: reply for reply in alice.heard() if hasattr(reply, "ok")}
    assert replies[2].verdicts == {"queue:far": "protocol", "user:alice": "ok"}
    assert village.neighbours.carried == []


@pytest.mark.parametrize("stopped", [False, True])
@on_loop
async def test_stopped_no_deadline_passes_any_more(stopped: bool) -> None:
    hamlet = Hamlet("a")
    alice, bob = hamlet["a"].user("alice"), hamlet["a"].user("bob")
    alice.say(Create(to="queue:q", volatile=True), Fetch(id=1, to="queue:q", wait_ms=1000))
    bob.say(Provide(to="service:s"))
    alice.say(Request(id=2, to="service:s", data=DATA, timeout_ms=1000))
    hamlet.settle()
    if stopped:
        hamlet["a"].application.stop()
    hamlet.later(60)
    assert [reply.id for reply in alice.heard()] == ([] if stopped else [1, 2])


@on_loop
async def test_several_sends_wait_together_while_homes_move() -> None:
    village = Village()
    alice = village.endpoint("alice")
    alice.say(Create(to="queue:q", volatile=True))
    await village.tick()
    held: list[Any] = []
    village.neighbours.holding = True
    village.neighbours.hold = held.append  # type: ignore[attr-defined]
    alice.say(send("queue:q", 1, id=1), send("queue:q", 2, id=2))
    await village.tick()
    assert alice.heard() == []
    assert len(held) == 2
    village.neighbours.holding = False
    for again in held:
        again()
    await village.tick()
    assert [(op.id, op.ok) for op in alice.heard()] == [(1, True), (2, True)]
