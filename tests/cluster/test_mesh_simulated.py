"""Meshes on a simulated network that breaks: after it heals, one link per pair, soon (H6)."""

from __future__ import annotations

import asyncio
import itertools
import os
from random import Random
from unittest.mock import patch

import pytest

from chappe.cluster.mesh import open_stream
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.simulation import Faults, Simulation, seeds
from tests.cluster.meshes import Board, BoardMembership, Peer, make_peer
from tests.simulation.processes import digest_in_a_process
from tests.simulation.workload import draw_faults

SEEDS = 100 if os.environ.get("CHAPPE_PROOF") == "full" else 10
NAMES = ["n1", "n2", "n3", "n4", "n5"]
TROUBLE_S = 90.0
OPTIONS = LinkOptions()
# A side that has not heard of the end of its link needs the silence, one that was dialling when
# the network healed a handshake's time; then comes the largest backoff, and a dial that works.
HEALED_S = (
    OPTIONS.silence_s + OPTIONS.handshake_timeout_s + OPTIONS.backoff_max_s + OPTIONS.heartbeat_s
)


class Constellation:
    """Some nodes whose network breaks, and that crash and start anew."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.board = Board()
        self.peers: dict[str, Peer] = {}
        self.incarnations = dict.fromkeys(NAMES, 0)
        self.downs = 0

    def run(self) -> Constellation:
        # picows draws the key of its handshake from the operating system.
        with patch("os.urandom", self.simulation.entropy):
            self.simulation.run(self._live())
        return self

    async def _live(self) -> None:
        self.network.set_faults(draw_faults(self.simulation.stream("faults")))
        await asyncio.gather(*(self._start(name) for name in NAMES))
        await self._break_things(self.simulation.stream("chaos"))
        self.network.heal()
        self.network.set_faults(Faults())
        await asyncio.sleep(HEALED_S)
        await self._check()
        for peer in self.peers.values():
            await peer.mesh.stop()
        await asyncio.sleep(60)
        assert not self.network.streams

    async def _start(self, name: str) -> None:
        self.incarnations[name] += 1
        self.peers[name] = peer = self._make(name, self.incarnations[name])
        await self.network.on_host(name, peer.mesh.start())

    def _make(self, name: str, incarnation: int) -> Peer:
        return make_peer(
            name,
            self.board,
            incarnation=incarnation,
            dial=open_stream(self.simulation.loop),
            clock=self.simulation.clock,
            listen=self.network.listen,
            entropy=self.simulation.entropy,
            rng=self.simulation.stream(f"{name}/{incarnation}"),
            options=ClusterOptions(host=name, allow_plaintext=True, link=OPTIONS),
        )

    async def _break_things(self, random: Random) -> None:
        until = self.simulation.loop.time() + TROUBLE_S
        while self.simulation.loop.time() < until:
            await asyncio.sleep(random.expovariate(0.3))
            one, other = random.sample(NAMES, 2)
            match random.choice(
                ["reset", "drop", "partition", "one-way", "heal", "heal", "crash", "view"]
            ):
                case "reset" if self.network.streams:
                    self.network.reset(random.choice(list(self.network.streams)))
                case "drop" if other in self.peers[one].links:
                    self.peers[one].links[other].reset("test")
                case "partition":
                    self.network.partition([one], [other])
                case "one-way":
                    self.network.partition([one], [other], both_ways=False)
                case "heal":
                    self.network.heal()
                case "crash":
                    await self._crash(one)
                case "view" if one in self.board.members:
                    # A registry that forgets a node for a moment.
                    member = self.board.members[one]
                    self.board.drop(one)
                    self.simulation.loop.call_later(1.0, self._remember, member)

    def _remember(self, member) -> None:
        if member.incarnation == self.incarnations[member.name]:
            self.board.put(member)

    async def _crash(self, name: str) -> None:
        """Take a node's power, and start it anew: nobody is told."""
        old = self.peers[name]
        self.downs += len(old.witness.downs)
        self.network.vanish(name)
        old.mesh._membership = BoardMembership(Board())
        stopping = self.network.on_host(name, old.mesh.stop())
        await self._start(name)
        await stopping

    async def _check(self) -> None:
        """Each pair has one link, the same on both sides, that carries what is written."""
        for one, other in itertools.permutations(self.peers.values(), 2):
            assert set(one.links) == set(NAMES) - {one.name}
            link, back = one.links[other.name], other.links[one.name]
            assert link.incarnation == self.incarnations[other.name]
            assert link.dialled == (one.name < other.name)
            assert link.attempt == back.attempt
            link.write(b"over one and the same link")
        await asyncio.sleep(5)
        for one, other in itertools.permutations(self.peers.values(), 2):
            assert one.witness.bodies[other.name] == [b"over one and the same link"]
        self.downs += sum(len(peer.witness.downs) for peer in self.peers.values())


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_after_any_trouble_there_is_one_link_per_pair_within_a_bounded_time(seed: int):
    constellation = Constellation(seed).run()
    assert constellation.downs > 0


def test_a_mesh_goes_the_same_way_each_time_and_in_every_process():
    digest = Constellation(2).run().trace.digest()
    assert Constellation(2).run().trace.digest() == digest
    assert Constellation(3).run().trace.digest() != digest
    expression = "tests.cluster.test_mesh_simulated.Constellation(2)"
    # What it logs stands before it.
    assert digest_in_a_process(expression, "1").splitlines()[-1] == digest
