"""The links between processes of push: a mesh of their own (P1).

What is asked of a comet in this process is done at once; what is asked of others is gathered for a
tick, written as one frame per link, and answered by number. A note that could not be handed over
waits in the store: so nothing is sent twice from here, and a link that breaks loses nothing. Whose
client it is for may be connected all the while, so a comet is told to look for it as soon as it can
be told anything. The same goes for words that found no room: whoever looks also compares what it
has with the store. Notes are refused first, as nothing but a word takes one back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import structlog

from chappe.cluster.link import Link
from chappe.cluster.mesh import Mesh
from chappe.cluster.pushframes import OP_BYTES, frames, op_bytes
from chappe.errors import Overload, RemoteProtocolError, Unreachable
from chappe.push.comets import CometCard, CometDesk, Handed
from chappe.push.note import Note
from chappe.wire.pushlink import (
    Broadcast,
    Close,
    Deliver,
    Delivered,
    Look,
    Present,
    PushOp,
    Subscribed,
    Withdraw,
    decode_push_ops,
)

log = structlog.get_logger()

# How long a comet may take to say what it did.
ANSWER_S = 5.0
# Questions to all comets that are not answered yet.
ASKED_MAX = 10_000
# What may wait for a link that takes no more, in bytes: up to here anything, then words, then only
# answers, of which there are as many as the peer has asked for.
WAITING_BYTES_MAX = 16 * 1024 * 1024
_WORDS_FACTOR = 1.5
_ANSWERS_FACTOR = 2
# What a frame holds, unless one op is larger.
_FRAME_BYTES = 1024 * 1024

_read_note = msgspec.msgpack.Decoder(Note).decode
_encode = msgspec.msgpack.Encoder().encode


class _Asked(NamedTuple):
    link: Link
    answer: asyncio.Future[Handed]


class _Line:
    """What waits to be written to one peer."""

    __slots__ = ("link", "missed", "ops", "present", "sends", "size")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.present: Present | None = None
        # It was refused something, and does not know.
        self.missed = False
        # Whether notes come from it.
        self.sends = False
        # Each with its size.
        self.ops: list[tuple[PushOp, int]] = []
        self.size = 0


class PushLinks:
    """Whoever this process can reach that has clients, over links and within itself."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: int, name: str, *, sends: bool = True
    ) -> None:
        self._loop = loop
        self._server = server
        self._name = name
        # Whether notes are sent from here.
        self._sends = sends
        # The comet of this process, if it has one, and where devices reach that.
        self._desk: CometDesk | None = None
        self._address = ""
        self._mesh: Mesh | None = None
        self._lines: dict[Link, _Line] = {}
        self._by_server: dict[int, _Line] = {}
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._dirty: set[_Line] = set()
        self._flushing = False

    def open(self, desk: CometDesk, address: str) -> None:
        """Have clients in this process; with an address, devices that reach it there. Before
        `link`."""
        self._desk, self._address = desk, address

    async def link(self, mesh: Mesh) -> None:
        """Link to the others; raises ConfigError or ClusterError."""
        self._mesh = mesh
        await mesh.start()

    async def stop(self) -> None:
        """Say goodbye."""
        if self._mesh is not None:
            await self._mesh.stop()

    @property
    def complete(self) -> bool:
        """Whether all are linked that the registry knows of: who is not here then is gone, and not
        merely out of this one's sight."""
        return self._mesh is None or not self._mesh.unlinked

    def desks(self) -> set[int]:
        """The servers that clients may be on: comets, and nodes with users of the hub."""
        found = {server for server, line in self._by_server.items() if _has_desk(line)}
        return found | ({self._server} if self._desk is not None else set())

    def living(self) -> Mapping[int, CometCard]:
        """The comets that are there, by server number."""
        found = {
            server: CometCard(server, line.link.name, line.present.comet)
            for server, line in self._by_server.items()
            if line.present is not None and line.present.comet
        }
        if self._desk is not None and self._address:
            found[self._server] = CometCard(self._server, self._name, self._address)
        return found

    async def deliver(self, server: int, note: Note, clients: list[str]) -> Handed:
        """Hand a note to clients on a comet; raises Unreachable or Overload: then it waits."""
        if server == self._server and self._desk is not None:
            return self._desk.deliver(note, clients)
        return await self._ask(server, Deliver(0, _encode(note), clients))

    async def broadcast(self, server: int, note: Note) -> Handed:
        """Hand a topic's note to its subscribers on a comet; raises Unreachable or Overload."""
        if server == self._server and self._desk is not None:
            return self._desk.broadcast(note)
        return await self._ask(server, Broadcast(0, _encode(note)))

    def tell(self, server: int, op: Close | Withdraw | Subscribed) -> None:
        """Let a comet know, if it is there."""
        if server == self._server and self._desk is not None:
            _tell(self._desk, op)
            return
        line = self._by_server.get(server)
        if line is not None and not self._maybe_put(line, op, _WORDS_FACTOR):
            line.missed = True
            self._own_up(line)

    async def _ask(self, server: int, op: Deliver | Broadcast) -> Handed:
        line = self._by_server.get(server)
        if line is None:
            raise Unreachable(f"comet {server}: not linked")
        self._number += 1
        op.number = self._number
        if len(self._asked) >= ASKED_MAX or not self._maybe_put(line, op):
            line.missed = True
            raise Overload(f"comet {server}: too much waits for it already")
        answer: asyncio.Future[Handed] = self._loop.create_future()
        self._asked[op.number] = _Asked(line.link, answer)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise Overload(f"comet {server}: no answer in time") from None
        finally:
            del self._asked[op.number]
            self._own_up(line)

    def _own_up(self, line: _Line) -> None:
        """Tell a peer that takes more again that something did not come."""
        if line.missed and not line.size and line.link in self._lines:
            line.missed = False
            self._put(line, Look())

    def _maybe_put(self, line: _Line, op: PushOp, factor: float = 1) -> bool:
        """Let an op be written; False if there is no room for it, or no frame holds it."""
        size = op_bytes(op)
        if size > line.link.body_bytes_max or line.size + size > factor * WAITING_BYTES_MAX:
            return False
        self._put(line, op, size)
        return True

    def _put(self, line: _Line, op: PushOp, size: int = OP_BYTES) -> None:
        line.ops.append((op, size))
        line.size += size
        self._dirty.add(line)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        dirty, self._dirty = self._dirty, set()
        for line in dirty:
            if not line.link.paused:
                self._write(line)
                self._own_up(line)

    def _write(self, line: _Line) -> None:
        ops, line.ops, line.size = line.ops, [], 0
        for frame in frames(ops, min(_FRAME_BYTES, line.link.body_bytes_max)):
            line.link.write(frame)

    def link_up(self, link: Link) -> None:
        """Say who is here."""
        self._lines[link] = line = _Line(link)
        present = Present(self._server, self._address, self._desk is not None)
        self._put(line, present)

    def link_down(self, link: Link, reason: str) -> None:
        """Whoever waits for an answer of that peer is told that none will come."""
        line = self._lines.pop(link)
        self._dirty.discard(line)
        if line.present is not None and self._by_server.get(line.present.server) is line:
            del self._by_server[line.present.server]
        for asked in list(self._asked.values()):
            if asked.link is link and not asked.answer.done():
                asked.answer.set_exception(Unreachable(f"{link.name}: the link broke"))
        if line.sends and self._desk is not None:
            # What was under way may be lost, and whoever sent it may never be back.
            self._desk.look()

    def writable(self, link: Link) -> None:
        """Write what waited."""
        line = self._lines.get(link)
        if line is not None:
            self._write(line)
            self._own_up(line)

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """Do what a peer asks, and hear its answers."""
        line = self._lines[link]
        try:
            for body in bodies:
                for op in decode_push_ops(body):
                    self._take(line, op)
        except (RemoteProtocolError, msgspec.MsgspecError) as error:
            log.warning("push.link.unreadable", peer=link.name, reason=str(error))
            link.reset("protocol")

    def _take(self, line: _Line, op: PushOp) -> None:
        if isinstance(op, Present):
            line.present = op
            self._by_server[op.server] = line
            if op.desk and self._sends:
                # What was sent before now found nobody there; from now on it goes by this link.
                self._put(line, Look())
        elif isinstance(op, Delivered):
            asked = self._asked.get(op.number)
            if asked is not None and not asked.answer.done():
                asked.answer.set_result(Handed(op.count, tuple(op.absent)))
        elif self._desk is None:
            log.warning("push.link.no_comet", peer=line.link.name, op=type(op).__name__)
        elif isinstance(op, (Deliver, Broadcast)):
            self._hand_over(self._desk, line, op)
        elif isinstance(op, Look):
            line.sends = True
            self._desk.look()
        else:
            _tell(self._desk, op)

    def _hand_over(self, desk: CometDesk, line: _Line, op: Deliver | Broadcast) -> None:
        note, peer = _read_note(op.note), line.link.name
        try:
            if isinstance(op, Deliver):
                handed = desk.deliver(note, op.clients, peer)
            else:
                handed = desk.broadcast(note, peer)
        except Overload:
            # It waits in the store for all of them; that they are here is known.
            handed = Handed(0)
        self._answer(line, op.number, handed)

    def _answer(self, line: _Line, number: int, handed: Handed) -> None:
        # Without an answer, whoever asked goes by what waits in the store.
        self._maybe_put(line, Delivered(number, handed.taken, list(handed.absent)), _ANSWERS_FACTOR)


def _tell(desk: CometDesk, op: PushOp) -> None:
    if isinstance(op, Close):
        desk.close(op)
    elif isinstance(op, Withdraw):
        desk.withdraw(op)
    elif isinstance(op, Subscribed):
        desk.subscribed(op)


def _has_desk(line: _Line) -> bool:
    return line.present is not None and line.present.desk
