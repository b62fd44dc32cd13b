"""Meta: apps, jobs and their tallies, requests that were seen, small records, what was used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from chappe.push.app import PushApp
from chappe.push.job import Job, Tally

# How long jobs, and who clicked their notes, are remembered.
JOB_DAYS = 30
JOB_MS = JOB_DAYS * 24 * 3600 * 1000


class MetaState(Protocol):
    """Small, asked often: callers cache apps for a second."""

    async def put_app(self, app: PushApp, *, new: bool) -> bool:
        """Write an app; with `new`, only if its key is not there yet. False if not, or if another
        app has its name."""
        ...

    async def apps(self, keys: Sequence[str]) -> dict[str, PushApp]:
        """Those of these apps that are there."""
        ...

    async def app_named(self, name: str) -> PushApp | None:
        """The app of a name."""
        ...

    async def list_apps(self, after: str, limit: int) -> list[PushApp]:
        """Apps by key, from the one after that."""
        ...

    async def remove_app(self, key: str) -> bool:
        """Forget an app; whether it was there."""
        ...

    async def put_job(self, job: Job, aimed: int) -> None:
        """Write a job, and how many it is aimed at. It is forgotten 30 days after it was made.

        Written again, as one that goes on with a send does, its counts stay as they are.
        """
        ...

    async def jobs(self, ids: Sequence[str]) -> dict[str, tuple[Job, Tally]]:
        """Those of these jobs that are there, each with its tally."""
        ...

    async def list_jobs(self, app: str, before: str | None, limit: int) -> list[tuple[Job, Tally]]:
        """An app's jobs, the newest first, from the one before that."""
        ...

    async def cancel_job(self, id: str, now_ms: int) -> bool:
        """Note that a job was cancelled; False if it was before, or is not there."""
        ...

    async def count(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add to tallies: by job, by the name of what is counted."""
        ...

    async def click(self, clicks: Sequence[tuple[str, str]]) -> list[bool]:
        """Note that clients clicked notes, (client, note) each; whether for the first time. It is
        remembered for as long as jobs are."""
        ...

    async def claim(self, nonce: str, until_ms: int) -> bool:
        """Whether a signed request was not seen before; it is remembered until then (P10)."""
        ...

    async def keep(self, name: str, value: bytes, until_ms: int) -> bytes:
        """Write a small record unless one of that name is there; which is there now.

        Of several processes that do so at once, all get what one of them wrote: so a deployment
        gets one identity, and a send that is repeated one job. Forgotten then; 0: never.
        """
        ...

    async def kept(self, name: str) -> bytes | None:
        """The record of a name, unless it is to be forgotten by now."""
        ...

    async def spend(self, names: Sequence[str], most: int, until_ms: int) -> list[bool]:
        """Use each of these once more; whether it had been used less often than `most` (1 or more)
        until now. Counts begin anew after that time, which is the same for all uses of a name."""
        ...
