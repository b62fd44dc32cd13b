"""Rooms of 5 to 20 processes, from seeds: whatever breaks, what was promised holds.

After all trouble every member receives again within HEALED_S, and tables hold the truth within
REST_S: room_world.py says why.
"""

from __future__ import annotations

from collections import Counter

import pytest

from chappe.rooms import announcer, gateway
from chappe.simulation import seeds
from tests.faults.figures import tell
from tests.simulation.proof import FULL, check_repeats, repeatable
from tests.simulation.room_growth import BusyWorld
from tests.simulation.room_invariants import check, differences
from tests.simulation.room_loss import (
    LossyWorld,
    copy_chance,
    reliable_chance,
    spread,
)
from tests.simulation.room_world import HEALED_S, RoomWorld

SEEDS = 400 if FULL else 4
# Seeds are run in groups, so that each group has a time limit of its own.
GROUPS = 40 if FULL else 2
LOSS = 0.05
MESSAGES = 10_000 if FULL else 1000


def run(seed: int) -> RoomWorld:
    """Run a seed and check it."""
    world = RoomWorld(seed)
    world.differences = differences
    with repeatable(seed, world.simulation):
        check(world.run())
    return world


@pytest.mark.parametrize("group", range(GROUPS))
def test_rooms_keep_their_promises_for_every_seed(group: int):
    worlds = [run(seed) for seed in seeds(SEEDS)[group::GROUPS]]
    tell(
        f"rooms after trouble, seeds {group} and every {GROUPS}th",
        recovered_s=max(world.recovered_s for world in worlds),
        bound_s=HEALED_S,
    )


@pytest.mark.parametrize("seed", range(20) if FULL else (0,))
def test_a_seed_gives_the_same_run_each_time_and_in_every_process(seed: int):
    check_repeats(RoomWorld, seed)


# R13
@pytest.mark.parametrize("proxies", (1, 2, 3, 4) if FULL else (3,))
def test_reliable_messages_arrive_as_often_as_three_copies_do(proxies: int):
    world = LossyWorld(proxies, loss=LOSS, proxies=proxies, messages=MESSAGES).run()
    normal, reliable = copy_chance(LOSS), reliable_chance(LOSS)
    tell(
        f"messages at {LOSS:.0%} loss on every link, {proxies} proxies",
        reliable=f"{world.reliable.share:.4f} of {world.reliable.sent}",
        three_copies=round(reliable, 4),
        normal=f"{world.normal.share:.4f} of {world.normal.sent}",
        one_copy=round(normal, 4),
    )
    assert world.reliable.share >= reliable - spread(reliable, world.reliable.sent)
    assert abs(world.normal.share - normal) <= spread(normal, world.normal.sent)


@pytest.mark.skipif(not FULL, reason="takes long, and is part of the proof")
def test_nothing_grows_without_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announcer, "OUTSTANDING_MAX", 20)
    monkeypatch.setattr(gateway, "DENIED_MAX", 20)
    assert not BusyWorld(1, periods=6, period_s=40.0).run().grown


def test_the_workload_does_what_it_is_for():
    """The invariants would hold of runs in which nothing happens; these are not such runs."""
    worlds = [run(seed) for seed in (range(100, 130) if FULL else range(100, 102))]
    events = Counter(line.split(" ", 2)[1] for world in worlds for line in world.trace.lines)
    for event in ("publish", "deliver", "datagram", "vanish", "healed"):
        assert events[event], event
    said = [one for world in worlds for one in world.truth.published.values()]
    assert {one.reliable for one in said} == {False, True}
    came = [one for world in worlds for crowd in world.truth.crowds for one in crowd.receipts]
    assert len(came) > 100 * len(worlds)
    if FULL:
        for event in ("partition", "pause", "resume", "drain", "doubling", "datagram.lost"):
            assert events[event], event
        strikes = "".join(line for world in worlds for line in world.trace.lines)
        for what in (
            "cut-all",
            "forget",
            "registry-slow",
            "store",
            "lossy",
            "slow",
            "one-way",
            "deaf",
        ):
            assert f"what='{what}'" in strikes, what
        assert any(world.layout.router_partitions for world in worlds)
        assert any(world.layout.mixed for world in worlds)
        drops: Counter[str] = Counter()
        for world in worlds:
            drops += world.drops
        for reason in ("duplicate", "overtaken", "no_member"):
            assert drops[reason], reason
