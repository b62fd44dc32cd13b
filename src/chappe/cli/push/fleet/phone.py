"""One device of a fleet: as small as can be, and right in what it says.

It has no task and no timer of its own, remembers nothing of what it got, and leaves to its fleet
when to connect, to beat and to come back. Contents are decrypted, and so checked, and dropped.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from chappe.cli.push.fleet.tally import Tally
from chappe.device import Grant
from chappe.device.note import RETRACT
from chappe.errors import ProtocolError, RemoteProtocolError
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Error,
    ExchangeKey,
    GetMessageList,
    Heartbeat,
    Message,
    MessageAck,
    MessageList,
    MessageStruct,
    Ok,
    PushError,
    Response,
    Splitter,
    Subscribe,
    decode_response,
    encode_command,
    parts,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening

_BEAT = encode_command(Heartbeat())
_LIST = encode_command(GetMessageList())
# Acknowledgements wait while so much is unanswered: a comet refuses a device that asks too much.
_UNANSWERED_MAX = 8
# Whatever was asked, these end the session.
_FATAL = frozenset({PushError.TOKEN_EXPIRED, PushError.CLIENT_NOT_FOUND, PushError.DUPLICATE})


class Owner(Protocol):
    """What a device has in common with all others of its fleet."""

    tally: Tally
    topics: tuple[str, ...]

    def now_s(self) -> float:
        """A clock that only goes on."""
        ...

    def wall_ms(self) -> float:
        """Milliseconds since 1970."""
        ...

    def entropy(self, size: int) -> bytes:
        """Random bytes, for keys."""
        ...

    def ready(self, phone: Phone) -> None:
        """It is logged in."""
        ...

    def gone(self, phone: Phone) -> None:
        """Its connection is over."""
        ...


class Phone(asyncio.Protocol):
    """A device, connected or not."""

    __slots__ = (
        "_due",
        "_listing",
        "_opening",
        "_owner",
        "_splitter",
        "_transport",
        "_unanswered",
        "attempts",
        "begun_s",
        "ended",
        "grant",
        "index",
        "ready",
    )

    def __init__(self, owner: Owner, index: int) -> None:
        self._owner = owner
        self.index = index
        self.grant: Grant | None = None
        # How often in a row it did not get in.
        self.attempts = 0
        # When it last began to connect.
        self.begun_s = 0.0
        self.ready = False
        # Told that another device took its place: it does not come back (P15).
        self.ended = False
        self._transport: asyncio.Transport | None = None
        self._clear()

    def _clear(self) -> None:
        self._opening: Opening | None = None
        self._splitter = Splitter()
        self._due: list[str] = []
        self._unanswered = 0
        self._listing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.grant is not None
        self._clear()
        self._transport = cast(asyncio.Transport, transport)
        self._owner.tally.connected += 1
        self._transport.write(encode_command(Auth(self.grant.client, self.grant.token)))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take(decode_response(frame))
        except ProtocolError as error:
            self.fail(str(error))
            return
        if self._due and self._unanswered < _UNANSWERED_MAX:
            self._acknowledge()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.tally.connected -= 1
        if self.ready:
            self.ready = False
            self._owner.tally.logged_in -= 1
        self._clear()
        self._owner.gone(self)

    def beat(self) -> None:
        """Say that it is there."""
        if self.ready:
            self._ask(_BEAT)

    def fail(self, why: str) -> None:
        """Count an error, and hang up."""
        self._owner.tally.fail(why)
        if self._transport is not None:
            self._transport.abort()

    def give_up(self) -> None:
        """Hang up if it is connected, as nobody lets it in."""
        if self._transport is not None:
            self.fail("login: no answer in time")

    def close(self) -> None:
        """Hang up, after what was written."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, response: Response) -> None:
        match response:
            case Message(message):
                self._open(message, waited=False)
            case MessageList(messages):
                if self._listing:
                    self._listing = False
                    self._unanswered -= 1
                for message in messages:
                    self._open(message, waited=True)
            case Ok():
                self._take_ok()
            case Error():
                self._take_error(response)
            case AuthSuccess(encrypt_key):
                self._agree(encrypt_key)

    def _agree(self, encrypt_key: bytes) -> None:
        assert self.grant is not None
        if self._opening is not None:
            raise RemoteProtocolError("auth_success: a second one")
        private = self._owner.entropy(32)
        agreement = DeviceAgreement(self.grant.client, private, self.grant.identity)
        self._opening = agreement.agree(encrypt_key)
        self._ask(encode_command(ExchangeKey(agreement.secret_key)))

    def _take_ok(self) -> None:
        self._unanswered -= 1
        if self.ready:
            return
        if self._opening is None:
            raise RemoteProtocolError("ok: before a key")
        self.ready = True
        self.attempts = 0
        owner = self._owner
        owner.tally.logged_in += 1
        owner.tally.logins += 1
        owner.tally.login.add((owner.now_s() - self.begun_s) * 1000)
        if owner.topics:
            for part in parts(Subscribe(owner.topics)):
                self._ask(encode_command(part))
        self._listing = True
        self._ask(_LIST)
        owner.ready(self)

    def _take_error(self, error: Error) -> None:
        self._owner.tally.fail(f"error {error.code}: {error.reason}")
        if self.ready and error.code not in _FATAL:
            self._unanswered -= 1
            return
        if error.code == PushError.DUPLICATE:
            self.ended = True
        elif error.code in _FATAL:
            # With another token it may get in.
            self.grant = None
        self.close()

    def _open(self, message: MessageStruct, *, waited: bool) -> None:
        if self._opening is None:
            raise RemoteProtocolError("message: before a key")
        self._opening.open(message.head, message.encrypted_content)
        self._due.append(message.id)
        tally = self._owner.tally
        if message.type == RETRACT:
            tally.retractions += 1
            return
        tally.notes += 1
        if waited:
            tally.waited += 1
        else:
            tally.latency.add(self._owner.wall_ms() - message.timestamp)

    def _acknowledge(self) -> None:
        for part in parts(MessageAck(tuple(self._due))):
            self._ask(encode_command(part))
        self._owner.tally.acks += len(self._due)
        self._due.clear()

    def _ask(self, frame: bytes) -> None:
        if self._transport is not None:
            self._unanswered += 1
            self._transport.write(frame)
