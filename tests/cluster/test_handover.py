"""Handover: a queue that moves takes its messages along, whoever was away (H17)."""

from __future__ import annotations

import msgspec

from chappe.cluster.handover import Handover
from chappe.errors import Unreachable
from chappe.queues.record import encode_record
from chappe.wire.node import Handed
from chappe.wire.ops import Create, Delete, Fetch
from tests.cluster.hamlet import APP, Hamlet, home_among, moving
from tests.hub.rig import Endpoint, send
from tests.loop import on_loop


def made(hamlet: Hamlet, owner: str, queue: str, messages: int = 0, **options: int) -> None:
    """Make a queue on a node, and put something into it."""
    admin = hamlet[owner].user("admin")
    assert hamlet.ask(admin, Create(id=1, to=queue, volatile=True, **options)).ok
    for n in range(messages):
        assert hamlet.ask(admin, send(queue, n, id=n)).ok


def taken(hamlet: Hamlet, who: Endpoint, queue: str) -> list[int]:
    """What a fetch brings."""
    who.say(Fetch(id=1, to=queue, n=100))
    hamlet.settle()
    return who.got()


def owners(hamlet: Hamlet, names: str, queue: str) -> list[str | None]:
    return [hamlet[name].application.definitions.owner_of(APP, queue) for name in names]


@on_loop
async def test_a_queue_whose_owner_is_gone_goes_on_empty_and_the_owner_brings_what_it_held() -> (
    None
):
    hamlet = Hamlet(*"abc")
    queue = moving("queue", ("bc", "b"))
    made(hamlet, "a", queue, 3)
    assert owners(hamlet, "abc", queue) == ["a"] * 3
    for name in "bc":
        hamlet.cut("a", name)
    hamlet.settle()
    worker = hamlet["c"].user("worker")
    assert taken(hamlet, worker, queue) == []
    assert owners(hamlet, "abc", queue) == ["a", "b", "b"]
    # Nobody knows of the other yet; then the one who was away comes back, to c first.
    hamlet.link("a", "c")
    hamlet.settle()
    assert hamlet["a"].cluster.handover.waiting == 3
    assert owners(hamlet, "a", queue) == ["b"]
    hamlet.link("a", "b")
    hamlet.settle()
    assert hamlet["a"].cluster.handover.waiting == 0
    assert taken(hamlet, worker, queue) == [0, 1, 2]
    assert hamlet["a"].recorder.drops["queue_moved"] == 0


@on_loop
async def test_a_node_that_leaves_lets_its_queues_live_on_elsewhere() -> None:
    hamlet = Hamlet(*"abc")
    queues = [moving("queue", ("bc", home)) for home in "bc"]
    for queue in queues:
        made(hamlet, "a", queue, 3)
    hamlet["a"].cluster.leave()
    hamlet.settle()
    for queue in queues:
        home = home_among("bc", queue)
        assert owners(hamlet, "abc", queue) == [home] * 3
        assert taken(hamlet, hamlet["c"].user(f"w-{home}"), queue) == [0, 1, 2]


@on_loop
async def test_what_there_is_no_room_for_is_counted() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    queue = "queue:jobs"
    made(hamlet, "b", queue, 1, depth_max=2)
    broker = b.application.queues.volatile
    message = broker.give_up((APP, queue), Unreachable("moved"))[0]
    made(hamlet, "b", queue, 1, depth_max=3)
    copies = [msgspec.structs.replace(message, id=message.id + n) for n in range(4)]
    hamlet.forge("a", "b", Handed(APP, [(queue, encode_record(one)) for one in copies]))
    hamlet.settle()
    assert b.recorder.drops["queue_moved"] == 2
    assert len(taken(hamlet, b.user("worker"), queue)) == 3
    # Of a queue that was removed meanwhile nothing is kept.
    hamlet.ask(b.user("admin"), Delete(id=2, to=queue))
    before = a.recorder.drops["queue_moved"]
    a.cluster.handover.give(APP, [(queue, message)] * 3)
    assert a.recorder.drops["queue_moved"] == before + 3
    assert a.cluster.handover.waiting == 0


@on_loop
async def test_what_is_handed_over_goes_in_parts_that_fit_into_frames() -> None:
    hamlet = Hamlet("a", "b")
    queue = "queue:jobs"
    made(hamlet, "a", queue, 250)
    admin = hamlet["a"].user("admin")
    for n in range(10):
        admin.say(send(queue, "x" * 200_000, id=n))
    hamlet.settle()
    hamlet.hold("a", "b")
    handover: Handover = hamlet["a"].cluster.handover
    handover.leave()
    hamlet.tick()
    sizes = [
        (len(op.messages), sum(len(record) for _, record in op.messages))
        for op in hamlet.said("a", "b")
        if isinstance(op, Handed)
    ]
    assert sum(count for count, _ in sizes) == 260
    assert max(count for count, _ in sizes) == 100
    assert max(size for _, size in sizes) < 600_000
    hamlet.release("a", "b")
    hamlet.settle()
    worker = hamlet["b"].user("worker")
    assert taken(hamlet, worker, queue) == list(range(100))
