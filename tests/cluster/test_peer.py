"""A peer: one frame per tick, numbers without a gap, and a bound on what waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cluster.peer import Peer
from chappe.cluster.pending import Pending
from chappe.errors import Overload, RequestError, Unreachable
from chappe.events.counting import CountingRecorder
from chappe.message import Message
from chappe.wire.node import (
    FORGET_REFUSED,
    Departed,
    Forward,
    FromHome,
    Missed,
    NodeOp,
    ToHome,
    decode_node_ops,
)
from tests.cluster.hamlet import HandLink


class Bell:
    """Keeps who woke."""

    def __init__(self) -> None:
        self.woken: list[Peer] = []

    def wake(self, peer: Peer) -> None:
        self.woken.append(peer)


class Verdict:
    """An answer that is kept."""

    def __init__(self) -> None:
        self.told: list[RequestError | int | None] = []

    def ok(self, nodes: int | None = None) -> None:
        self.told.append(nodes)

    def fail(self, error: RequestError) -> None:
        self.told.append(error)


class Run:
    """Awaits the verdicts of several messages."""

    due = 0.0
    first = 0

    def one(self, number: int) -> Pending:
        return Pending(Verdict(), 1, self.due)

    def take(self, number: int, nodes: int) -> None:
        raise AssertionError("no verdict has come")


class Road:
    """A peer with its link and its bell."""

    def __init__(self, bytes_max: int = 100_000, pending_max: int = 1000) -> None:
        self.downs: list[str] = []
        self.link = HandLink("b", self._down)
        self.bell = Bell()
        self.recorder = CountingRecorder()
        link: Any = self.link
        self.peer = Peer(
            link, self.bell, self.recorder, bytes_max=bytes_max, pending_max=pending_max
        )

    def _down(self, link: HandLink, reason: str) -> None:
        self.downs.append(reason)
        self.peer.up = False

    def forward(self, n: int, app: str = "default", payload: bytes = b"1") -> Pending:
        pending = Pending(Verdict(), 1, 0.0)
        self.peer.forward(app, message(n, payload), pending)
        return pending

    def publish(self, n: int, app: str = "default", *, forwarded: bool = False) -> Pending:
        pending = Pending(Verdict(), 1, 0.0, topic=True)
        self.peer.publish(app, message(n), pending, forwarded=forwarded)
        return pending

    def frames(self) -> list[list[Any]]:
        """What was written since the last call, frame by frame."""
        frames = [decode_node_ops(body) for body in self.link.frames]
        self.link.frames.clear()
        return frames

    def ops(self) -> list[Any]:
        return [op for frame in self.frames() for op in frame]


def message(n: int, payload: bytes = b"1") -> Message:
    return Message(n, "user:alice", "user:bob", 1, payload)


def numbered(ops: list[Any]) -> dict[int, Message]:
    """The messages that are to be answered, by their numbers."""
    found: dict[int, Message] = {}
    for op in ops:
        if isinstance(op, Forward | ToHome) and op.first > 0:
            for place, one in enumerate(op.messages):
                assert op.first + place not in found
                found[op.first + place] = one
    return found


def test_all_that_a_tick_brings_is_one_frame_in_order() -> None:
    road = Road()
    for n in range(3):
        road.forward(n)
    road.peer.tell(Departed("s"))
    road.forward(3)
    assert road.link.frames == road.link.frames.__class__()
    road.peer.flush()
    (ops,) = road.frames()
    assert [type(op) for op in ops] == [Forward, Departed, Forward]
    assert [[one.id for one in op.messages] for op in (ops[0], ops[2])] == [[0, 1, 2], [3]]
    assert (ops[0].first, ops[2].first) == (1, 4)
    # Woken by the first of the tick; nothing more is written, nothing more to come.
    assert road.bell.woken == [road.peer]
    road.peer.flush()
    assert road.frames() == []
    road.forward(4)
    assert road.bell.woken == [road.peer] * 2


WORDS = st.one_of(
    st.tuples(st.just("forward"), st.sampled_from(["shop", "chat"])),
    st.tuples(st.just("publish"), st.sampled_from(["shop", "chat"]), st.booleans()),
    st.tuples(st.just("relay"), st.sampled_from(["shop", "chat"]), st.booleans()),
    st.tuples(st.just("tell")),
    st.tuples(st.just("flush")),
)


@given(st.lists(WORDS, max_size=40))
def test_numbers_have_no_gap_and_each_stands_for_the_message_that_waits(
    words: list[Any],
) -> None:
    road = Road()
    said: list[tuple[Pending, int, str, type, bool]] = []
    relayed = 0
    for n, (kind, *rest) in enumerate(words):
        if kind == "forward":
            said.append((road.forward(n, rest[0]), n, rest[0], Forward, False))
        elif kind == "publish":
            pending = road.publish(n, rest[0], forwarded=rest[1])
            said.append((pending, n, rest[0], ToHome, rest[1]))
        elif kind == "relay":
            road.peer.relay(rest[0], [message(n)], promised=rest[1])
            relayed += 1
        elif kind == "tell":
            road.peer.tell(Departed(str(n)))
        else:
            road.peer.flush()
    road.peer.flush()
    ops = road.ops()
    found = numbered(ops)
    assert sorted(found) == list(range(1, len(said) + 1)) == sorted(road.peer.pending)
    by_message = {one.id: number for number, one in found.items()}
    for pending, n, app, kind, forwarded in said:
        assert road.peer.pending[by_message[n]] is pending
        (op,) = [op for op in ops if n in [one.id for one in getattr(op, "messages", ())]]
        assert (type(op), op.app, getattr(op, "forwarded", False)) == (kind, app, forwarded)
    # In the order in which they were said.
    ids = [one.id for op in ops for one in getattr(op, "messages", ())]
    assert ids == sorted(ids)
    assert len(ids) == len(said) + relayed


def test_a_relayed_run_is_a_promise_or_a_topics() -> None:
    road = Road()
    road.peer.relay("shop", [message(1), message(2)], promised=True)
    road.peer.relay("shop", [message(3)], promised=False)
    road.peer.flush()
    assert road.ops() == [
        Forward("shop", FORGET_REFUSED, [message(1), message(2)]),
        FromHome("shop", [message(3)]),
    ]


def test_runs_to_a_home_join_those_that_are_answered_alike_and_no_others() -> None:
    road = Road()
    asked = [Run(), Run()]
    for n, run in enumerate((None, None, *asked, None)):
        road.peer.publish_all("shop", [message(2 * n), message(2 * n + 1)], run)
    road.publish(10, "shop")
    road.publish(11, "shop", forwarded=True)
    road.peer.publish_all("shop", [message(12)], Run())
    road.peer.flush()
    assert [(op.first, len(op.messages), op.silent, op.forwarded) for op in road.ops()] == [
        (1, 4, True, False),
        (5, 4, False, False),
        (9, 2, True, False),
        (11, 1, False, False),
        (12, 1, False, True),
        (13, 1, False, False),
    ]
    assert [run.first for run in asked] == [5, 7]
    assert sorted(road.peer.pending) == [5, 6, 7, 8, 11, 12, 13]


def test_a_numbered_message_does_not_join_what_is_not_numbered() -> None:
    road = Road()
    road.peer.relay("shop", [message(1)], promised=True)
    road.forward(2, "shop")
    road.peer.flush()
    assert [(op.first, [m.id for m in op.messages]) for op in road.ops()] == [
        (FORGET_REFUSED, [1]),
        (1, [2]),
    ]


def test_while_the_link_is_paused_data_waits_up_to_the_bound_and_is_refused_above() -> None:
    road = Road(bytes_max=2_000)
    road.link.paused = True
    for n in range(5):
        road.forward(n, payload=b"x" * 400)
        road.peer.flush()
    with pytest.raises(Overload, match="full") as raised:
        road.forward(5, payload=b"x" * 400)
    assert not raised.value.outcome_unknown
    # One may pass the bound, as whoever comes next finds out.
    assert 2_000 < road.peer.waiting_bytes <= 2_000 + 500
    with pytest.raises(Overload, match="full"):
        road.publish(200)
    road.peer.relay("default", [message(201)], promised=True)
    road.peer.relay("default", [message(202)], promised=False)
    assert len(road.peer.pending) == 5
    assert road.frames() == []
    # Control is taken all the same, and nothing that was refused is written.
    road.peer.tell(Departed("s"))
    road.link.paused = False
    road.peer.flush()
    ops = road.ops()
    assert [m.id for m in numbered(ops).values()] == list(range(5))
    assert [type(op) for op in ops[:-1]] == [Forward, Departed]
    # What nobody waits for was left out, which is counted and told.
    assert ops[-1] == Missed("default", message(201).to, 2)
    assert road.recorder.drops == {"slow_link": 2}
    assert road.peer.waiting_bytes == 0
    assert road.downs == []
    road.forward(203)


def test_a_peer_for_whom_twice_the_bound_waits_is_reset_once() -> None:
    road = Road(bytes_max=1_000)
    road.link.paused = True
    said = 0
    while not road.downs:
        assert road.peer.waiting_bytes <= 2_000
        road.peer.tell(Departed("s"))
        # Not while somebody is still speaking, but at the end of the tick.
        assert road.downs == []
        road.peer.flush()
        said += 1
        assert said < 100
    assert said > 10
    assert "too much waits" in road.downs[0]
    for _ in range(30):
        road.peer.tell(Departed("s"))
        road.peer.flush()
    assert len(road.downs) == 1
    assert road.frames() == []


def test_a_peer_that_reads_is_not_reset_however_much_one_tick_brings() -> None:
    road = Road(bytes_max=1_000)
    for _ in range(100):
        road.peer.tell(Departed("s"))
    road.peer.flush()
    assert len(road.ops()) == 100
    assert road.downs == []


def test_a_peer_that_stops_reading_is_reset_though_it_was_woken_long_ago() -> None:
    road = Road(bytes_max=1_000)
    road.link.paused = True
    road.peer.tell(Departed("s"))
    road.peer.flush()
    road.bell.woken.clear()
    for _ in range(30):
        road.peer.tell(Departed("s"))
    assert road.peer in road.bell.woken
    road.peer.flush()
    assert len(road.downs) == 1


def test_to_a_peer_that_has_gone_nothing_is_sent() -> None:
    road = Road()
    road.forward(1)
    road.peer.up = False
    with pytest.raises(Overload, match="gone"):
        road.forward(2)
    with pytest.raises(Overload, match="gone"):
        road.publish(3)
    road.peer.relay("default", [message(4)], promised=True)
    road.peer.flush()
    assert road.frames() == []
    assert len(road.peer.pending) == 1
    assert [type(op) for op in road.peer.unsent()] == [Forward]
    assert road.peer.unsent() == []


def test_only_so_many_verdicts_are_awaited() -> None:
    road = Road(pending_max=3)
    for n in range(3):
        road.forward(n)
    with pytest.raises(Overload, match="verdicts"):
        road.forward(3)
    with pytest.raises(Overload, match="verdicts"):
        road.publish(4)
    del road.peer.pending[2]
    road.publish(5)
    road.peer.flush()
    assert {number: one.id for number, one in numbered(road.ops()).items()} == {
        1: 0,
        2: 1,
        3: 2,
        4: 5,
    }


def story(pages: int) -> Iterator[NodeOp]:
    for n in range(pages):
        yield Departed(str(n))


def test_a_long_story_is_told_in_parts_with_all_else_between() -> None:
    road = Road(bytes_max=8 * 32 * 1024)
    road.peer.trickle(story(7))
    road.peer.trickle(iter([Departed("end")]))
    told, frames = [], 0
    while road.bell.woken:
        road.bell.woken.clear()
        road.forward(100 + frames)
        road.peer.flush()
        (frame,) = road.frames()
        told += [op.session for op in frame if isinstance(op, Departed)]
        frames += 1
        # No more at once than a quarter of the bound takes, and one page above.
        assert sum(isinstance(op, Departed) for op in frame) <= 3
        assert sum(isinstance(op, Forward) for op in frame) == 1
        road.bell.woken = [one for one in road.bell.woken if one is road.peer][1:]
        assert frames < 20
    assert told == ["0", "1", "2", "3", "4", "5", "6", "end"]
    assert frames >= 3


def test_a_long_story_waits_for_a_peer_that_does_not_read() -> None:
    road = Road(bytes_max=8 * 32 * 1024)
    read = 0

    def watched() -> Iterator[NodeOp]:
        nonlocal read
        for op in story(50):
            read += 1
            yield op

    road.link.paused = True
    road.peer.trickle(watched())
    for _ in range(10):
        road.peer.flush()
    assert read <= 3
    assert road.frames() == []
    assert road.downs == []
    # It takes more: the rest comes, and there is room for data all along.
    road.link.paused = False
    for _ in range(60):
        road.peer.flush()
        road.forward(1)
    assert [op.session for op in road.ops() if isinstance(op, Departed)] == [
        str(n) for n in range(50)
    ]


def test_what_is_much_is_written_in_several_frames_in_order() -> None:
    road = Road(bytes_max=100 * 1024 * 1024)
    payload = b"x" * 200_000
    for n in range(20):
        road.forward(n, payload=payload)
    road.peer.flush()
    bodies = list(road.link.frames)
    assert 4 <= len(bodies) <= 6
    assert max(map(len, bodies)) < 2 * 1024 * 1024
    found = numbered(road.ops())
    assert [(number, one.id) for number, one in found.items()] == [(n + 1, n) for n in range(20)]
    assert road.peer.waiting_bytes == 0


def test_what_fills_frames_while_paused_is_counted_until_it_is_written() -> None:
    road = Road(bytes_max=3 * 1024 * 1024)
    road.link.paused = True
    for n in range(16):
        road.forward(n, payload=b"x" * 200_000)
    with pytest.raises(Overload, match="full"):
        road.forward(16)
    road.peer.flush()
    assert road.frames() == []
    road.link.paused = False
    road.peer.flush()
    assert len(numbered(road.ops())) == 16


def test_of_several_nodes_one_that_takes_it_is_enough_and_the_last_refusal_counts() -> None:
    answer = Verdict()
    pending = Pending(answer, 3, 0.0)
    pending.fail(Unreachable("one"))
    pending.fail(Unreachable("two"))
    assert pending.open
    assert answer.told == []
    last = Overload("three")
    pending.fail(last)
    assert answer.told == [last]
    assert not pending.open


def test_a_peer_says_whether_it_is_there() -> None:
    road = Road()
    assert repr(road.peer) == "<Peer b>"
    road.peer.up = False
    assert repr(road.peer) == "<Peer b (down)>"
