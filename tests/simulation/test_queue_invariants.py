"""The checks of queues are tested too: each fault planted in a broker is caught within some seeds.

What is planted, and within how many seeds it was noticed when it was planted first (queue_faults.py
says within how many it has to be):

| fault | seeds | | fault | seeds |
|---|---|---|---|---|
| acknowledged before the flush | 1 | | no dedup | 1 |
| answered before the commit | 1 | | dedup forgotten at a start | 1 |
| no checksum | 14 | | order of keys ignored | 1 |
| torn tail not cut | 6 | | taken back and delivered | 1 |
| retried into success | 12 | | taken back too late | 2 |
| trimmed too early | 1 | | delayed lost at a start | 1 |
| one try more | 1 | | snapshot without open entries | 1 |
| tries without end after a crash | 2 | | dead letter dropped | 1 |
| attempts not written | 1 | | filter ignored | 1 |
| mark not ahead | 1 | | handed back is done | 1 |
| cursor not written | 1 | | | |
"""

from __future__ import annotations

import os

import pytest

from chappe.errors import ChappeError
from tests.simulation.queue_faults import FAULTS, Fault
from tests.simulation.queue_invariants import check
from tests.simulation.queue_world import QueueWorld

# Every test run sees some of them caught, a proof all.
PLANTED = FAULTS if os.environ.get("CHAPPE_PROOF") == "full" else FAULTS[::5]


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(monkeypatch: pytest.MonkeyPatch, fault: Fault):
    monkeypatch.setattr(fault.owner, fault.method, fault.plant(getattr(fault.owner, fault.method)))
    assert any(is_caught(seed) for seed in range(fault.seeds))


def is_caught(seed: int) -> bool:
    """Whether a run breaks a promise, cannot go on, or finds its own log unreadable."""
    try:
        check(QueueWorld(seed).run())
    except (AssertionError, ChappeError):
        return True
    return False
