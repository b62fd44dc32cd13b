"""A reader that never reads costs a bounded amount of memory, and nobody else anything."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec
import pytest

import chappe
from chappe.wire.ops import Ping, Send, Subscribe

from .conftest import StartNode, Witness
from .peer import FORMS, Peer, connect
from .process import Api, NodeProcess
from .stuck import (
    ids_of,
    numbers_of,
    publish_numbers,
    read_numbers,
    send_until_full,
    stuck_reader,
    subscriber,
)

FULL = os.environ.get("CHAPPE_PROOF") == "full"
MESSAGES = 64_000 if FULL else 7_500
SIZE = 4000
OUTBOX = 256 * 1024
CONFIG = f"""
[hub]
heartbeat_s = 60.0
outbox_bytes_max = {OUTBOX}
[limits]
message_bytes_max = 65536
"""
# Published altogether: 30 MB, or 256 MB in the full proof. A node that kept it would show it.
GROWTH_BYTES_MAX = 24 << 20


def policy_node(start_node: StartNode, policy: str) -> NodeProcess:
    return start_node(CONFIG.replace("[limits]", f'topic_policy = "{policy}"\n[limits]'))


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_stuck_readers_lose_what_is_counted_and_others_get_everything(
    start_node: StartNode, policy: str
) -> None:
    node = policy_node(start_node, policy)
    api = Api(node)
    stuck = [stuck_reader(node, form, f"user:stuck-{form}", "topic:flood") for form in FORMS]
    readers = [subscriber(node, form, f"user:reader-{form}", "topic:flood") for form in FORMS]
    before = node.resident_bytes()
    publish_numbers(node, "topic:flood", MESSAGES, SIZE, readers)
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    assert api.metric("outbox_held_sessions") == len(FORMS)
    assert 0 < api.metric("outbox_held_bytes") <= len(FORMS) * OUTBOX
    counted = api.metric("drops_total", reason="slow_consumer")
    assert sum(expect_account(peer, policy) for peer in stuck) == counted
    assert api.metric("outbox_held_bytes") == 0
    for peer in (*stuck, *readers):
        peer.sock.close()
    api.close()


def expect_account(peer: Peer, policy: str) -> int:
    """Read what was kept for a reader: with what was dropped it makes up all there was."""
    numbers, notices = read_numbers(peer, MESSAGES)
    assert numbers == sorted(set(numbers))
    if policy == "drop_oldest":
        # Each notice stands where the messages are missing.
        missing = 0
        for place, count in notices:
            missing += count
            assert numbers[place] == place + missing
    # It is a session like any other again.
    peer.say(Ping(id=9))
    assert peer.hear() == {"op": "pong", "id": 9}
    return sum(count for _, count in notices)


def test_stuck_readers_are_closed_where_nothing_may_be_dropped(start_node: StartNode) -> None:
    node = policy_node(start_node, "close")
    api = Api(node)
    stuck = [stuck_reader(node, form, f"user:stuck-{form}", "topic:flood") for form in FORMS]
    readers = [subscriber(node, form, f"user:reader-{form}", "topic:flood") for form in FORMS]
    publish_numbers(node, "topic:flood", MESSAGES, SIZE, readers)
    assert api.metric("sessions_closed_total", code="4006") == len(FORMS)
    assert api.metric("drops_total", reason="slow_consumer") == 0
    for peer in stuck:
        # What it was given is whole and in order, and then there is an end.
        *messages, end = peer
        assert end["op"] == "closed"
        assert numbers_of(messages) == list(range(len(messages)))
        assert len(messages) < MESSAGES
    for peer in (*stuck, *readers):
        peer.sock.close()
    api.close()


@pytest.mark.parametrize("form", FORMS)
def test_what_was_answered_ok_is_never_dropped(
    node: NodeProcess, witness: Witness, form: str
) -> None:
    with stuck_reader(node, form, "user:stuck", "topic:noise") as stuck:
        accepted = send_until_full(witness, "user:stuck", "x" * 8000)
        assert len(accepted) > 0
        # What comes from a topic makes room for a promise, never the other way round.
        publish_numbers(node, "topic:noise", 100, SIZE)
        with pytest.raises(chappe.Overload, match="outbox of user:stuck is full"):
            witness.client.send("user:stuck", "x" * 8000)
        witness.notices_nothing()
        received: list[str] = []
        dropped = 0
        while len(received) < len(accepted) or dropped < 100:
            op = stuck.hear()
            dropped += op["n"] if op["op"] == "dropped" else 0
            if op["op"] == "message" and op["to"] == "user:stuck":
                received.append(str(op["message"]))
        assert received == accepted
        assert witness.client.send("user:stuck", "room again")


def test_promises_take_the_place_of_what_may_be_dropped(
    node: NodeProcess, witness: Witness
) -> None:
    with stuck_reader(node, "tcp", "user:stuck", "topic:noise") as stuck:
        publish_numbers(node, "topic:noise", 4000, SIZE)
        accepted = [witness.client.send("user:stuck", n) for n in range(1000)]
        heard = read_until(stuck, accepted[-1])
        assert [str(op["message"]) for op in heard if op.get("to") == "user:stuck"] == accepted
        assert any(op["op"] == "dropped" for op in heard)


def test_pipelined_sends_to_a_stuck_reader_are_kept_or_refused(node: NodeProcess) -> None:
    with stuck_reader(node, "tcp", "user:stuck") as stuck, connect(node.addresses, "text") as eager:
        assert eager.greet("user:eager")["ok"]
        data = msgspec.Raw(b'"' + b"x" * 8000 + b'"')
        replies: list[dict[str, Any]] = []
        while not replies or replies[-1]["ok"]:
            eager.say(*(Send(id=n, to="user:stuck", data=data) for n in range(50)))
            replies += [eager.hear() for _ in range(50)]
        assert {r["error"] for r in replies if not r["ok"]} == {"overload"}
        accepted = [r["message"] for r in replies if r["ok"]]
        heard = read_until(stuck, accepted[-1])
        assert [str(op["message"]) for op in heard] == accepted


def test_the_largest_outbox_goes_first_when_the_node_is_full(start_node: StartNode) -> None:
    node = start_node(CONFIG.replace("[limits]", f"outboxes_bytes_max = {2 * OUTBOX}\n[limits]"))
    api, witness = Api(node), Witness(node)
    with witness.client:
        first, second, third = (stuck_reader(node, "tcp", f"user:s{n}") for n in range(3))
        # Small messages fill an outbox to the brim; large ones leave a gap.
        send_until_full(witness, "user:s0", "x" * 8000)
        send_until_full(witness, "user:s0", "x" * 100)
        kept = send_until_full(witness, "user:s1", "x" * 60_000)
        held = api.held_bytes()
        assert held["user:s0"] > held["user:s1"] > OUTBOX // 2
        while witness.client.presence("user:s0"):
            kept_by_third = witness.client.send("user:s2", "x" * 8000)
        assert api.metric("sessions_closed_total", code="4007") == 1
        assert ids_of(read_until(second, kept[-1])) == kept
        assert read_until(third, kept_by_third)
        *_, end = first
        assert end["op"] == "closed"
        witness.notices_nothing()
    for peer in (first, second, third):
        peer.sock.close()
    api.close()


def test_reader_that_asks_and_never_reads_is_closed(node: NodeProcess, witness: Witness) -> None:
    before = node.resident_bytes()
    with stuck_reader(node, "text", "user:asker") as asker, contextlib.suppress(ConnectionError):
        asker.sock.settimeout(60)
        while True:
            asker.say(*(Subscribe(id=n, to="topic:a") for n in range(1000)))
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    assert not witness.client.presence("user:asker")
    witness.notices_nothing()


def read_until(peer: Peer, message: str) -> list[dict[str, Any]]:
    """What is heard up to a message, that included."""
    heard = [peer.hear()]
    while str(heard[-1].get("message")) != message:
        assert heard[-1]["op"] != "closed"
        heard.append(peer.hear())
    return heard
