"""A session that is addressed by key, as handlers see it, and the handshake it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from chappe.errors import CloseCode
from chappe.wire.keyed import MESSAGE

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.keys.broker import Broker


class Handshake:
    """How somebody knocks: looked at by whoever may refuse.

    Header names are in lower case; of a header or parameter that comes twice, the last one stands.
    What is put into `state` is the session's, should there be one.
    """

    __slots__ = ("client", "headers", "path", "query", "state")

    def __init__(self, path: str, query: str, headers: Mapping[str, str], client: str) -> None:
        self.path = path.rstrip("/") or "/"
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.headers = headers
        self.client = client
        self.state: dict[str, Any] = {}


class KeySession:
    """One connection, and the keys it has.

    `state` is for handlers to remember things in. Its methods are for the event loop's thread.
    """

    __slots__ = ("_broker", "core", "handshake", "keys")

    def __init__(self, broker: Broker, core: Session, handshake: Handshake) -> None:
        self._broker = broker
        # The hub's end of it: the outbox, and where its bytes go.
        self.core = core
        self.handshake = handshake
        # K2: the keys of a session; the other way is the broker's table.
        self.keys: dict[str, None] = {}

    @property
    def id(self) -> str:
        """A name that nobody guesses."""
        return self.core.id

    @property
    def path(self) -> str:
        """Where it connected to: `/orders`."""
        return self.handshake.path

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its handshake, names in lower case."""
        return self.handshake.headers

    @property
    def query(self) -> Mapping[str, str]:
        """What stood behind the question mark."""
        return self.handshake.query

    @property
    def state(self) -> dict[str, Any]:
        """Whatever handlers want to remember."""
        return self.handshake.state

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent to it any more."""
        return self.core.closed

    async def send(self, data: Any, *, type: str = MESSAGE, key: str = "") -> bool:
        """Say something to this session alone, bytes as a binary message; whether it is taken.

        A session that does not read is closed rather than left without what it was sent.
        """
        return self._broker.say(self, data, type=type, key=key)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """End it, after what it was sent before."""
        self._broker.end(self, code, reason)

    def __repr__(self) -> str:
        return f"<KeySession {self.path} {len(self.keys)} keys>"
