"""Forwarding: runs of messages to users on another node, and the verdicts that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chappe.cluster.cluster import Cluster
from chappe.hub.options import HubOptions
from chappe.wire.node import Forward, decode_node_ops
from chappe.wire.ops import Delivery, Reply, Subscribe
from tests.hub.rig import Endpoint, Rig, payload_of, publish, send


class Wire:
    """One end of a link whose other end is in the same process; it can be held, and cut."""

    paused = False

    def __init__(self, name: str, here: Cluster) -> None:
        self.name = name
        self.here = here
        self.other: Wire
        self.held: list[bytes] | None = None
        self.written: list[bytes] = []

    def write(self, body: bytes) -> None:
        self.written.append(body)
        if self.held is not None:
            self.held.append(body)
        else:
            self.other.here.received(self.other, [body])  # type: ignore[arg-type]

    def reset(self, reason: str) -> None:
        raise AssertionError(reason)


class Two:
    """Two nodes with one link: Alice is on the first, Bob on the second."""

    def __init__(self, options: HubOptions | None = None) -> None:
        self.rigs = [Rig(options=options), Rig(options=options)]
        loop = asyncio.get_running_loop()
        self.clusters = [
            Cluster(hub=rig.hub, application=rig.application, loop=loop, name=name)
            for rig, name in zip(self.rigs, ("one", "two"), strict=True)
        ]
        self.wires = [Wire("two", self.clusters[0]), Wire("one", self.clusters[1])]
        self.wires[0].other, self.wires[1].other = self.wires[1], self.wires[0]
        for cluster in self.clusters:
            cluster.start()
        for wire in self.wires:
            wire.here.link_up(wire)  # type: ignore[arg-type]
        self.alice = self.rigs[0].endpoint("alice")
        self.bob = self.rigs[1].endpoint("bob")

    async def settle(self) -> None:
        while any(rig.hub.ticking for rig in self.rigs):
            for rig in self.rigs:
                await rig.tick()

    def stop(self) -> None:
        for cluster in self.clusters:
            cluster.stop()

    def cut(self) -> None:
        for wire in self.wires:
            wire.here.link_down(wire, "cut")  # type: ignore[arg-type]


def run(test: Callable[[Two], Awaitable[None]], options: HubOptions | None = None) -> None:
    async def main() -> None:
        two = Two(options)
        try:
            await two.settle()
            await test(two)
        finally:
            two.stop()

    asyncio.run(main())


def replies(endpoint: Endpoint) -> list[tuple[int, bool]]:
    return [(op.id, op.ok) for op in endpoint.heard() if isinstance(op, Reply)]


def forwards(wire: Wire) -> list[list[Any]]:
    """The payloads of each forward that went over a link."""
    ops = [op for body in wire.written for op in decode_node_ops(body)]
    return [[m.payload for m in op.messages] for op in ops if isinstance(op, Forward)]


def test_what_one_read_brings_for_a_user_elsewhere_travels_as_one_forward() -> None:
    async def test(two: Two) -> None:
        two.wires[0].written.clear()
        two.alice.say(*[send("user:bob", n) for n in range(50)])
        await two.settle()
        assert two.bob.got() == list(range(50))
        assert [len(one) for one in forwards(two.wires[0])] == [50]

    run(test)


def test_each_request_of_a_pipeline_is_answered_once_the_other_node_has_taken_it() -> None:
    async def test(two: Two) -> None:  # H5
        two.wires[0].held = []
        two.alice.say(*[send("user:bob", n, id=n) for n in range(1, 51)])
        await two.settle()
        assert replies(two.alice) == []
        held, two.wires[0].held = two.wires[0].held, None
        for body in held:
            two.wires[1].here.received(two.wires[1], [body])  # type: ignore[arg-type]
        await two.settle()
        assert two.bob.got() == list(range(1, 51))
        assert replies(two.alice) == [(n, True) for n in range(1, 51)]
        assert two.clusters[0].peers[0].pending == {}

    run(test)


def test_messages_with_and_without_a_request_arrive_in_the_order_they_were_sent() -> None:
    async def test(two: Two) -> None:
        carol = two.rigs[1].endpoint("carol")
        await two.settle()
        ops = [
            send(f"user:{to}", n, id=n + 1 if asks else None)
            for n, (to, asks) in enumerate(
                [("bob", 0), ("bob", 1), ("bob", 1), ("carol", 1), ("bob", 0), ("carol", 0)] * 5
            )
        ]
        two.alice.say(*ops)
        await two.settle()
        assert two.bob.got() == [n for n in range(30) if n % 6 in (0, 1, 2, 4)]
        assert carol.got() == [n for n in range(30) if n % 6 in (3, 5)]
        assert replies(two.alice) == [(n + 1, True) for n in range(30) if n % 6 in (1, 2, 3)]

    run(test)


def test_a_message_to_a_list_does_not_overtake_those_to_one_of_it_before() -> None:
    async def test(two: Two) -> None:
        carol = two.rigs[1].endpoint("carol")
        await two.settle()
        two.alice.say(send("user:bob", 1), send(["user:carol", "user:bob"], 2), send("user:bob", 3))
        await two.settle()
        assert two.bob.got() == [1, 2, 3]
        assert carol.got() == [2]

    run(test)


def test_two_sessions_that_write_to_one_user_elsewhere_each_get_their_own_answers() -> None:
    async def test(two: Two) -> None:
        carol = two.rigs[0].endpoint("carol")
        await two.settle()
        two.alice.say(send("user:bob", "a", id=7))
        carol.say(send("user:bob", "c", id=9))
        two.alice.say(send("user:bob", "b", id=8))
        await two.settle()
        assert two.bob.got() == ["a", "c", "b"]
        assert replies(two.alice) == [(7, True), (8, True)]
        assert replies(carol) == [(9, True)]

    run(test)


def test_a_message_to_a_topic_does_not_overtake_those_to_a_user_before_it() -> None:
    async def test(two: Two) -> None:
        topic = next(
            f"topic:{n}" for n in range(99) if two.clusters[1].is_home("default", f"topic:{n}")
        )
        two.bob.say(Subscribe(to=topic))
        two.alice.say(send("user:bob", 1), publish(topic, 2), send("user:bob", 3))
        await two.settle()
        assert two.bob.got() == [1, 2, 3]

    run(test)


@pytest.mark.parametrize("asks", [True, False])
def test_whoever_has_left_is_not_answered_ok_for(asks: bool) -> None:
    async def test(two: Two) -> None:  # H11
        two.wires[1].held = []  # the first node does not hear that Bob has left
        two.rigs[1].hub.lost(two.bob.session)
        await two.settle()
        two.alice.say(*[send("user:bob", n, id=n if asks else None) for n in (1, 2, 3)])
        await two.settle()
        while two.wires[1].held:
            body = two.wires[1].held.pop(0)
            two.wires[0].here.received(two.wires[0], [body])  # type: ignore[arg-type]
            await two.settle()
        answers = [op for op in two.alice.heard() if isinstance(op, Reply)]
        assert [(a.id, a.error) for a in answers] == (
            [(n, "unreachable") for n in (1, 2, 3)] if asks else []
        )
        assert two.rigs[0].recorder.refusals["unreachable"] == 3  # type: ignore[attr-defined]

    run(test)


def test_a_run_that_fits_in_part_is_taken_in_part_and_the_rest_refused() -> None:
    async def test(two: Two) -> None:  # what was answered ok is there, what was not is not
        two.rigs[1].hub.pause(two.bob.session)
        two.alice.say(*[send("user:bob", "x" * 4000, id=n) for n in range(1, 11)])
        await two.settle()
        answers = [op for op in two.alice.heard() if isinstance(op, Reply)]
        taken = [a.id for a in answers if a.ok]
        assert taken == list(range(1, len(taken) + 1))
        assert 0 < len(taken) < 10
        assert [a.error for a in answers if not a.ok] == ["overload"] * (10 - len(taken))
        two.rigs[1].hub.resume(two.bob.session)
        await two.settle()
        deliveries = [op for op in two.bob.heard() if isinstance(op, Delivery)]
        assert [len(payload_of(op)) for op in deliveries] == [4000] * len(taken)

    run(test, HubOptions(outbox_bytes_max=16_384))


def test_a_link_that_goes_with_requests_on_it_leaves_their_outcome_unknown() -> None:
    async def test(two: Two) -> None:
        two.wires[0].held = []
        two.alice.say(*[send("user:bob", n, id=n) for n in (1, 2, 3)])
        await two.settle()
        two.cut()
        await two.settle()
        answers = [op for op in two.alice.heard() if isinstance(op, Reply)]
        assert [(a.id, a.error, a.outcome) for a in answers] == [
            (n, "overload", "unknown") for n in (1, 2, 3)
        ]

    run(test)


def test_what_was_gathered_when_the_link_went_is_surely_not_taken() -> None:
    async def test(two: Two) -> None:
        two.alice.say(send("user:bob", 1, id=1))
        two.alice.say(send("user:bob", 2, id=2))
        two.cut()  # within the tick: nothing was written
        await two.settle()
        answers = [op for op in two.alice.heard() if isinstance(op, Reply)]
        assert [(a.id, a.error, a.outcome) for a in answers] == [
            (n, "unreachable", None) for n in (1, 2)
        ]

    run(test)
