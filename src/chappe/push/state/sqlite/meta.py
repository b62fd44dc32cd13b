"""Apps, jobs, clicks, nonces and small records in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sqlite3 import Connection, IntegrityError
from typing import Any

import msgspec

from chappe.push.app import PushApp
from chappe.push.job import Job, Tally
from chappe.push.state.meta import JOB_MS
from chappe.store.database import Database

_encode = msgspec.msgpack.Encoder().encode
_decode_app = msgspec.msgpack.Decoder(PushApp).decode
_decode_job = msgspec.msgpack.Decoder(Job).decode

_NEW_APP = "INSERT INTO apps VALUES (?, ?, ?)"
_PUT_APP = _NEW_APP + " ON CONFLICT (key) DO UPDATE SET name = excluded.name, body = excluded.body"
_COUNTED = Tally.__struct_fields__
_JOB = (
    "SELECT body, cancelled_ms, aimed, sent, arrived, clicked, offline, dropped FROM jobs "
    "WHERE expires_ms > ?"
)
_ADD = {name: f"UPDATE jobs SET {name} = {name} + ? WHERE id = ?" for name in _COUNTED}  # noqa: S608 - our own names
_PUT_JOB = """
INSERT INTO jobs (id, app, created_ms, expires_ms, cancelled_ms, body, aimed)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET body = excluded.body, aimed = excluded.aimed
"""
_CANCEL = "UPDATE jobs SET cancelled_ms = ? WHERE id = ? AND cancelled_ms = 0 AND expires_ms > ?"
# What is remembered is written over once it has expired.
_CLICK = """
INSERT INTO clicks VALUES (?, ?, ?) ON CONFLICT (client, note)
DO UPDATE SET expires_ms = excluded.expires_ms WHERE expires_ms <= ?
"""
_CLAIM = """
INSERT INTO nonces VALUES (?, ?) ON CONFLICT (nonce)
DO UPDATE SET expires_ms = excluded.expires_ms WHERE expires_ms <= ?
"""
_KEEP = """
INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (name)
DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms WHERE expires_ms <= ?
"""
_KEPT = "SELECT value FROM records WHERE name = ? AND expires_ms > ?"
# As far as SQLite's numbers go.
NEVER_MS = 2**63 - 1
_SPEND = """
INSERT INTO uses VALUES (?, 1, ?) ON CONFLICT (name)
DO UPDATE SET count = CASE WHEN expires_ms <= ? THEN 1 ELSE count + 1 END,
    expires_ms = excluded.expires_ms
