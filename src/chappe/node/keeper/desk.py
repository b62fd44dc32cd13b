"""A desk: where the keeper serves one line, and what it holds for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import msgspec
import structlog

from chappe.errors import ChappeError, ClusterError, StorageError
from chappe.node.keeper import frame
from chappe.registry.bell import Bell
from chappe.registry.ledger import Ledger
from chappe.registry.membership import Member
from chappe.store.store import Store

log = structlog.get_logger()

# What one line may have under way; the rest waits in its socket.
REQUESTS_MAX = 256
SCANS_MAX = 64
# A page of a scan is sent in parts of about this size, whatever its values are.
PAGE_BYTES = 1024 * 1024
# A line that takes nothing is not told each change, but that there were some.
RINGS_BYTES_MAX = 256 * 1024

Page = list[tuple[str, bytes]]
Method = Callable[..., Awaitable[Any]]


class Desk:
    """Carries out the requests of one line."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        leases_from: float,
    ) -> None:
        self._ledger = ledger
        ledger.bell = _Wire(self._ring)
        self._reader = reader
        self._writer = writer
        self._leases_from = leases_from
        self._sessions: set[str] = set()
        self._scans = Scans(store)
        self._methods = self._ledger_methods() | _store_methods(store, self._scans)
        self._room = asyncio.Semaphore(REQUESTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._missed = False

    async def serve(self) -> None:
        """Serve until the line ends, which its process does by dying or by hanging up; then what it
        held is free. Cancelling it does the same."""
        try:
            while True:
                request, method, arguments = await frame.read(self._reader)
                await self._room.acquire()
                self._begin(self._answer(request, self._methods[method], arguments))
        except (EOFError, ConnectionError):
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            await self._scans.close()
            for session in self._sessions:
                await self._ledger.end(session)
            await self._ledger.close()
            self._writer.close()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: int, method: Method, arguments: list[Any]) -> None:
        try:
            try:
                packed = frame.pack(request, await method(*arguments))
            except ChappeError as error:
                packed = frame.pack_refusal(request, error)
            except OSError as error:
                packed = frame.pack_refusal(request, StorageError(f"keeper: {error}"))
            self._writer.write(packed)
            await self._writer.drain()
        except ConnectionError:
            pass  # Nobody is there to be told; `serve` has noticed as well.
        finally:
            self._room.release()

    def _ring(self, path: str | None) -> None:
        if self._missed or self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > RINGS_BYTES_MAX:
            self._missed = True
            self._begin(self._ring_later())
            return
        self._writer.write(frame.pack(0, path))

    async def _ring_later(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            return
        self._missed = False
        self._ring(None)

    def _ledger_methods(self) -> dict[str, Method]:
        ledger = self._ledger

        async def begin() -> str:
            session = await ledger.begin()
            self._sessions.add(session)
            return session

        async def end(session: str) -> None:
            await ledger.end(session)
            self._sessions.discard(session)

        async def enter(session: str, member: Any) -> Member | None:
            return await ledger.enter(session, msgspec.convert(member, Member))

        async def members() -> tuple[dict[str, Member], float | None]:
            found = await ledger.members()
            return dict(found.members), found.fresh_s

        async def take(session: str, path: str, tag: str, holder: bytes) -> int:
            left_s = self._leases_from - asyncio.get_running_loop().time()
            if left_s > 0:
                raise ClusterError(
                    f"keeper: was replaced, and gives leases in {left_s:.1f} s again"
                )
            return await ledger.take(session, path, tag, holder)

        async def seats(path: str) -> tuple[list[tuple[int, bytes]], float | None]:
            found = await ledger.seats(path)
            return list(found.seats.items()), found.fresh_s

        return {
            "ledger.begin": begin,
            "ledger.renew": ledger.renew,
            "ledger.end": end,
            "ledger.enter": enter,
            "ledger.withdraw": ledger.withdraw,
            "ledger.members": members,
            "ledger.next_id": ledger.next_id,
            "ledger.get": ledger.get,
            "ledger.put": ledger.put,
            "ledger.delete": ledger.delete,
            "ledger.take": take,
            "ledger.free": ledger.free,
            "ledger.sit": ledger.sit,
            "ledger.tell": ledger.tell,
            "ledger.rise": ledger.rise,
            "ledger.seats": seats,
        }


class Scans:
    """The scans of one line: a part of a page at each request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, AsyncGenerator[Page, None]] = {}

    async def begin(self, scan: int, table: str, prefix: str) -> Page:
        """Begin a scan and give its first part; an empty one is the end."""
        if len(self._open) >= SCANS_MAX:
            raise StorageError(f"keeper: {SCANS_MAX} scans are open already")
        self._open[scan] = _parts(self._store.scan(table, prefix))
        return await self.more(scan)

    async def more(self, scan: int) -> Page:
        """Give the next part; raises StorageError for a scan that another keeper began."""
        parts = self._open.get(scan)
        if parts is None:
            raise StorageError("keeper: was replaced during the scan")
        page: Page = await anext(parts, [])
        if not page:
            await self.stop(scan)
        return page

    async def stop(self, scan: int) -> None:
        """Forget a scan."""
        if (parts := self._open.pop(scan, None)) is not None:
            await parts.aclose()

    async def close(self) -> None:
        """Forget them all."""
        for scan in list(self._open):
            await self.stop(scan)


async def _parts(pages: AsyncIterator[Page]) -> AsyncGenerator[Page, None]:
    async with aclosing(cast("AsyncGenerator[Page, None]", pages)):
        async for page in pages:
            part: Page = []
            size = 0
            for key, value in page:
                part.append((key, value))
                size += len(key) + len(value)
                if size > PAGE_BYTES:
                    yield part
                    part, size = [], 0
            if part:
                yield part


def _store_methods(store: Store, scans: Scans) -> dict[str, Method]:
    return {
        "store.get": store.get,
        "store.change": store.change,
        "store.swap": store.swap,
        "store.clear": store.clear,
        "store.scan": scans.begin,
        "store.more": scans.more,
        "store.stop": scans.stop,
    }


class _Wire(Bell):
    """A bell whose rings are heard at the other end of a line."""

    def __init__(self, ring: Callable[[str | None], None]) -> None:
        super().__init__()
        self._far = ring

    def ring(self, path: str) -> None:
        self._far(path)

    def ring_all(self) -> None:
        self._far(None)
