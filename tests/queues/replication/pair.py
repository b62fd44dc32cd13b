"""A master and followers by hand: real journals, and peers that carry ops when they are told to."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.follower import Follower
from chappe.queues.replication.master import Master
from chappe.queues.replication.record import BrokerRecord
from chappe.wire.nodeop import NodeOp
from chappe.wire.replica import Appended, Batches, Follow, Following, Invite, Superseded
from tests.log.rig import Rig


class Post:
    """One node's way to the others; ops wait until they are carried."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.pair = pair
        self.name = name
        self.full = False

    def linked(self) -> list[str]:
        return [name for name in self.pair.names if name != self.name]

    def preferred(self, broker: str) -> list[str]:
        return self.linked()

    def tell(self, node: str, op: NodeOp) -> None:
        self.pair.under_way.append((self.name, node, op))

    def send(self, node: str, op: NodeOp, size: int) -> bool:
        if not self.full:
            self.tell(node, op)
        return not self.full


class Pair:
    """A master `a` of the broker `a`, and replicas with journals of their own."""

    def __init__(self, folder: Path, replicas: str = "b", **options: Any) -> None:
        self.names = ["a", *replicas]
        self.options = ReplicationOptions(
            **{"replicas": len(replicas), "mode": "acknowledged", "timeout_s": 5.0} | options
        )
        self.under_way: deque[tuple[str, str, NodeOp]] = deque()
        self.seen: list[NodeOp] = []
        self.rigs = {name: Rig(folder / name).open() for name in self.names}
        self.posts = {name: Post(self, name) for name in self.names}
        self.until = 1_000.0
        self.woken = 0
        self.heard: list[tuple[int, str]] = []
        self.followers = {name: self.follower(name) for name in replicas}

    @property
    def rig(self) -> Rig:
        return self.rigs["a"]

    def follower(self, name: str, term: int = 0) -> Follower:
        return Follower(
            broker="a",
            journal=self.rigs[name].journal,
            peers=self.posts[name],
            term=term,
            heard=lambda epoch, node: self.heard.append((epoch, node)),
        )

    def lead(self, epoch: int = 1, insync: str = "ab", replicas: str | None = None) -> Master:
        """Let `a` lead an epoch."""
        names = tuple(self.names[1:]) if replicas is None else tuple(replicas)
        record = BrokerRecord(owner="a", epoch=epoch, insync=tuple(insync), replicas=names)
        self.rig.journal.begin_epoch(epoch)
        self.master = Master(
            name="a",
            broker="a",
            record=record,
            journal=self.rig.journal,
            peers=self.posts["a"],
            options=self.options,
            time=lambda: self.rig.timer.now,
            until=lambda: self.until,
            wake=self._woke,
        )
        self.master.start()
        return self.master

    def _woke(self) -> None:
        self.woken += 1

    def carry(self, limit: int = 10_000) -> None:
        """Bring everybody what was said, and let disks work, until nothing more happens."""
        for _ in range(limit):
            for rig in self.rigs.values():
                rig.turn()
            if not self.under_way:
                return
            self.deliver(*self.under_way.popleft())
        raise AssertionError("it does not end")

    def deliver(self, sender: str, node: str, op: NodeOp) -> None:
        self.seen.append(op)
        if node == "a":
            match op:
                case Follow():
                    self.master.follow(sender, op)
                case Appended():
                    self.master.appended(sender, op)
                case Superseded():
                    self.master.supersede(op.epoch)
            return
        follower = self.followers[node]
        match op:
            case Invite():
                follower.invite(sender, op)
            case Following():
                follower.following(sender, op)
            case Batches():
                follower.batches(sender, op)

    def agree(self) -> None:
        """Let what is proposed be agreed on."""
        assert self.master.proposed is not None
        self.master.agreed(self.master.proposed)

    def move(self, seconds: float) -> None:
        self.rig.timer.now += seconds
        self.rig.turn()
        self.master.tick()
