"""What a client holds on to from one session to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chappe.client.notice import Notice
from chappe.errors import ConnectionClosed, RequestError
from chappe.wire.ops import AddressedOp, Reply

if TYPE_CHECKING:
    from chappe.client.event import Deferred


class Standing(Protocol):
    """A wish that is said again on every new connection: to subscribe, consume, provide, join."""

    @property
    def wanted(self) -> bool:
        """Whether it is still wished."""
        ...

    def ask(self) -> AddressedOp:
        """What to say to the hub."""
        ...

    def taken(self, reply: Reply) -> Notice | None:
        """The hub does it."""
        ...

    def refused(self, error: RequestError) -> Notice | Deferred | None:
        """The hub does not; it is wished no more, or said again after a while."""
        ...


class Tenant(Protocol):
    """A part of the client whose work lives and dies with connections."""

    def wishes(self) -> list[Standing]:
        """What is to be said on a new connection."""
        ...

    def leave(self) -> None:
        """This connection is about to be left: begin nothing more on it."""
        ...

    def lose(self) -> None:
        """The connection is gone."""
        ...

    def end(self, reason: ConnectionClosed) -> None:
        """There will be no other."""
        ...

    @property
    def busy(self) -> bool:
        """Whether something is under way that needs this connection."""
        ...
