"""Replication: every broker that this node leads or has a copy of (Q10).

How to use it:

    replication = Replication(name=..., options=..., coordination=..., peers=..., brokers=...,
                              notes=..., rng=...)
    await replication.start(["n1", "n2"])       # brokers that have a journal on this node's disk
    replication.link_up(node), link_down(node)  # as links come and go
    replication.HANDLERS[type(op)](replication, node, op)   # for what they bring
    replication.masters["n1"]                   # which node to ask for the queues of a broker
    await replication.promote("n1")             # by command
    await replication.stop()

`Brokers` (peers.py) is told `load`, `on_master` and `on_fenced`, in this order, as often as that
changes. Without a registry that has values, or without replicas, this node is the master of the
broker that has its name, and that is all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any, ClassVar

import structlog

from chappe.errors import BadRequest
from chappe.queues.options import ReplicationOptions
from chappe.queues.replication.inquiry import Inquiries
from chappe.queues.replication.note import Notes
from chappe.queues.replication.peers import Brokers, Peers
from chappe.queues.replication.seat import Seat
from chappe.queues.replication.setting import Setting
from chappe.registry.coordination import Coordination
from chappe.wire.replica import (
    Appended,
    Batches,
    Follow,
    Following,
    Inquire,
    Invite,
    Masters,
    Standing,
    Superseded,
)

log = structlog.get_logger()

# More than a cluster has nodes; each has a folder and a task.
BROKERS_MAX = 256


async def _by_command_only() -> str | None:
    return "this registry may forget: promotion is by command only"


class Replication:
    """The brokers of this node.

    `no_election` says why no replica may become master by itself, or None; `changed` is called when
    `masters` has changed, or one of them begins to serve.
    """

    def __init__(
        self,
        *,
        name: str,
        options: ReplicationOptions,
        coordination: Coordination | None,
        peers: Peers,
        brokers: Brokers,
        notes: Notes,
        rng: Random,
        no_election: Callable[[], Awaitable[str | None]] = _by_command_only,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._peers = peers
        self._inquiries = Inquiries(peers)
        self._changed = changed
        self._seats: dict[str, Seat] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # What each linked node says to be master of.
        self._announced: dict[str, dict[str, int]] = {}
        # Before it has begun it knows nothing, and says nothing.
        self._started = False
        self.masters: dict[str, str] = {}
        self._setting = Setting(
            name=name,
            options=options,
            coordination=coordination,
            peers=peers,
            brokers=brokers,
            notes=notes,
            inquiries=self._inquiries,
            rng=rng,
            no_election=no_election,
            changed=self._own_changed,
            masters_of=self._masters_of,
        )

    @property
    def seats(self) -> Mapping[str, Seat]:
        """The brokers of which this node has a journal."""
        return self._seats

    async def start(self, brokers: Iterable[str] = ()) -> None:
        """Lead or follow the broker of this node, and the others that it has a copy of."""
        self._started = True
        for broker in dict.fromkeys((self._name, *brokers)):
            self._sit(broker)
        for node in self._peers.linked():
            self.link_up(node)

    async def stop(self) -> None:
        """Hand back all leases, and close all journals."""
        self._started = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for seat in self._seats.values():
            await seat.close()
        self._seats.clear()

    async def promote(self, broker: str, *, force: bool = False) -> None:
        """Make this node the master of a broker of which it has a copy.

        Forced, it may lack what was acknowledged; else it raises Forbidden when it is not in sync.
        Raises BadRequest, Overload or ClusterError when it cannot be done.
        """
        seat = self._seats.get(broker)
        if seat is None:
            raise BadRequest(f"broker {broker}: {self._name} has no copy of it")
        await seat.promote(force=force)

    def refusal(self, broker: str) -> str:
        """Why a broker is not served here."""
        seat = self._seats.get(broker)
        return f"broker {broker} has no copy here" if seat is None else seat.known.reason

    def link_up(self, node: str) -> None:
        """A node can be reached."""
        self._peers.tell(node, self._own())
        for seat in list(self._seats.values()):
            seat.link_up(node)

    def link_down(self, node: str) -> None:
        """A node cannot be reached any more."""
        self._inquiries.lost(node)
        self._announced.pop(node, None)
        for seat in list(self._seats.values()):
            seat.link_down(node)
        self._choose()

    def _sit(self, broker: str) -> Seat | None:
        if broker not in self._seats and len(self._seats) < BROKERS_MAX and self._started:
            seat = self._seats[broker] = Seat(broker, self._setting)
            task = asyncio.get_running_loop().create_task(seat.run())
            task.add_done_callback(self._check_task)
            self._tasks[broker] = task
        return self._seats.get(broker)

    def _check_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": "a broker has failed", "exception": error, "task": task}
            )

    def _own(self) -> Masters:
        led = [(broker, seat.epoch) for broker, seat in self._seats.items()]
        return Masters([(broker, epoch) for broker, epoch in led if epoch is not None])

    def _own_changed(self) -> None:
        own = self._own()
        for node in self._peers.linked():
            self._peers.tell(node, own)
        self._choose()

    def _masters_of(self, broker: str) -> dict[str, int]:
        return {
            node: brokers[broker]
            for node, brokers in sorted(self._announced.items())
            if broker in brokers
        }

    def _choose(self) -> None:
        """Of those who say that they are master of a broker, the newest is."""
        said = {**self._announced, self._name: dict(self._own().brokers)}
        found: dict[str, tuple[int, str]] = {}
        for node, brokers in said.items():
            for broker, epoch in brokers.items():
                found[broker] = max(found.get(broker, (0, "")), (epoch, node))
        self.masters = {broker: node for broker, (_, node) in found.items()}
        # Also when the same are: one that gathered serves now, or one begins anew.
        if self._changed is not None:
            self._changed()

    def _read_masters(self, node: str, op: Masters) -> None:
        self._announced[node] = dict(op.brokers)
        self._choose()
        for seat in list(self._seats.values()):
            seat.wake()

    def _read_invite(self, node: str, op: Invite) -> None:
        seat = self._sit(op.broker)
        if seat is not None:
            seat.invited(node, op)

    def _read_follow(self, node: str, op: Follow) -> None:
        seat = self._seats.get(op.broker)
        if seat is not None and seat.master is not None:
            seat.master.follow(node, op)

    def _read_following(self, node: str, op: Following) -> None:
        seat = self._seats.get(op.broker)
        if seat is not None and seat.follower is not None:
            seat.follower.following(node, op)

    def _read_batches(self, node: str, op: Batches) -> None:
        seat = self._seats.get(op.broker)
        if seat is None:
            return
        if seat.follower is not None:
            seat.follower.batches(node, op)
        elif seat.known.term > op.epoch:
            self._peers.tell(node, Superseded(op.broker, seat.known.term))

    def _read_appended(self, node: str, op: Appended) -> None:
        seat = self._seats.get(op.broker)
        if seat is not None and seat.master is not None:
            seat.master.appended(node, op)

    def _read_superseded(self, node: str, op: Superseded) -> None:
        seat = self._seats.get(op.broker)
        if seat is not None and seat.master is not None:
            seat.master.supersede(op.epoch)

    def _read_inquire(self, node: str, op: Inquire) -> None:
        seat = self._seats.get(op.broker)
        if seat is not None and seat.known.is_open:
            self._peers.tell(node, seat.known.standing(op.number))
        elif seat is None and self._started:
            self._peers.tell(node, Standing(op.number, op.broker, 0, "", 0, 0, False))

    def _read_standing(self, node: str, op: Standing) -> None:
        self._inquiries.answered(node, op)

    # What to do with each op of wire/replica.py: (replication, the node that said it, the op).
    HANDLERS: ClassVar[Mapping[type, Callable[[Replication, str, Any], None]]] = {
        Masters: _read_masters,
        Invite: _read_invite,
        Follow: _read_follow,
        Following: _read_following,
        Batches: _read_batches,
        Appended: _read_appended,
        Superseded: _read_superseded,
        Inquire: _read_inquire,
        Standing: _read_standing,
    }
