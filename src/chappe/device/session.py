"""One connection to a comet, without I/O: bytes go in, what they mean and bytes to send come out.

    state      may come                       then
    ---------  -----------------------------  ---------------------------------------------
    GREETING   auth_success                   its signature is checked, exchange_key: AGREEING
    AGREEING   ok                             READY: whoever drives this asks for what waits
    READY      message_list, message          notes; whoever shows them acknowledges them
               ok, topic_list                 answers, in the order of what was asked
    any        error 0, 1 or 2                the session is over: ENDED
               error 3 or 4, or an unknown    before READY, or when nothing was asked: ENDED
                                              else the answer to what was asked first
    ENDED      anything                       ignored

Whatever else comes, at whatever time, breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import NamedTuple

from chappe.device.note import RETRACT, Note, Retraction
from chappe.errors import RemoteProtocolError
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Message,
    MessageList,
    MessageStruct,
    Ok,
    PushError,
    Response,
    Splitter,
    TopicList,
    decode_response,
    encode_command,
    parts,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening

# A comet refuses a device that asks more without waiting for answers.
UNANSWERED_MAX = 32


class State(Enum):
    """How far a session has got."""

    GREETING = auto()
    AGREEING = auto()
    READY = auto()
    ENDED = auto()


class Ready(NamedTuple):
    """The key is agreed: from now on messages come, and commands may go."""


class Arrived(NamedTuple):
    """A message, opened."""

    what: Note | Retraction


class Answered(NamedTuple):
    """A command was answered, by ok, by an error or by a part of a list."""

    number: int
    response: Response


class Ended(NamedTuple):
    """The comet ends the session."""

    code: int
    reason: str


Event = Ready | Arrived | Answered | Ended
_LISTS = (GetTopicList, GetMessageList)
# Whatever was asked, these are about the session.
_FATAL = frozenset({PushError.TOKEN_EXPIRED, PushError.CLIENT_NOT_FOUND, PushError.DUPLICATE})


class Session:
    """The device's side; `private` is 32 random bytes for this session alone.

    Raises LocalProtocolError for an identity that is none.
    """

    def __init__(self, *, client: str, token: str, identity: bytes, private: bytes) -> None:
        self._agreement = DeviceAgreement(client, private, identity)
        self._opening: Opening | None = None
        self._splitter = Splitter()
        # What was sent and not answered, with the number that its sender knows it by.
        self._asked: deque[tuple[type[Command], int]] = deque()
        # Of the list that is being answered: it may go on.
        self._listing: int | None = None
        self._next_number = 0
        self._outgoing = [encode_command(Auth(client, token))]
        self.state = State.GREETING

    @property
    def open(self) -> bool:
        """Whether a command may be sent."""
        return self.state is State.READY and len(self._asked) < UNANSWERED_MAX

    def to_send(self) -> bytes:
        """What is to be sent, once."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def ask(self, command: Command) -> int:
        """Send a command that one frame holds, if `open`; the number of its answer."""
        assert self.open
        assert len(parts(command)) == 1
        self._next_number += 1
        self._asked.append((type(command), self._next_number))
        self._outgoing.append(encode_command(command))
        return self._next_number

    def receive(self, data: bytes) -> list[Event]:
        """What bytes mean.

        Raises RemoteProtocolError, and UntrustedComet if the comet is not who it should be: the
        connection is of no use then.
        """
        events: list[Event] = []
        for frame in self._splitter.feed(data):
            if self.state is State.ENDED:
                break
            events += self._take(decode_response(frame))
        return events

    def _take(self, response: Response) -> list[Event]:
        if isinstance(response, Error):
            return [self._take_error(response)]
        if self.state is State.GREETING and isinstance(response, AuthSuccess):
            self._opening = self._agreement.agree(response.encrypt_key)
            self._outgoing.append(encode_command(ExchangeKey(self._agreement.secret_key)))
            self.state = State.AGREEING
            return []
        if self.state is State.AGREEING and isinstance(response, Ok):
            self.state = State.READY
            return [Ready()]
        if self.state is State.READY:
            return self._take_ready(response)
        raise self._unexpected(response)

    def _take_ready(self, response: Response) -> list[Event]:
        if isinstance(response, Message):
            return [self._open(response.message)]
        if isinstance(response, MessageList):
            # A long list is several frames, of which the first answers.
            if self._asked and self._asked[0][0] is GetMessageList:
                self._asked.popleft()
            return [self._open(message) for message in response.messages]
        if isinstance(response, Ok):
            return [self._answer(response)]
        if isinstance(response, TopicList):
            return [self._take_topics(response)]
        raise self._unexpected(response)

    def _take_topics(self, response: TopicList) -> Event:
        """A part of a list: the first answers, more may follow until there is another answer."""
        if self._listing is None:
            if not self._asked or self._asked[0][0] is not GetTopicList:
                raise self._unexpected(response)
            _, self._listing = self._asked.popleft()
        return Answered(self._listing, response)

    def _take_error(self, error: Error) -> Event:
        if self.state is State.READY and self._asked and error.code not in _FATAL:
            return self._answer(error)
        self.state = State.ENDED
        return Ended(error.code, error.reason)

    def _answer(self, response: Ok | Error) -> Answered:
        """The answer to what was asked first; lists are not answered by ok."""
        self._listing = None
        if not self._asked or (isinstance(response, Ok) and self._asked[0][0] in _LISTS):
            raise self._unexpected(response)
        return Answered(self._asked.popleft()[1], response)

    def _open(self, message: MessageStruct) -> Arrived:
        assert self._opening is not None
        content = self._opening.open(message.head, message.encrypted_content)
        if message.type != RETRACT:
            note = Note(message.id, message.job_id, message.type, message.timestamp, content)
            return Arrived(note)
        try:
            return Arrived(Retraction(content.decode(), message.id, message.timestamp))
        except UnicodeDecodeError:
            raise RemoteProtocolError("encrypted_content: not the id of a note") from None

    def _unexpected(self, response: Response) -> RemoteProtocolError:
        name, state = type(response).__name__, self.state.name
        return RemoteProtocolError(f"type: {name} is not expected ({state})")
