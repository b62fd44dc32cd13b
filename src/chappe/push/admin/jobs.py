"""Jobs: what was sent, and what became of it (P9)."""

from __future__ import annotations

from typing import NamedTuple

from chappe.errors import Unreachable
from chappe.push.app import PushApp
from chappe.push.job import Job, Tally
from chappe.push.names import is_id
from chappe.push.state.meta import MetaState

_DIGITS = 4


class Ratios(NamedTuple):
    """Shares of those that a job was aimed at; `clicked`, of those that it arrived at."""

    sent: float
    arrived: float
    clicked: float
    offline: float
    dropped: float


class Jobs:
    """Looks jobs up."""

    def __init__(self, meta: MetaState) -> None:
        self._meta = meta

    async def find(self, app: PushApp, id: str) -> tuple[Job, Tally]:
        """A job and its tally; raises Unreachable."""
        found = (await self._meta.jobs([id])).get(id) if is_id(id, "j") else None
        if found is None or found[0].app != app.key:
            raise Unreachable("job: the app has no such, or it is forgotten")
        return found

    async def page(self, app: PushApp, before: str | None, limit: int) -> list[tuple[Job, Tally]]:
        """The app's jobs, the newest first, from the one before that; raises Unreachable if that
        is not one of them."""
        if before is not None:
            await self.find(app, before)
        return await self._meta.list_jobs(app.key, before, limit)


def ratios(tally: Tally) -> Ratios:
    """How well a job did."""
    aimed = tally.aimed
    return Ratios(
        sent=_share(tally.sent, aimed),
        arrived=_share(tally.arrived, aimed),
        clicked=_share(tally.clicked, tally.arrived),
        offline=_share(tally.offline, aimed),
        dropped=_share(tally.dropped, aimed),
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, _DIGITS) if whole else 0.0
