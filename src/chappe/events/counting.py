"""The recorder that counts, for `/metrics`; of what has no counter it keeps nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from chappe.events.recorder import Lent, Queued
from chappe.message import Message


class CountingRecorder:
    """The default recorder."""

    def __init__(self) -> None:
        self.came = 0
        self.opened: Counter[str] = Counter()
        self.closed: Counter[int] = Counter()
        # Plain numbers: these two are counted at least once per tick, the others seldom.
        self.sends = 0
        self.publishes = 0
        self.published_deliveries = 0
        self.refusals: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.users: Counter[str] = Counter()
        self.hooks: Counter[str] = Counter()

    @property
    def messages(self) -> dict[str, int]:
        """How many messages were taken, by op."""
        return {"send": self.sends, "publish": self.publishes}

    @property
    def deliveries(self) -> dict[str, int]:
        """How many messages were put into outboxes, by op; a send counts once, on any device."""
        return {"send": self.sends, "publish": self.published_deliveries}

    def tell(self, kind: str, app: str, **columns: object) -> None:
        pass

    def tell_each(
        self,
        kind: str,
        app: str,
        count: int,
        each: Mapping[str, Sequence[object]],
        **columns: object,
    ) -> None:
        pass

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self.opened[edge] += 1

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self.closed[code] += 1

    def sent(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.sends += len(messages)

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        self.sends += len(messages)

    def published(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.publishes += len(messages)
        self.published_deliveries += len(messages) * receivers

    def forwarded(
        self,
        app: str,
        messages: Sequence[Message],
        came_from: str,
        went_to: Sequence[str],
        *,
        promised: bool,
        role: str = "",
        taken_as: str = "",
    ) -> None:
        pass

    def copied(self, app: str, message: Message, came_from: str, taken_as: str = "") -> None:
        pass

    def declined(self, app: str, messages: Sequence[Message], reason: str) -> None:
        pass

    def refused(self, app: str, error: str) -> None:
        self.refusals[error] += 1

    def dropped(
        self,
        app: str,
        reason: str,
        messages: int,
        target: str = "",
        ids: Sequence[int] = (),
        role: str = "",
    ) -> None:
        self.drops[reason] += messages

    def handed(
        self,
        app: str,
        queue: str,
        message: int,
        sender: str,
        size: int,
        came: int,
        at: int,
        home: str,
    ) -> None:
        pass

    def stored(
        self, app: str, queue: str, messages: Sequence[Queued], came: int, came_from: str = ""
    ) -> None:
        pass

    def lent(self, app: str, queue: str, group: str, session: str, items: Sequence[Lent]) -> None:
        pass

    def acked(self, app: str, queue: str, group: str, items: Sequence[Lent]) -> None:
        pass

    def unwanted(self, app: str, queue: str, group: str, message: int) -> None:
        pass

    def returned(self, app: str, queue: str, group: str, item: Lent, reason: str) -> None:
        pass

    def died(
        self, app: str, queue: str, message: int, group: str, attempts: int, reason: str
    ) -> None:
        self.drops["dead_letter"] += 1

    def cancelled(self, app: str, queue: str, message: int) -> None:
        pass

    def replayed(self, app: str, queue: str, message: int) -> None:
        pass

    def purged(self, app: str, queue: str, message: int | None, count: int = 1) -> None:
        pass

    def recovered(self, app: str, queue: str, count: int) -> None:
        pass

    def retold(
        self,
        kind: str,
        app: str,
        queue: str,
        message: Queued,
        at: int,
        group: str,
        attempts: int,
        reason: str,
    ) -> None:
        pass

    def caught_up(self) -> None:
        pass

    def asked(
        self,
        app: str,
        request: str,
        sender: str,
        service: str,
        session: str,
        size: int,
        came: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        pass

    def answered(
        self, app: str, request: str, came: int, reason: str = "", came_from: str = ""
    ) -> None:
        pass

    def user_gone(self, app: str, address: str) -> None:
        self.users["gone"] += 1

    def user_came(self, app: str, address: str) -> None:
        self.users["came"] += 1

    def hooked(self, app: str, outcome: str) -> None:
        self.hooks[outcome] += 1

    def link_up(self, peer: str) -> None:
        pass

    def link_down(self, peer: str, reason: str) -> None:
        pass

    def link_beat(self, peer: str, ahead_us: int, round_trip_us: int) -> None:
        pass
