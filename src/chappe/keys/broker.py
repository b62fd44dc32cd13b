"""The broker: which session has which keys, and what is sent by key (K2, K5, K6, K8, K9).

    send("key:7") --> sessions here, at once
                  --> the bus: brokers that have the key, each hands it to its own sessions only

A message is encoded once, put into the outbox of each session, and written once per session and
tick, as everywhere. What a session's outbox took is counted; a session that does not read is
closed, so that nobody misses anything without knowing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from chappe.errors import BadRequest, BusAway, CloseCode, Overload, Unreachable
from chappe.hub.grant import Grant
from chappe.hub.hub import Hub
from chappe.hub.session import Session, Sink
from chappe.hub.table import ConnectionTable
from chappe.keys.bus import Bus
from chappe.keys.session import Handshake, KeySession
from chappe.message import Message
from chappe.wire.encoding import WEBSOCKET_TEXT
from chappe.wire.keyed import MESSAGE, PREFIX, encode_keyed, key_name
from chappe.wire.websocket import BINARY, FIN, TEXT, encode_frame, may_travel

APP = "keys"
# What such a session is called where others have an address.
ADDRESS = "key:*"
_GRANT = Grant(app=APP, address=ADDRESS)


def to_json(data: Any) -> bytes:
    """Any value as JSON; raises BadRequest. Models of pydantic are taken, too."""
    try:
        return msgspec.json.encode(data, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"data: {error}") from None


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is no value that JSON has")
    return dump(mode="json")


def _check_text(field: str, text: str) -> None:
    """Refuse what is no text, and half of a character, which no text on the wire may have."""
    if not isinstance(text, str):
        raise BadRequest(f"{field}: must be text, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadRequest(f"{field}: it is no text that can be sent") from None


class Broker:
    """The sessions of this process by their keys, joined to those of others by a bus."""

    def __init__(self, hub: Hub, bus: Bus) -> None:
        self._hub = hub
        self._bus = bus
        # K2: key -> sessions; session -> keys is in each session.
        self._table = ConnectionTable()
        self._sessions: dict[Session, KeySession] = {}
        self._ending = False
        # Told of each session that has ended.
        self.on_left: Callable[[KeySession], None] | None = None
        hub.on_left.append(self._left)

    async def start(self) -> None:
        """Join the others; raises ConfigError when they can never be joined."""
        await self._bus.start(self)

    async def stop(self) -> None:
        """Close every session, and leave the others."""
        self.end_all()
        await self._bus.stop()

    def end_all(self) -> None:
        """Close every session, and take no more in."""
        self._ending = True
        for session in list(self._sessions.values()):
            self.end(session, CloseCode.GOING_AWAY, "the hub stopped")

    def open(self, edge: str, sink: Sink, handshake: Handshake, *, beats: bool) -> KeySession:
        """Take a connection in; raises Overload. One that `beats` is asked for signs of life."""
        if self._ending:
            raise Overload("the hub stops")
        core = self._hub.open(edge, WEBSOCKET_TEXT, sink, handshake.client)
        try:
            self._hub.welcome(core, _GRANT, listed=False)
        except Overload:
            self._hub.lost(core)
            raise
        if not beats:
            core.beats_max = 1 << 62  # whoever serves the connection looks after it
        session = self._sessions[core] = KeySession(self, core, handshake)
        return session

    def lost(self, session: KeySession, code: int) -> None:
        """Its connection is gone."""
        self._hub.lost(session.core, code)

    def pause(self, session: KeySession) -> None:
        """Its transport takes no more."""
        self._hub.pause(session.core)

    def resume(self, session: KeySession) -> None:
        """Its transport takes more."""
        self._hub.resume(session.core)

    def _left(self, core: Session) -> None:
        """K5: with a session go all its keys."""
        session = self._sessions.pop(core, None)
        if session is None:
            return
        keys, session.keys = session.keys, {}
        self._table.unbind_all(keys, core)
        self._bus.removed([key for key in keys if key not in self._table])
        if self.on_left is not None:
            self.on_left(session)

    async def subscribe(self, session: KeySession, key: str | int) -> bool:
        """Give a session a key; returns when every broker that sends by it knows.

        False while the bus is away: then it gets what is sent here, and the rest when the bus is
        back. Raises BadRequest for what is no key, Overload for one too many, Unreachable for a
        session that has ended.
        """
        name = key_name(key)
        if session.closed:
            raise Unreachable("the session has ended")
        first = name not in self._table
        if name not in session.keys:
            most = self._hub.options.subscriptions_max
            if len(session.keys) >= most:
                raise Overload(f"a session has at most {most} keys")
            session.keys[name] = None
            self._table.bind(name, session.core)
        return await self._bus.added(name, first=first)

    async def unsubscribe(self, session: KeySession, key: str | int) -> bool:
        """Take a key from a session; whether it had it."""
        name = key_name(key)
        if name not in session.keys:
            return False
        del session.keys[name]
        self._table.unbind(name, session.core)
        if name not in self._table:
            self._bus.removed((name,))
        return True

    async def send(self, key: str | int, data: Any, *, type: str = MESSAGE) -> int:
        """Send by key to all sessions that have it, wherever they are; how many took it.

        Bytes are a binary message, anything else is text. Raises BadRequest for what cannot be
        sent; BusAway when no other brokers could be asked; its `reached` is how many took it here.
        """
        name = key_name(key)
        message = self._message(name, data, type)
        reached = self._deliver(message, name)
        try:
            beyond, through = await self._bus.forward(message)
        except BusAway as away:
            away.reached = reached
            self._record(message, reached)
            raise
        except Overload as full:
            self._record(message, reached)
            raise BusAway(full.reason, reached=reached) from None
        except asyncio.CancelledError:
            self._record(message, reached)
            raise
        self._record(message, reached, went_to=through)
        return reached + beyond

    async def close(
        self, key: str | int, code: int = CloseCode.NORMAL, reason: str = "closed by key"
    ) -> int:
        """K9: close all sessions that have a key, wherever they are; how many there were."""
        name = key_name(key)
        if not may_travel(code):
            raise BadRequest(f"code: {code} is not one that a session may be closed with")
        _check_text("reason", reason)
        here = self.close_here(name, code, reason)
        try:
            return here + await self._bus.close(name, code, reason)
        except Overload as away:
            unknown = away.outcome_unknown
            raise BusAway(away.reason, reached=here, outcome_unknown=unknown) from None

    def say(self, session: KeySession, data: Any, *, type: str = MESSAGE, key: str = "") -> bool:
        """Say something to one session; whether it is taken."""
        if session.closed:
            return False
        frame = self._frame(self._message(key.removeprefix(PREFIX), data, type))
        self._hub.ensure_tick()
        if self._hub.outboxes.put_promised(session.core, frame):
            return True
        self._too_slow(session.core)
        return False

    def end(self, session: KeySession, code: int, reason: str) -> None:
        """Close one session."""
        self._hub.close(session.core, code, reason)

    def keys(self) -> Collection[str]:
        """All keys that some session here has."""
        return list(self._table)

    def deliver(self, message: Message, came_from: str) -> int:
        """K8: what another broker forwarded is for the sessions here only."""
        taken = self._deliver(message, message.to.removeprefix(PREFIX))
        self._record(message, taken, came_from)
        return taken

    def close_here(self, key: str, code: int, reason: str) -> int:
        """Close the sessions here that have a key."""
        found = list(self._table.get(key, ()))
        for core in found:
            self._hub.close(core, code, reason)
        return len(found)

    def counts(self) -> dict[str, int]:
        """What there is, and what has happened so far."""
        return {
            "sessions": len(self._sessions),
            "keys": len(self._table),
            **self._bus.counts(),
        }

    def _message(self, name: str, data: Any, kind: str) -> Message:
        _check_text("type", kind)
        binary = isinstance(data, (bytes, bytearray, memoryview))
        payload = bytes(data) if binary else encode_keyed(kind, name, to_json(data))
        most = self._hub.limits.message_bytes_max
        if len(payload) > most:
            raise BadRequest(f"data: {len(payload)} bytes are more than the {most} of a message")
        self._hub.ensure_tick()
        hub = self._hub
        return Message(hub.ids.next(), "", PREFIX + name, hub.now_ms, payload, binary)

    def _frame(self, message: Message) -> bytes:
        return encode_frame(FIN | (BINARY if message.binary else TEXT), message.payload)

    def _deliver(self, message: Message, name: str) -> int:
        cores = self._table.get(name)
        if cores is None:
            return 0
        hub = self._hub
        hub.fanout.end()
        hub.ensure_tick()
        slow = hub.outboxes.promise_all(cores, self._frame(message))
        taken = len(cores) - len(slow)
        for core in slow:
            self._too_slow(core)
        return taken

    def _too_slow(self, core: Session) -> None:
        reason = "more waits for a reader that does not read than may"
        self._hub.close(core, CloseCode.SLOW_CONSUMER, reason)

    def _record(
        self, message: Message, taken: int, came_from: str = "", went_to: Collection[str] = ()
    ) -> None:
        recorder = self._hub.recorder
        recorder.published(APP, (message,), taken, came_from, tuple(went_to))
