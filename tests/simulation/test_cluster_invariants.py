"""The checks of clusters are tested too: each fault planted in one is caught within some seeds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from chappe.cluster.carriage import Carriage
from chappe.cluster.forwarding import Forwarding
from chappe.cluster.handover import Handover
from chappe.cluster.peer import Peer
from chappe.cluster.pending import Pending, PendingRun
from chappe.cluster.routes import Routes
from chappe.cluster.watching import Watching
from chappe.endpoints.history import History
from chappe.endpoints.presence import Presence
from chappe.endpoints.services import Services
from chappe.endpoints.topic import Topics
from chappe.hub.answer import SilentAnswer
from chappe.hub.fanout import FanOut
from chappe.queues.group import Group
from chappe.simulation import SimulationError
from chappe.wire.link import HEAD_BYTES, Frames
from tests.simulation.cluster_invariants import check
from tests.simulation.cluster_tables import differences
from tests.simulation.cluster_truth import APP
from tests.simulation.cluster_world import ClusterWorld

SEEDS = 30

Method = Callable[..., Any]


def never(original: Method) -> Method:
    return lambda *args, **options: None


def take_repeated_frames(original: Method) -> Method:
    def take(self: Frames, frame: Any) -> Any:
        taken = original(self, frame)
        return taken if taken is not None else (frame[HEAD_BYTES - 1], bytes(frame[HEAD_BYTES:]))

    return take


def answer_before_the_verdict(original: Method) -> Method:
    def forward(self: Forwarding, app: str, there: Any, message: Any, answer: Any, **how: Any):
        silent = SilentAnswer(self._hub, app)
        original(self, app, there, message, silent, **how)
        answer.ok()

    return forward


def call_failures_successes(original: Method) -> Method:
    return lambda self, error: self.answer.ok()


def relay_what_came_from_another_node(original: Method) -> Method:
    def begin(self: FanOut, app: Any, to: str, sessions: Any, **how: Any) -> None:
        if how.get("foreign") and how["promised"]:
            how["relays"] = app.routes.get(to, ())
        original(self, app, to, sessions, **how)

    return begin


def recover_from_one_further(original: Method) -> Method:
    def since(self: History, epoch: str | None, offset: int | None) -> Any:
        further = None if offset is None else min(offset + 1, self.offset)
        return original(self, epoch, further)

    return since


def recover_what_is_known(original: Method) -> Method:
    def since(self: History, epoch: str | None, offset: int | None) -> Any:
        _, missed = original(self, epoch, offset)
        return True, missed

    return since


def try_again_after_the_time(original: Method) -> Method:
    """A verdict that does not come in time says nothing: the message may be there."""

    def sweep(self: Forwarding, peers: list[Peer]) -> None:
        now = self._now()
        for peer in peers:
            for number, pending in list(peer.pending.items()):
                if pending.due <= now and isinstance(pending, PendingRun):
                    del peer.pending[number]
                    again = pending.one(number)
                    again.due = now + self._timeout_s
                    peer.forward(APP, pending._messages[number - pending.first], again)
        original(self, peers)

    return sweep


def answer_somebody_else(original: Method) -> Method:
    last: list[Any] = []

    def answer(self: Services, call: Any, requester: Any, reply: Any) -> None:
        if last and last[0].request == call.request:
            reply.data = last[1].data
        last[:] = [call, reply]
        original(self, call, requester, reply)

    return answer


def keep_what_is_done(original: Method) -> Method:
    return lambda self, item, now: self.give_back(item, now)


FAULTS: list[tuple[type, str, Callable[[Method], Method]]] = [
    (Routes, "drop", never),
    (Routes, "went", never),
    (Forwarding, "_forward", answer_before_the_verdict),
    (Forwarding, "sweep", try_again_after_the_time),
    (Pending, "fail", call_failures_successes),
    (Frames, "take", take_repeated_frames),
    (FanOut, "begin", relay_what_came_from_another_node),
    (Watching, "move", never),
    (Watching, "serve_unwatch", never),
    (Watching, "watched", never),
    (Topics, "tell_position", never),
    (History, "since", recover_from_one_further),
    (History, "since", recover_what_is_known),
    (Carriage, "move", never),
    (Carriage, "left", never),
    (Carriage, "say_again", never),
    (Handover, "give", never),
    (Group, "ack", keep_what_is_done),
    (Services, "_answer", answer_somebody_else),
    (Presence, "_tell", never),
]
# Every test run sees some of them caught, a proof all.
PLANTED = FAULTS if os.environ.get("CHAPPE_PROOF") == "full" else FAULTS[::3]


@pytest.mark.parametrize(("owner", "method", "fault"), PLANTED)
def test_a_planted_fault_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, fault: Callable[[Method], Method]
):
    monkeypatch.setattr(owner, method, fault(getattr(owner, method)))
    assert any(_is_caught(seed) for seed in range(SEEDS))


def _is_caught(seed: int) -> bool:
    world = ClusterWorld(seed)
    world.differences = differences
    try:
        check(world.run())
    except (AssertionError, SimulationError):
        return True
    return False
