"""Visits: HTTP requests whose session is on another node, answered there over the link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from chappe.cluster.peer import Peer
from chappe.edge.http.relay import Relayed, RelayedPart
from chappe.errors import Overload, RemoteProtocolError, Unreachable
from chappe.wire.node import Visit, VisitOver, VisitPart

# Visits under way to and from one node, and parts of an answer that nobody has read yet.
_VISITS_MAX = 10_000
_PARTS_MAX = 64

Parts = AsyncGenerator[RelayedPart, None]
Serve = Callable[[Relayed], Parts]

_read_request = msgspec.msgpack.Decoder(Relayed).decode
_read_part = msgspec.msgpack.Decoder(RelayedPart).decode
_encode = msgspec.msgpack.encode
_Word = VisitPart | Unreachable | Overload


class Visits:
    """Sends requests to other nodes, and answers theirs."""

    def __init__(
        self, find: Callable[[str], Peer | None], tagged: Callable[[str], Peer | None]
    ) -> None:
        self._find = find
        self._tagged = tagged
        self._number = 0
        self._asked: dict[tuple[Peer, int], asyncio.Queue[_Word]] = {}
        self._served: dict[tuple[Peer, int], asyncio.Task[None]] = {}
        self.serve: Serve | None = None

    def named(self, tag: str) -> str | None:
        """The name of the node with that tag, if it is there."""
        peer = self._tagged(tag)
        return None if peer is None else peer.name

    async def relay(self, node: str, request: Relayed) -> Parts:
        """Let a node answer a request; raises Unreachable, or Overload. Closing the generator
        ends the request there."""
        peer = self._find(node)
        if peer is None:
            raise Unreachable("session: its node is gone")
        if len(self._asked) >= _VISITS_MAX:
            raise Overload("too many requests wait for other nodes")
        self._number += 1
        key = (peer, self._number)
        words: asyncio.Queue[_Word] = asyncio.Queue()
        data = _encode(request)
        self._asked[key] = words
        peer.tell(Visit(key[1], data), len(data))
        last = False
        try:
            while not last:
                word = await words.get()
                if not isinstance(word, VisitPart):
                    raise word
                last = word.last
                if word.part:
                    yield _read_part(word.part)
        finally:
            del self._asked[key]
            if not last and peer.up:
                peer.tell(VisitOver(key[1]))

    def answered(self, peer: Peer, op: VisitPart) -> None:
        """A part of an answer has come."""
        words = self._asked.get((peer, op.number))
        if words is None:
            return
        if words.qsize() < _PARTS_MAX:
            words.put_nowait(op)
        elif words.qsize() == _PARTS_MAX:  # and nothing more after this
            words.put_nowait(Overload("the answer came faster than it was read"))

    def visited(self, peer: Peer, op: Visit) -> None:
        """Another node asks."""
        try:
            request = _read_request(op.request)
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(str(error)) from None
        if self.serve is None or len(self._served) >= _VISITS_MAX:
            refusal = RelayedPart(503, {}, b"")
            peer.tell(VisitPart(op.number, _encode(refusal), True))
            return
        task = asyncio.get_running_loop().create_task(self._answer(peer, op.number, request))
        self._served[peer, op.number] = task
        task.add_done_callback(lambda _: self._served.pop((peer, op.number), None))

    async def _answer(self, peer: Peer, number: int, request: Relayed) -> None:
        assert self.serve is not None
        async with aclosing(self.serve(request)) as parts:
            async for part in parts:
                if not peer.up:
                    return
                data = _encode(part)
                peer.tell(VisitPart(number, data), len(data))
        if peer.up:
            peer.tell(VisitPart(number, b"", True))

    def over(self, peer: Peer, op: VisitOver) -> None:
        """Nobody waits for an answer any more."""
        task = self._served.get((peer, op.number))
        if task is not None:
            task.cancel()

    def lost(self, peer: Peer) -> None:
        """A peer is gone, and with it what was asked on either side."""
        for (other, _), words in self._asked.items():
            if other is peer:
                words.put_nowait(Unreachable("session: its node is gone"))
        for (other, _), task in self._served.items():
            if other is peer:
                task.cancel()
