"""The conversation with a device: its commands are carried out, and answered in their order."""

from __future__ import annotations

from collections import deque
from functools import lru_cache

from chappe.clock import Clock
from chappe.errors import RemoteProtocolError
from chappe.push.comet.audience import Audience
from chappe.push.comet.counters import Counters
from chappe.push.comet.ending import BUSY, MALFORMED, REFUSED, REPLACED, STORE_AWAY
from chappe.push.comet.flow import FLOW, WANTED, Act
from chappe.push.comet.ledger import Ledger
from chappe.push.comet.lists import Lists
from chappe.push.comet.logins import Logins
from chappe.push.comet.routes import Routes
from chappe.push.comet.session import DeviceSession, Malformed, State
from chappe.push.comet.sessions import Sessions
from chappe.push.comet.subscribing import Subscribing
from chappe.push.options import CometOptions
from chappe.wire.push import (
    FRAME_BYTES_MAX,
    Auth,
    Command,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    MessageAck,
    Ok,
    PushError,
    Subscribe,
    Unsubscribe,
    decode_command,
    encode_response,
    is_whole,
)
from chappe.wire.pushcipher import CometAgreement
from chappe.wire.pushfield import SHORT

_OK = encode_response(Ok())
# Commands without secrets, which devices say in the same words.
_ALIKE = frozenset({GetMessageList.number, Heartbeat.number, MessageAck.number})
_ALIKE_MAX = 64
# Of an id of P5.
_ID_CHARS = 16


class Conversation:
    """Hears what devices say. Those who ask the store answer through it, and so are set after it
    is made."""

    logins: Logins
    routes: Routes
    lists: Lists
    subscribing: Subscribing

    def __init__(
        self,
        options: CometOptions,
        sessions: Sessions,
        audience: Audience,
        ledger: Ledger,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._options = options
        self._sessions = sessions
        self._audience = audience
        self._ledger = ledger
        self._counters = counters
        self._clock = clock
        self._last_login = 0

    def feed(self, session: DeviceSession, data: bytes) -> None:
        """A device has sent bytes."""
        if session.known:
            session.heard = self._sessions.wheel.now
            if session.splitter is None and is_whole(data):
                self._receive(session, data[SHORT.size :])
                return
        try:
            for frame in session.split(data):
                if session.closed:
                    return
                self._receive(session, frame)
        except RemoteProtocolError as error:
            self._sessions.end(session, MALFORMED, reason=error.reason)

    def joined(self, session: DeviceSession) -> None:
        """The store says that a client is here."""
        self._sessions.opened(session)
        self.answer(session, _OK)

    def turn_away(self, session: DeviceSession, code: PushError, reason: str) -> None:
        """A device cannot log in."""
        ending = STORE_AWAY if code is PushError.SERVER else REFUSED
        self._sessions.end(session, ending._replace(error=code), reason)

    def answer(self, session: DeviceSession, answer: bytes) -> None:
        """A command is done."""
        self._sessions.outboxes.put(session, answer)
        self._next(session)

    def refuse(self, session: DeviceSession, code: PushError, reason: str) -> None:
        """A command is not done."""
        self._sessions.error(session, code, reason)
        self._next(session)

    def listed(self, session: DeviceSession, code: PushError | None, reason: str) -> None:
        """What waits was put into the outbox, or could not be looked up."""
        if code is not None:
            self._sessions.error(session, code, reason)
        self._next(session)

    def maybe_more(self, session: DeviceSession) -> None:
        """Look up more of what waits, if a session is behind and has room."""
        if (
            session.behind
            and session.state is State.LIVE
            and session.outbox is None
            and not session.paused
            and len(session.flights or ()) < self._options.flights_max
        ):
            self.lists.more(session)

    def _receive(self, session: DeviceSession, frame: bytes) -> None:
        command: Command | Malformed
        try:
            command = _decode(frame) if frame[0] in _ALIKE else decode_command(frame)
        except RemoteProtocolError as error:
            command = Malformed(error.reason)
        if session.busy:
            self._let_wait(session, command)
        else:
            self._carry_out(session, command)

    def _let_wait(self, session: DeviceSession, command: Command | Malformed) -> None:
        if session.asked is None:
            session.asked = deque()
        session.asked.append(command)
        if len(session.asked) > self._options.commands_max:
            self._sessions.end(session, BUSY)

    def _carry_out(self, session: DeviceSession, command: Command | Malformed) -> None:
        act = FLOW[session.state][type(command)]
        self._counters.commands[type(command).__name__] += 1
        match act, command:
            case Act.CHECK, Auth():
                self.logins.begin(session, command)
            case Act.AGREE, ExchangeKey():
                self._agree(session, command)
            case Act.BEAT, _:
                self._sessions.outboxes.put(session, _OK)
            case Act.ACK, MessageAck():
                self._acknowledge(session, command.ids)
            case Act.LIST, _:
                session.busy = True
                # From here on what comes is handed over: what is looked up may be older.
                session.state = State.LIVE
                self.lists.answer(session)
            case Act.TOPICS, GetTopicList() | Subscribe() | Unsubscribe():
                session.busy = True
                self.subscribing.ask(session, command)
            case Act.REFUSE, _:
                self._sessions.error(session, PushError.BAD_ARGUMENTS, _why_not(session, command))
            case _:
                self._sessions.end(session, MALFORMED, reason=_why_not(session, command))

    def _acknowledge(self, session: DeviceSession, ids: tuple[str, ...]) -> None:
        self._sessions.outboxes.put(session, _OK)
        # Nothing else is remembered of what a device says, nor asked of the store.
        self._ledger.acknowledge(session, filter(_is_note, ids))
        self.maybe_more(session)

    def _next(self, session: DeviceSession) -> None:
        """A command is answered: carry out those that came meanwhile."""
        session.busy = False
        while session.asked and not session.busy and not session.closed:
            self._carry_out(session, session.asked.popleft())
        if not session.asked:
            session.asked = None

    def _agree(self, session: DeviceSession, command: ExchangeKey) -> None:
        agreement = session.key
        assert isinstance(agreement, CometAgreement), "a key was offered"
        try:
            session.key = agreement.agree(command.secret_key)
        except RemoteProtocolError as error:
            self._sessions.end(session, MALFORMED, reason=error.reason)
            return
        session.state = State.JOINING
        session.busy = True
        session.heard = self._sessions.wheel.now
        if session.splitter is not None:
            session.splitter.frame_bytes_max = FRAME_BYTES_MAX
        self._last_login = max(self._clock.wall_ms(), self._last_login + 1)
        session.login = self._last_login
        before = self._audience.seat(session)
        if before is not None:
            self._sessions.end(before, REPLACED)
        self.routes.join(session)


# Many say the same, and soon after each other: that a note has arrived which went to a topic.
_decode = lru_cache(_ALIKE_MAX)(decode_command)


def _is_note(id: str) -> bool:
    return len(id) == _ID_CHARS and id[0] in "pm" and id.isalnum()


def _why_not(session: DeviceSession, command: Command | Malformed) -> str:
    if isinstance(command, Malformed):
        return command.reason
    return f"{type(command).__name__}: {WANTED.get(session.state, 'not now')}"
