"""Seats: the users of the hub that have sessions here, each as a client of push."""

from __future__ import annotations

from typing import NamedTuple


class Seat(NamedTuple):
    """A user with sessions here: the hub's app and the user's name, the app's key, the client."""

    app: str
    user: str
    key: str
    client: str


class Seats:
    """By client, and by user."""

    __slots__ = ("_by_client", "_by_user")

    def __init__(self) -> None:
        self._by_client: dict[str, Seat] = {}
        self._by_user: dict[tuple[str, str], Seat] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def take(self, seat: Seat) -> None:
        """Somebody sits down."""
        self._by_client[seat.client] = self._by_user[seat.app, seat.user] = seat

    def of(self, client: str) -> Seat | None:
        """The user that a client is."""
        return self._by_client.get(client)

    def of_user(self, app: str, user: str) -> Seat | None:
        """The client that a user is."""
        return self._by_user.get((app, user))

    def leave(self, seat: Seat) -> None:
        """Somebody rises."""
        self._by_client.pop(seat.client, None)
        self._by_user.pop((seat.app, seat.user), None)

    def clients(self) -> list[str]:
        """All of them."""
        return list(self._by_client)
