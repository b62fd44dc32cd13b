"""Every error Chappe raises, and the one table of codes it answers and closes with.

ChappeError
  ProtocolError                 bytes that break the protocol
    LocalProtocolError          ... because this side was about to send them
    RemoteProtocolError         ... because the peer did; carries the close code
  RequestError                  a request that was answered with an error code
    Unreachable                 nobody is there to take it
    Overload                    a bound was reached; the same request may work later
      Throttled                 the caller asks more often than it may; says when to come back
      BusAway                   other processes cannot be asked now; says how many were reached here
    FatalRequestError           repeating the request cannot help
      Forbidden                 the identity may not do this
      BadRequest                the request itself is wrong
  ConnectionClosed              the session ended; `reconnect` says whether to try again
  ConfigError                   options that make no sense, found before anything starts
  ClusterError                  the registry, or another node, did not do what was asked
    Conflict                    a value had changed; carries what it is now
    Held                        somebody else holds it; carries what they say of themselves
  StorageError                  a store could not do what was asked
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class ErrorCode(StrEnum):
    """What a reply's `error` may say (H5)."""

    UNREACHABLE = "unreachable"
    OVERLOAD = "overload"
    FORBIDDEN = "forbidden"
    PROTOCOL = "protocol"


class CloseCode(IntEnum):
    """Why a session was closed: RFC 6455's codes, and ours from 4000 on."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013
    MALFORMED = 4000
    UNAUTHORIZED = 4001
    TOKEN_EXPIRED = 4002
    REVOKED = 4003
    HELLO_TIMEOUT = 4004
    HEARTBEAT_LOST = 4005
    SLOW_CONSUMER = 4006
    OUTBOX_EVICTED = 4007
    QUOTA = 4008

    @property
    def reconnect(self) -> bool:
        """Whether a client that sees this code should come back by itself."""
        return self not in GIVE_UP


# What a connection that broke without a close frame is said to have closed with; never sent.
ABNORMAL = 1006

GIVE_UP = frozenset(
    {
        CloseCode.NORMAL,
        CloseCode.PROTOCOL_ERROR,
        CloseCode.UNSUPPORTED_DATA,
        CloseCode.INVALID_TEXT,
        CloseCode.POLICY_VIOLATION,
        CloseCode.MESSAGE_TOO_BIG,
        CloseCode.MALFORMED,
        CloseCode.UNAUTHORIZED,
        CloseCode.TOKEN_EXPIRED,
        CloseCode.REVOKED,
    }
)


def should_reconnect(code: int) -> bool:
    """Tell whether a close code, known here or not, invites the client back."""
    try:
        return CloseCode(code).reconnect
    except ValueError:
        return True


class ChappeError(Exception):
    """Anything this package raises on purpose."""


class ProtocolError(ChappeError):
    """Bytes or ops that break the protocol; `reason` names what is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LocalProtocolError(ProtocolError):
    """This side was asked to send something that the protocol forbids."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol forbids."""

    def __init__(self, reason: str, close_code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        super().__init__(reason)
        self.close_code = close_code


class RequestError(ChappeError):
    """A request was answered with an error."""

    code = ErrorCode.PROTOCOL
    temporary = False
    # Whether the request may have been carried out all the same.
    outcome_unknown = False
    # For a request to several receivers: each address and what became of it, `ok` or an error code.
    verdicts: Mapping[str, str] | None = None

    def __init__(self, reason: str) -> None:
        super().__init__(f"{self.code}: {reason}")
        self.reason = reason


class Unreachable(RequestError):
    """Nobody at that address can take the message now."""

    code = ErrorCode.UNREACHABLE


class Overload(RequestError):
    """A bound was reached or the answer timed out.

    `outcome_unknown` is true when the request may still have been carried out.
    """

    code = ErrorCode.OVERLOAD
    temporary = True

    def __init__(self, reason: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(reason)
        self.outcome_unknown = outcome_unknown


class Throttled(Overload):
    """More was asked than this caller may; `retry_after_s` is when it may again."""

    def __init__(self, reason: str, retry_after_s: int) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class BusAway(Overload):
    """The bus is away: `reached` sessions of this process got it, and no others were asked.

    With `outcome_unknown`, some may have been reached all the same.
    """

    def __init__(self, reason: str, *, reached: int = 0, outcome_unknown: bool = False) -> None:
        super().__init__(reason, outcome_unknown=outcome_unknown)
        self.reached = reached


class FatalRequestError(RequestError):
    """Repeating the request cannot help."""


class Forbidden(FatalRequestError):
    """The identity may not do this."""

    code = ErrorCode.FORBIDDEN


class BadRequest(FatalRequestError):
    """The request is wrong; the reason names the field."""

    code = ErrorCode.PROTOCOL


class ConnectionClosed(ChappeError):
    """The session is over."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason
        self.reconnect = should_reconnect(code)

    def again(self) -> ConnectionClosed:
        """The same, to be raised once more: an exception that is raised twice mixes its traces."""
        copy = ConnectionClosed(self.code, self.reason)
        copy.__cause__ = self.__cause__
        return copy


class ConfigError(ChappeError):
    """An option is missing or wrong; the message names it."""


class ClusterError(ChappeError):
    """The registry, or another node, did not do what was asked; the message names which."""


class Conflict(ClusterError):
    """A value was not what its writer thought; `found` is the value and its version now."""

    def __init__(self, path: str, found: tuple[bytes, int] | None) -> None:
        super().__init__(f"{path}: changed meanwhile")
        self.found = found


class Held(ClusterError):
    """A lease is somebody else's; `holder` is what they said of themselves."""

    def __init__(self, path: str, holder: bytes) -> None:
        super().__init__(f"{path}: held by another")
        self.holder = holder


class StorageError(ChappeError):
    """A store could not do what was asked; the message names the store and the cause."""


_BY_CODE: dict[str, type[RequestError]] = {
    ErrorCode.UNREACHABLE: Unreachable,
    ErrorCode.OVERLOAD: Overload,
    ErrorCode.FORBIDDEN: Forbidden,
    ErrorCode.PROTOCOL: BadRequest,
}


def request_error(code: str, reason: str, *, outcome_unknown: bool = False) -> RequestError:
    """Make the typed error for a reply's `error` and `reason`."""
    error = _BY_CODE.get(code, RequestError)(reason)
    error.outcome_unknown = outcome_unknown
    return error
