"""Journals on disks that crash, from seeds (Q11): whole records are kept, acknowledged ones all."""

from __future__ import annotations

from collections import Counter

import pytest

from chappe.simulation import seeds
from tests.simulation.journal_world import JournalWorld
from tests.simulation.proof import FULL

SEEDS = 1000 if FULL else 60
GROUPS = 20 if FULL else 4


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_journal_keeps_what_it_acknowledged_for_every_seed(group: int):
    for seed in seeds(SEEDS)[group::GROUPS]:
        JournalWorld(seed).run()


def test_the_workload_does_what_it_is_for():
    worlds = [JournalWorld(seed).run() for seed in range(12)]
    events = Counter(line.split(" ")[1] for world in worlds for line in world.trace.lines)
    for event in ("disk.crash", "disk.kill", "disk.eio", "disk.truncate", "disk.remove"):
        assert events[event], event
    assert sum(world.reads for world in worlds) > 200
    assert sum(world.acknowledged for world in worlds) > 1000
    assert sum(len(world.refused) for world in worlds) > 10
