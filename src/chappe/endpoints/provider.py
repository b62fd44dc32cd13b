"""Providers of a service, what they were asked, and which of them is asked next."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from chappe.hub.deadline import Deadlines

if TYPE_CHECKING:
    from chappe.endpoints.service import Service
    from chappe.hub.session import Session


class Call:
    """A request to a service on its way: it waits, or one provider has it.

    Its requester is None once that is gone: then only the provider's time is still accounted for.
    """

    __slots__ = (
        "attempts",
        "binary",
        "came",
        "came_from",
        "deadline",
        "id",
        "idempotent",
        "payload",
        "provider",
        "request",
        "requester",
        "service",
    )

    deadline: list[Any]

    def __init__(
        self,
        service: Service,
        id: str,
        requester: Session,
        request: int | None,
        payload: bytes,
        binary: bool,
        idempotent: bool,
        came: int = 0,
        came_from: str = "",
    ) -> None:
        self.service = service
        self.id = id
        self.requester: Session | None = requester
        self.request = request
        self.payload = payload
        self.binary = binary
        self.idempotent = idempotent
        # When it was asked, as the recorder tells the time.
        self.came = came
        # The node that carried it here, and tells of it, too.
        self.came_from = came_from
        self.provider: Provider | None = None
        self.attempts = 0

    def lapse(self, now: float) -> None:
        """It was not answered in time."""
        self.service.expire(self, now)


class Provider:
    """A session that offers a service; retired once it takes no more requests."""

    __slots__ = ("calls", "level", "retired", "service", "session", "stalled")

    def __init__(self, service: Service, session: Session) -> None:
        self.service = service
        self.session = session
        self.calls: dict[str, Call] = {}
        self.level = -1
        self.retired = False
        self.stalled: list[Any] | None = None

    def lapse(self, now: float) -> None:
        """It has been passed over for long enough."""
        self.service.resume(self, now)


class Roster:
    """The providers that are free to take a request, by how many they have in hand.

    A change moves a provider by one level, so the least busy is found again in one step; only
    after one has left are the levels gone through, and there are few.
    """

    __slots__ = ("_least", "_levels", "_levels_max")

    def __init__(self, levels_max: int) -> None:
        self._levels_max = levels_max
        self._levels: dict[int, OrderedDict[Provider, None]] = {}
        self._least = 0

    def place(self, provider: Provider) -> None:
        """Put a provider where it belongs: behind those as busy, or nowhere if it takes none."""
        self.remove(provider)
        level = len(provider.calls)
        if provider.retired or provider.stalled is not None or level >= self._levels_max:
            return
        provider.level = level
        self._levels.setdefault(level, OrderedDict())[provider] = None
        self._least = min(self._least, level)

    def remove(self, provider: Provider) -> None:
        """Take a provider off, if it is on."""
        if provider.level < 0:
            return
        level = self._levels[provider.level]
        del level[provider]
        if not level:
            del self._levels[provider.level]
        provider.level = -1

    def next(self) -> Provider | None:
        """The least busy provider; among those as busy, the one that waited longest."""
        if not self._levels:
            self._least = 0
            return None
        while self._least not in self._levels:
            self._least += 1
        return next(iter(self._levels[self._least]))


class Calls:
    """All open calls of a node: by id, by who asked, and when their time is over."""

    __slots__ = ("by_id", "by_requester", "deadlines")

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.by_id: dict[str, Call] = {}
        self.by_requester: dict[Session, dict[str, Call]] = {}

    def open(self, call: Call, requester: Session, deadline: float) -> None:
        """Take note of a call."""
        call.deadline = self.deadlines.add(deadline, call)
        self.by_id[call.id] = call
        self.by_requester.setdefault(requester, {})[call.id] = call

    def close(self, call: Call) -> None:
        """Forget a call."""
        self.deadlines.cancel(call.deadline)
        del self.by_id[call.id]
        if call.requester is not None:
            self._strike(call, call.requester)

    def disown(self, call: Call) -> None:
        """Forget who asked."""
        if call.requester is not None:
            self._strike(call, call.requester)
            call.requester = None

    def of(self, requester: Session) -> list[Call]:
        """What a session has asked and waits for."""
        return list(self.by_requester.get(requester, {}).values())

    def _strike(self, call: Call, requester: Session) -> None:
        calls = self.by_requester[requester]
        del calls[call.id]
        if not calls:
            del self.by_requester[requester]
