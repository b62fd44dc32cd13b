"""User: clients, the devices and users they are of, their tokens, and bridges to platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

# How many clients a user may have.
CLIENTS_PER_USER_MAX = 20
# How many tokens a client may have: one, mostly, and a few that its device lost or is about to
# replace. One more takes the place of the one that expires first.
TOKENS_PER_CLIENT_MAX = 8


class Client(NamedTuple):
    """A device of an app, and the user it belongs to, if that is known."""

    id: str
    app: str
    device: str
    user: str | None = None


class TokenHolder(NamedTuple):
    """Whose a token is, and until when, in milliseconds since 1970."""

    client: str
    expires_ms: int


class UserState(Protocol):
    """Tokens are known by the first 16 bytes of their SHA-256 only."""

    async def claim_client(self, app: str, device: str, new: str, most: int = 0) -> Client:
        """The client of a device, made with that id if there is none; raises Overload if the app
        has `most` clients already (0: however many)."""
        ...

    async def clients(self, ids: Sequence[str]) -> dict[str, Client]:
        """Those of these clients that are there."""
        ...

    async def clients_of_devices(self, app: str, devices: Sequence[str]) -> dict[str, str]:
        """The clients of those devices that have one."""
        ...

    async def remove_client(self, id: str) -> Client | None:
        """Forget a client, its tokens, bridges and user; what it was."""
        ...

    async def count_clients(self, app: str) -> int:
        """How many clients an app has."""
        ...

    async def put_token(self, digest: bytes, holder: TokenHolder) -> None:
        """Write a token of a client that is there; it is forgotten when it expires, or when the
        client has too many."""
        ...

    async def tokens(self, digests: Sequence[bytes], now_ms: int) -> list[TokenHolder | None]:
        """Whose tokens these are; None: nobody's, or expired."""
        ...

    async def revoke(self, digest: bytes) -> TokenHolder | None:
        """Forget a token; whose it was."""
        ...

    async def revoke_client(self, client: str) -> int:
        """Forget all tokens of a client; how many there were."""
        ...

    async def bind(self, app: str, user: str, client: str) -> bool:
        """Let a client belong to a user, and to no other; False if the user has too many, or the
        app has no such client."""
        ...

    async def unbind(self, app: str, client: str) -> str | None:
        """Let a client belong to nobody; whose it was."""
        ...

    async def clients_of_users(self, app: str, users: Sequence[str]) -> Mapping[str, list[str]]:
        """The clients of each of those users that has any."""
        ...

    async def put_bridge(self, client: str, kind: str, value: bytes) -> bool:
        """Write how a client is reached while it is not connected, by a kind of provider, in place
        of what was there; False if there is no such client. It is forgotten with the client."""
        ...

    async def bridges(self, clients: Sequence[str], kind: str) -> dict[str, bytes]:
        """How those of these clients are reached that have a bridge of a kind."""
        ...

    async def remove_bridge(self, client: str, kind: str, value: bytes | None = None) -> bool:
        """Forget a bridge; with a value, only if it is that one. Whether it was there."""
        ...
