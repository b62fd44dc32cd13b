"""Clicks: devices tell that somebody looked at a note (P9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chappe.events.pushrecorder import Told
from chappe.push.admin.counting import Counting
from chappe.push.names import is_id
from chappe.push.state.meta import MetaState
from chappe.push.web.tokens import Tokens


class Click(NamedTuple):
    """A note that was clicked, and its job: a device knows both, and bodies are forgotten long
    before jobs are."""

    job: str
    note: str


class Clicks:
    """Counts the first click of each client on each note."""

    def __init__(self, meta: MetaState, tokens: Tokens, counting: Counting) -> None:
        self._meta = meta
        self._tokens = tokens
        self._counting = counting

    async def click(self, client: str, token: str, clicks: Sequence[Click]) -> int:
        """Count a client's clicks; how many were counted: on notes of its app, for the first time.
        Raises Unproven."""
        app = await self._tokens.holder(client, token)
        own = await self._own(app, clicks)
        first = await self._meta.click([(client, click.note) for click in own]) if own else []
        counted = [click for click, is_first in zip(own, first, strict=True) if is_first]
        for click in counted:
            self._counting.recorder.clicked(Told(app, click.note, click.job), client)
        await self._counting.count({click.job: {"clicked": 1} for click in counted})
        return len(counted)

    async def _own(self, app: str, clicks: Sequence[Click]) -> list[Click]:
        asked = [click for click in dict.fromkeys(clicks) if is_id(click.job, "j")]
        found = await self._meta.jobs([click.job for click in asked]) if asked else {}
        known = {(id_, job.note) for id_, (job, _) in found.items() if job.app == app}
        return [click for click in asked if click in known]