WHERE count < ? OR expires_ms <= ?
"""


class SqliteMeta:
    """The tables of apps, jobs, clicks, nonces, records and uses."""

    def __init__(self, database: Database, wall_ms: Callable[[], int]) -> None:
        self._database = database
        self._wall_ms = wall_ms

    async def put_app(self, app: PushApp, *, new: bool) -> bool:
        """Write an app; with `new`, only if its key is not there yet. False if not, or if another
        app has its name."""
        row = (app.key, app.name, _encode(app))

        def write(connection: Connection) -> bool:
            try:
                connection.execute(_NEW_APP if new else _PUT_APP, row)
            except IntegrityError:
                return False
            return True

        return await self._database.do(write, writes=True)

    async def apps(self, keys: Sequence[str]) -> dict[str, PushApp]:
        """Those of these apps that are there."""

        def read(connection: Connection) -> list[bytes]:
            reading = "SELECT body FROM apps WHERE key = ?"
            return [row[0] for key in keys for row in connection.execute(reading, (key,))]

        found = map(_decode_app, await self._database.do(read, writes=False))
        return {app.key: app for app in found}

    async def app_named(self, name: str) -> PushApp | None:
        """The app of a name."""
        found = await self._apps("SELECT body FROM apps WHERE name = ?", name)
        return found[0] if found else None

    async def list_apps(self, after: str, limit: int) -> list[PushApp]:
        """Apps by key, from the one after that."""
        reading = "SELECT body FROM apps WHERE key > ? ORDER BY key LIMIT ?"
        return await self._apps(reading, after, limit)

    async def _apps(self, reading: str, *arguments: Any) -> list[PushApp]:
        rows = await self._database.do(
            lambda c: c.execute(reading, arguments).fetchall(), writes=False
        )
        return [_decode_app(body) for (body,) in rows]

    async def remove_app(self, key: str) -> bool:
        """Forget an app; whether it was there."""

        def write(connection: Connection) -> bool:
            return connection.execute("DELETE FROM apps WHERE key = ?", (key,)).rowcount > 0

        return await self._database.do(write, writes=True)

    async def put_job(self, job: Job, aimed: int) -> None:
        """Write a job, and how many it is aimed at. It is forgotten 30 days after it was made."""
        expires_ms = job.created_ms + JOB_MS
        row = (job.id, job.app, job.created_ms, expires_ms, job.cancelled_ms, _encode(job), aimed)
        await self._database.do(lambda c: c.execute(_PUT_JOB, row), writes=True)

    async def jobs(self, ids: Sequence[str]) -> dict[str, tuple[Job, Tally]]:
        """Those of these jobs that are there, each with its tally."""
        now_ms = self._wall_ms()

        def read(connection: Connection) -> list[Any]:
            reading = _JOB + " AND id = ?"
            return [row for job in ids for row in connection.execute(reading, (now_ms, job))]

        found = _jobs(await self._database.do(read, writes=False))
        return {job.id: (job, tally) for job, tally in found}

    async def list_jobs(self, app: str, before: str | None, limit: int) -> list[tuple[Job, Tally]]:
        """An app's jobs, the newest first, from the one before that."""
        now_ms = self._wall_ms()
        reading, ordered = _JOB + " AND app = ?", " ORDER BY created_ms DESC, id DESC LIMIT ?"

        def read(connection: Connection) -> list[Any]:
            if before is None:
                return connection.execute(reading + ordered, (now_ms, app, limit)).fetchall()
            place = connection.execute(
                "SELECT created_ms, id FROM jobs WHERE id = ?", (before,)
            ).fetchone()
            if place is None:
                return []
            earlier = reading + " AND (created_ms, id) < (?, ?)" + ordered
            return connection.execute(earlier, (now_ms, app, *place, limit)).fetchall()

        return _jobs(await self._database.do(read, writes=False))

    async def cancel_job(self, id: str, now_ms: int) -> bool:
        """Note that a job was cancelled; False if it was before, or is not there."""

        def write(connection: Connection) -> bool:
            return connection.execute(_CANCEL, (now_ms, id, now_ms)).rowcount > 0

        return await self._database.do(write, writes=True)

    async def count(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add to tallies: by job, by the name of what is counted."""
        added = [
            (_ADD[name], (number, job))
            for job, counted in counts.items()
            for name, number in counted.items()
        ]

        def write(connection: Connection) -> None:
            for adding, row in added:
                connection.execute(adding, row)

        await self._database.do(write, writes=True)

    async def click(self, clicks: Sequence[tuple[str, str]]) -> list[bool]:
        """Note that clients clicked notes, (client, note) each; whether for the first time."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> list[bool]:
            return [
                connection.execute(_CLICK, (*click, now_ms + JOB_MS, now_ms)).rowcount > 0
                for click in clicks
            ]

        return await self._database.do(write, writes=True)

    async def claim(self, nonce: str, until_ms: int) -> bool:
        """Whether a signed request was not seen before; it is remembered until then (P10)."""
        row = (nonce, until_ms, self._wall_ms())
        return await self._database.do(lambda c: c.execute(_CLAIM, row).rowcount > 0, writes=True)

    async def keep(self, name: str, value: bytes, until_ms: int) -> bytes:
        """Write a small record unless one of that name is there; which is there now."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> bytes:
            connection.execute(_KEEP, (name, value, until_ms or NEVER_MS, now_ms))
            # What was written to be forgotten at once is not found, and is what there was.
            row = connection.execute(_KEPT, (name, now_ms)).fetchone()
            return value if row is None else bytes(row[0])

        return await self._database.do(write, writes=True, size=len(value))

    async def kept(self, name: str) -> bytes | None:
        """The record of a name, unless it is to be forgotten by now."""
        row = (name, self._wall_ms())
        found = await self._database.do(lambda c: c.execute(_KEPT, row).fetchone(), writes=False)
        return None if found is None else bytes(found[0])

    async def spend(self, names: Sequence[str], most: int, until_ms: int) -> list[bool]:
        """Use each of these once more; whether it was not used so often before."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> list[bool]:
            return [
                connection.execute(_SPEND, (name, until_ms, now_ms, most, now_ms)).rowcount > 0
                for name in names
            ]

        return await self._database.do(write, writes=True)


def _jobs(rows: Iterable[Any]) -> list[tuple[Job, Tally]]:
    found = []
    for body, cancelled_ms, *counted in rows:
        job = msgspec.structs.replace(_decode_job(body), cancelled_ms=cancelled_ms)
        found.append((job, Tally(**dict(zip(_COUNTED, counted, strict=True)))))
    return found
