"""Faults planted into replication, each of which the chaos must find (Q10).

| fault | what it is |
|---|---|
| no fencing | a master that is cut off goes on, and drops its replicas by itself |
| acknowledged alone | an ACK does not wait for the replicas |
| nothing is cut | a copy keeps what its master does not have |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from chappe.queues.replication.follower import Follower
from chappe.queues.replication.leading import Leading
from chappe.queues.replication.master import Master
from tests.queues.replication.test_chaos import check, replicated

# Within so many seeds each fault shows.
SEEDS = 40
PROOF = os.environ.get("CHAPPE_PROOF") == "full"


def no_fencing(stack: ExitStack) -> None:
    start, propose = Master.start, Master._propose

    def start_alone(self: Any) -> None:
        self._least = 1
        start(self)

    def agree_alone(self: Any, record: Any, now: float) -> None:
        if set(record.insync) < set(self.record.insync):
            self.agreed(record)
        else:
            propose(self, record, now)

    stack.enter_context(patch.object(Master, "start", start_alone))
    stack.enter_context(patch.object(Master, "_propose", agree_alone))
    stack.enter_context(patch.object(Master, "may_flush", lambda self: True))
    stack.enter_context(patch.object(Leading, "trouble", lambda self, now: None))
    stack.enter_context(patch.object(Master, "_is_over", lambda self, epoch: False))


def acknowledged_alone(stack: ExitStack) -> None:
    flushed_before = Master.flushed

    def flushed(self: Any, lsn: int) -> None:
        flushed_before(self, lsn)
        if self.ready:
            self.journal.acknowledge(lsn)

    stack.enter_context(patch.object(Master, "flushed", flushed))


def nothing_is_cut(stack: ExitStack) -> None:
    cut = Follower._cut

    def keep(self: Any, op: Any) -> None:
        op.lsn = max(op.lsn, self.end)
        cut(self, op)

    stack.enter_context(patch.object(Follower, "_cut", keep))


FAULTS: list[Callable[[ExitStack], None]] = [no_fencing, acknowledged_alone, nothing_is_cut]


@pytest.mark.parametrize("plant", FAULTS if PROOF else FAULTS[:2], ids=lambda one: one.__name__)
def test_a_planted_fault_is_found(plant: Callable[[ExitStack], None]) -> None:
    with ExitStack() as stack:
        plant(stack)
        for seed in range(SEEDS):
            try:
                replicated(seed, check)
            except (AssertionError, TimeoutError):
                # Lost, or the copies never agree again.
                return
    raise AssertionError(f"{plant.__name__} was not found in {SEEDS} seeds")
