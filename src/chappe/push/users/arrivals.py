"""Arrivals: users that came become clients of push, with a route to here.

Whom the store could not be asked for waits, for as long as it has a session, and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import structlog

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.ids import PrefixedIds
from chappe.push.comet.batch import Batch
from chappe.push.names import USER_DEVICE
from chappe.push.state.states import States
from chappe.push.users.seats import Seat

log = structlog.get_logger()

# Looked up in one go.
AT_ONCE = 64
# How long it is believed that an app of the hub has, or has not, an app of push.
APP_S = 5.0
APPS_MAX = 10_000


class Arrivals:
    """Finds seats for users."""

    def __init__(
        self,
        server: int,
        states: States,
        ids: PrefixedIds,
        clock: Clock,
        *,
        online: Callable[[str, str], bool],
        sit: Callable[[Seat], None],
        seated: Callable[[Seat], None],
    ) -> None:
        self._server = server
        self._states = states
        self._ids = ids
        self._clock = clock
        self._online = online
        # Called before notes are led here, and when they are.
        self._sit = sit
        self._seated = seated
        # By the hub's app and the user. Who leaves is taken out: these are users with sessions.
        self._coming: dict[tuple[str, str], None] = {}
        # By the hub's app: the key of its app of push, if it has one, and until when that is known.
        self._keys: dict[str, tuple[str | None, float]] = {}
        self._batch: Batch[None] = Batch("users", self._work, at_once=1, most=1)

    def __len__(self) -> int:
        return len(self._coming)

    def add(self, app: str, user: str) -> None:
        """A user came."""
        self._coming[app, user] = None
        self.kick()

    def drop(self, app: str, user: str) -> None:
        """A user went."""
        self._coming.pop((app, user), None)

    def kick(self) -> None:
        """Go on, if anybody waits."""
        if self._coming:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until all are seated, or the store has failed."""
        await self._batch.idle()

    async def _work(self, _: list[None]) -> None:
        while self._coming:
            users = list(islice(self._coming, AT_ONCE))
            for each in users:
                # Before: who leaves and comes again meanwhile is seated anew.
                del self._coming[each]
            try:
                await self._take_seats(users)
            except StorageError as error:
                log.warning("push.users.came", reason=str(error))
                self._coming |= {each: None for each in users if self._online(*each)}
                return

    async def _take_seats(self, users: list[tuple[str, str]]) -> None:
        """Seat users; those that are done are taken out of the list."""
        seats: list[Seat] = []
        failed: StorageError | None = None
        for app, user in list(users):
            try:
                seat = await self._maybe_seat(app, user)
            except StorageError as error:
                failed = error
                break
            if seat is None:
                users.remove((app, user))
            else:
                seats.append(seat)
        await self._lead_here(seats)
        for seat in seats:
            users.remove((seat.app, seat.user))
        if failed is not None:
            # The others are not to wait behind the one that it is about.
            users.append(users.pop(0))
            raise failed

    async def _lead_here(self, seats: list[Seat]) -> None:
        if not seats:
            return
        for seat in seats:
            self._sit(seat)
        # Before what waits is read: what is sent from then on comes here.
        await self._states.route.move({seat.client: self._server for seat in seats})
        for seat in seats:
            self._seated(seat)

    async def _maybe_seat(self, app: str, user: str) -> Seat | None:
        key = await self._maybe_key(app)
        if key is None or not self._online(app, user):
            return None
        device = f"{USER_DEVICE}{user}"
        client = await self._states.user.claim_client(key, device, self._ids.next("c"))
        if client.user != user and not await self._states.user.bind(key, user, client.id):
            log.warning("push.users.crowded", app=app, reason="this user has too many clients")
            return None
        return Seat(app, user, key, client.id)

    async def _maybe_key(self, app: str) -> str | None:
        known = self._keys.get(app)
        now = self._clock.monotonic()
        if known is not None and known[1] > now:
            return known[0]
        found = await self._states.meta.app_named(app)
        key = found.key if found is not None and found.enabled else None
        if len(self._keys) >= APPS_MAX:
            self._keys.clear()
        self._keys[app] = (key, now + APP_S)
        return key
