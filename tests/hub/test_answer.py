"""Answers that come later, told to whoever asked, once and in their own form."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from chappe.errors import ErrorCode, Forbidden, Overload, Unreachable
from chappe.hub.answer import JointAnswer, RequestAnswer, SilentAnswer
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from tests.hub.rig import Rig
from tests.loop import on_loop


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_request_is_answered_in_its_sessions_own_form(encoding: Encoding) -> None:
    rig = Rig()
    alice = rig.endpoint("alice", encoding)
    RequestAnswer(rig.hub, alice.session, 1, 5_000_000_000).ok()
    RequestAnswer(rig.hub, alice.session, 2, 5_000_000_001).ok(3)
    RequestAnswer(rig.hub, alice.session, 3, 9).fail(Overload("slow", outcome_unknown=True))
    RequestAnswer(rig.hub, alice.session, 4, 9).fail(Forbidden("no"))
    await rig.tick()
    one, two, three, four = alice.heard()
    shown = str if encoding is JSON_ITEMS else int
    assert (one.id, one.ok, one.message, one.nodes) == (1, True, shown(5_000_000_000), None)
    assert (two.id, two.ok, two.message, two.nodes) == (2, True, shown(5_000_000_001), 3)
    assert (three.id, three.error, three.reason, three.outcome) == (
        3, "overload", "slow", "unknown",
    )  # fmt: skip
    assert (four.id, four.error, four.outcome) == (4, "forbidden", None)


@on_loop
async def test_no_nodes_is_a_number_too() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    RequestAnswer(rig.hub, alice.session, 1, 5).ok(0)
    await rig.tick()
    assert alice.reply().nodes == 0


@on_loop
async def test_who_has_left_is_told_nothing_and_nothing_breaks() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    answer = RequestAnswer(rig.hub, alice.session, 1, 5)
    joint = JointAnswer(rig.hub, alice.session, 2, 6, ["user:x"])
    rig.hub.lost(alice.session)
    answer.ok()
    answer.fail(Unreachable("x"))
    joint.of("user:x").ok()
    await rig.tick()
    assert alice.heard() == []


@on_loop
async def test_what_nobody_waits_for_is_counted_only() -> None:
    rig = Rig()
    recorder: Any = rig.recorder
    answer = SilentAnswer(rig.hub, "shop")
    answer.ok()
    answer.ok(4)
    assert not recorder.refusals
    answer.fail(Unreachable("x"))
    assert recorder.refusals == {ErrorCode.UNREACHABLE: 1}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@on_loop
async def test_a_list_is_answered_once_all_are_known_whatever_comes_first(
    order: tuple[int, ...],
) -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    receivers = ["user:x", "user:y", "user:z"]
    joint = JointAnswer(rig.hub, alice.session, 7, 123, receivers)
    verdicts: list[Any] = [
        lambda: joint.of("user:x").ok(),
        lambda: joint.of("user:y").fail(Overload("full", outcome_unknown=True)),
        lambda: joint.of("user:z").fail(Unreachable("gone")),
    ]
    for n in order[:2]:
        verdicts[n]()
    await rig.tick()
    assert alice.heard() == []
    verdicts[order[2]]()
    await rig.tick()
    reply = alice.reply()
    assert (reply.id, reply.ok, reply.message) == (7, False, 123)
    assert reply.verdicts == {"user:x": "ok", "user:y": "overload", "user:z": "unreachable"}
    # The first in the list that failed, whoever's verdict came first.
    assert (reply.error, reply.reason, reply.outcome) == ("overload", "full", "unknown")
    recorder: Any = rig.recorder
    assert recorder.refusals.total() == 2


@pytest.mark.parametrize("late", [False, True])
@on_loop
async def test_who_is_the_same_as_one_before_has_its_verdict(late: bool) -> None:  # H14
    rig = Rig()
    alice = rig.endpoint("alice")
    joint = JointAnswer(rig.hub, alice.session, 7, 123, ["avatar:a", "user:x", "avatar:b"])
    if not late:
        joint.of("avatar:a").fail(Unreachable("gone"))
    joint.follow("user:x", "avatar:a")
    joint.follow("avatar:b", "avatar:a")
    if late:
        joint.of("avatar:a").fail(Unreachable("gone"))
    await rig.tick()
    reply = alice.reply()
    assert reply.verdicts == dict.fromkeys(("avatar:a", "user:x", "avatar:b"), "unreachable")
    assert (reply.ok, reply.outcome) == (False, None)
    recorder: Any = rig.recorder
    assert recorder.refusals.total() == 1


@on_loop
async def test_a_list_that_all_took_is_ok_and_without_an_id_nobody_is_told() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    for request in (8, None):
        joint = JointAnswer(rig.hub, alice.session, request, 123, ["user:x", "user:y"])
        joint.of("user:x").ok()
        joint.of("user:y").ok()
    await rig.tick()
    reply = alice.reply()
    assert (reply.id, reply.ok, reply.error) == (8, True, None)
    assert reply.verdicts == {"user:x": "ok", "user:y": "ok"}
