"""Requests: what a session may say, and what the hub answers.

A session goes through two states, each a table from op to handler: *greeting*, where it may only
say hello, and *serving*, which the application layer fills. An op that is in the vocabulary but in
neither table is one that this node does not serve. A handler that cannot do what is asked raises
RequestError; with an `id` on the op the peer is answered, without one the error is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from chappe.errors import BadRequest, RequestError
from chappe.message import Message
from chappe.wire.ops import (
    PACKED,
    VERSION,
    Hello,
    Malformed,
    Op,
    PayloadOp,
    Ping,
    Pong,
    Publish,
    Reply,
    Send,
)
from chappe.wire.payload import take_payload

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

# The ops that bring a message, in both forms: to a single receiver, and to a topic.
_SENDS = frozenset({Send, PACKED[Send]})
_PUBLISHES = frozenset({Publish, PACKED[Publish]})

Handler = Callable[["Session", Any], None]
# Takes ops of one kind from a place of a list on, together, and says how many it took; the others
# are carried out one by one.
RunTaker = Callable[["Session", list[Any], int], int]
Handlers = Mapping[type, Handler]


class Requests:
    """Carries out the ops of sessions on one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._outboxes = hub.outboxes
        self._fanout = hub.fanout
        self._next_id = hub.ids.next
        always: dict[type[Op], Handler] = {
            Ping: self._ping,
            Pong: self._pong,
            Malformed: hub.malformed,
        }
        self.greeting = _both_forms({**always, Hello: self._hello})
        self.serving: dict[type, Handler] = {}
        self._runs: dict[type, RunTaker] = {}
        self.serve({**always, Hello: self._hello_again})

    def serve(self, handlers: Mapping[type[Op], Handler]) -> None:
        """Let admitted sessions say these ops, in either form."""
        self.serving.update(_both_forms(handlers))

    def serve_runs(self, takers: Mapping[type[Op], RunTaker]) -> None:
        """Take ops of these kinds together where several come at once."""
        for kind, taker in takers.items():
            self._runs[kind] = self._runs[PACKED[kind]] = taker

    def carry_out(self, session: Session, op: Any) -> None:
        """Do what an op asks for, and answer it."""
        if not self._hub.ticking:
            self._hub.begin_tick()
        session.beats_missed = 0
        handler = session.handlers.get(op.__class__)
        if handler is None:
            self._refuse(session, op, self._not_served(session, op))
            return
        try:
            handler(session, op)
        except RequestError as error:
            self._refuse(session, op, error)

    def carry_out_all(self, session: Session, ops: list[Any]) -> None:
        """Do what a batch of ops asks for, in order.

        Clients that pipeline send one message after the other to the same address. The first goes
        the ordinary way; those behind it join its run here, without a call for each.
        """
        if ops[0].__class__ in self._runs and session.handlers is self.serving:
            ops = self._take_runs(session, ops)
            if not ops or session.closed:
                return
        fanout, new_id = self._fanout, self._next_id
        address, now_ms, to, kind, publishes = session.address, 0, "", None, False
        join = fanout.messages.append
        for op in ops:
            if (
                op.__class__ is kind
                and op.to == to
                and op.id is None
                and (
                    not op.reliable
                    if publishes
                    else op.key is None
                    and op.headers is None
                    and op.tags is None
                    and op.delay_ms is None
                    and op.producer is None
                    and op.seq is None
                    and op.num is None
                )
            ):
                if op.data64 is True and op.data is not None:  # packed, binary: nothing to check
                    join(Message(new_id(), address, to, now_ms, op.data, True))
                    continue
                try:
                    payload, binary = take_payload(op)
                    join(Message(new_id(), address, to, now_ms, payload, binary))
                    continue
                except RequestError as error:
                    self._refuse(session, op, error)
            else:
                self.carry_out(session, op)
            if session.closed:
                return
            joins = fanout.sender is session and session.allowances is None
            publishes = not fanout.promised
            joining = _PUBLISHES if publishes else _SENDS
            kind = op.__class__ if joins and op.__class__ in joining else None
            address, now_ms, to = session.address, self._hub.now_ms, fanout.to
            join = fanout.messages.append
        if len(ops) > 1:
            # What one read brought is bounded; a run of several such would not be.
            fanout.end()

    def _take_runs(self, session: Session, ops: list[Any]) -> list[Any]:
        """Carry out what those who take ops together take of the first; returns the rest."""
        if not self._hub.ticking:
            self._hub.begin_tick()
        session.beats_missed = 0
        at, runs = 0, self._runs
        while at < len(ops) and not session.closed and (taker := runs.get(ops[at].__class__)):
            taken = taker(session, ops, at)
            if not taken:
                break
            at += taken
        return ops[at:] if at else ops

    def take(self, session: Session, op: PayloadOp, receivers: int = 1) -> tuple[bytes, bool]:
        """An op's payload, if it is not too large, and the session may still send that much."""
        payload, binary = take_payload(op)
        if len(payload) > self._hub.limits.message_bytes_max:
            raise BadRequest(
                f"data: {len(payload)} bytes, {self._hub.limits.message_bytes_max} are allowed"
            )
        if session.allowances is not None:
            session.allowances.spend(len(payload) * receivers, receivers)
        return payload, binary

    def _hello(self, session: Session, op: Hello) -> None:
        if op.v != VERSION:
            raise BadRequest(f"v: this hub speaks version {VERSION}")
        self._hub.admit(session, op)
        if op.id is not None:
            self._hub.answer(
                session,
                Reply(
                    id=op.id,
                    ok=True,
                    session=session.id,
                    heartbeat_s=self._hub.options.heartbeat_s,
                    v=VERSION,
                    as_=session.address,
                ),
            )

    def _hello_again(self, session: Session, op: Hello) -> None:
        raise BadRequest(f"hello: this session is {session.address} already")

    def _ping(self, session: Session, op: Ping) -> None:
        self._hub.say(session, Pong(id=op.id))

    def _pong(self, session: Session, op: Pong) -> None:
        """A sign of life; taking note of it has been done."""

    def _not_served(self, session: Session, op: Op) -> RequestError:
        name = _op_name(op)
        if not session.address:
            return BadRequest(f"{name}: say hello first")
        return BadRequest(f"{name}: this node does not serve it")

    def _refuse(self, session: Session, op: Any, error: RequestError) -> None:
        self._hub.refuse(session, op.id, error)
        if not session.address:
            self._hub.turn_away(session, error)


def _both_forms(handlers: Mapping[type[Op], Handler]) -> Handlers:
    return dict(handlers) | {PACKED[op]: handlers[op] for op in handlers if op in PACKED}


def _op_name(op: Op) -> str:
    tag: Any = op.__struct_config__.tag
    return tag if isinstance(tag, str) else type(op).__name__.removeprefix("Packed").lower()
