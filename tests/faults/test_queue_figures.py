"""What a real node tells of its queues: a reply for each op of a long run, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec
import pytest

from chappe.wire.ops import Ack, Consume, Create, Fetch, Nack, Op, Register, Send
from chappe.wire.packed import encode_ops

from .peer import Peer, connect
from .process import Api, NodeProcess

# More than a frame of replies holds, twice.
RUN = 2_500
REPLIES_MAX = 1_024
CONFIG = f"""
[queue_limits]
unacked_max = {RUN}
"""


@pytest.fixture
def api(node: NodeProcess) -> Iterator[Api]:
    with closing(Api(node)) as api:
        yield api


def member(node: NodeProcess, name: str) -> Peer:
    peer = connect(node.addresses, "tcp", beats=True)
    assert peer.greet(f"user:{name}")["ok"]
    return peer


@pytest.fixture
def peer(node: NodeProcess) -> Iterator[Peer]:
    with member(node, "worker") as peer:
        yield peer


def send(to: str, text: str, number: int = 1, **fields: int) -> Send:
    return Send(id=number, to=to, data=msgspec.Raw(msgspec.json.encode(text)), **fields)


def take(peer: Peer, to: str, group: str, n: int) -> list[int]:
    """Fetch until so many came."""
    taken: list[int] = []
    while len(taken) < n:
        peer.say(Fetch(id=4, to=to, n=n - len(taken), group=group, wait_ms=20_000))
        while (op := peer.hear_op("message", "reply"))["op"] == "message":
            taken.append(op["message"])
        assert op["ok"], op
    return taken


def ask_all(peer: Peer, ops: Sequence[Op]) -> tuple[list[int], list[int]]:
    """Say ops in one frame: the requests that replies are to, and how many each frame had."""
    peer.say_body(encode_ops([peer.body(op) for op in ops]))
    requests: list[int] = []
    frames: list[int] = []
    while len(requests) < len(ops):
        replies = [op for op in peer.read() if op["op"] == "reply"]
        assert all(reply["ok"] for reply in replies)
        requests += [reply["id"] for reply in replies]
        frames.append(len(replies))
    return requests, frames


@pytest.mark.parametrize("volatile", [True, False], ids=["volatile", "durable"])
def test_a_long_run_is_answered_each_once_and_in_order(peer: Peer, volatile: bool) -> None:
    to = f"queue:run-{volatile}"
    assert peer.ask(Create(id=2, to=to, volatile=volatile))["ok"]
    sends = [send(to, "x", number) for number in range(10, 10 + RUN)]
    requests, frames = ask_all(peer, sends)
    assert requests == list(range(10, 10 + RUN))
    assert max(frames) == REPLIES_MAX
    peer.say(Consume(id=3, to=to, credit=RUN))
    ids = [peer.hear_op("message")["message"] for _ in range(RUN)]
    assert len(set(ids)) == RUN
    acks = [Ack(id=number, message=one) for number, one in enumerate(ids, 10)]
    requests, frames = ask_all(peer, acks)
    assert requests == list(range(10, 10 + RUN))
    assert max(frames) == REPLIES_MAX
    # Nothing more was on its way.
    assert peer.ask(Create(id=4, to=to))["id"] == 4


class Metrics:
    """What `/metrics` says of one queue."""

    def __init__(self, api: Api, queue: str) -> None:
        self._api = api
        self._labels = {"app": "default", "queue": queue}

    def __call__(self, name: str, **labels: str) -> float:
        return self._api.metric(f"queue_{name}", **self._labels, **labels)

    def group(self, name: str) -> tuple[float, float, float]:
        """How far a group is behind, what it has begun with, and who waits."""
        return (
            self("lag", group=name),
            self("in_hand", group=name),
            self("consumers_waiting", group=name),
        )


@pytest.mark.parametrize("volatile", [True, False], ids=["volatile", "durable"])
def test_metrics_say_what_is_in_a_queue_and_what_was_done(
    node: NodeProcess, api: Api, peer: Peer, volatile: bool
) -> None:  # Q9
    name = f"figures-{volatile}"
    to = f"queue:{name}"
    metrics = Metrics(api, name)
    made = Create(id=2, to=to, volatile=volatile, lanes=2, attempts_max=2, retry_s=0.0)
    assert peer.ask(made)["ok"]
    for group in ("fast", "slow"):
        assert peer.ask(Register(id=3, to=to, name="al", group=group))["ok"]
    for text in ("a", "bb", "ccc", "dddd", "eeeee"):
        assert peer.ask(send(to, text))["ok"]
    assert peer.ask(send(to, "later", delay_ms=600_000))["ok"]
    # Payloads are JSON: each has its two quotation marks.
    assert (metrics("depth"), metrics("bytes"), metrics("stored_total")) == (5, 15 + 10, 5)
    assert (metrics("delayed"), metrics("dead_letters")) == (1, 0)
    assert metrics.group("fast") == metrics.group("slow") == (5, 0, 0)

    with member(node, "fast") as fast, member(node, "slow") as slow:
        first = take(fast, to, "fast", 4)
        assert metrics.group("fast") == (5, 4, 0)
        for message in first[:3]:
            assert fast.ask(Ack(id=5, message=message))["ok"]
        assert metrics.group("fast") == (2, 1, 0)
        # The slowest group still has all of it to do.
        assert (metrics("depth"), metrics("bytes"), metrics.group("slow")) == (5, 25, (5, 0, 0))
        for message in take(slow, to, "slow", 5):
            assert slow.ask(Ack(id=6, message=message))["ok"]
        assert (metrics.group("slow"), metrics("depth")) == ((0, 0, 0), 2)
        # Handed back twice it is a dead letter, which nobody is to do any more.
        assert fast.ask(Nack(id=7, message=first[3]))["ok"]
        again = {*take(fast, to, "fast", 2)}
        assert first[3] in again
        assert metrics.group("fast") == (2, 2, 0)
        assert fast.ask(Nack(id=8, message=first[3]))["ok"]
        assert (metrics("dead_letters"), metrics("depth")) == (1, 1)
        assert metrics.group("fast") == (1, 1, 0)
        (last,) = again - {first[3]}
        assert fast.ask(Ack(id=9, message=last))["ok"]
        assert (metrics("depth"), metrics("bytes"), metrics.group("fast")) == (0, 0, (0, 0, 0))
        assert (metrics("stored_total"), metrics("delayed"), metrics("dead_letters")) == (5, 1, 1)
        slow.say(Fetch(id=2, to=to, n=1, group="slow", wait_ms=20_000))
        # Answered after what came before it.
        assert slow.ask(Create(id=3, to=to))["id"] == 3
        assert metrics.group("slow") == (0, 0, 1)
        assert peer.ask(send(to, "f"))["ok"]
        assert slow.hear_op("message")["data"] == b'"f"'
        assert metrics.group("slow") == (1, 1, 0)
        assert metrics.group("fast") == (1, 0, 0)
        assert metrics("stored_total") == 6
