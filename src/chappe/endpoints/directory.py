"""The directory: what administrators have made, known to every node (H15, H16, H17).

Each address has one record; of two the larger version stands (see record.py). A change is effective
here at once, told to the other nodes by whoever set `on_change`, and written to the store behind.
What is removed leaves a tombstone, so that a node that was away does not bring it back. Tombstones
go after a week: a node that was away for longer may bring back what was removed meanwhile.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from chappe.clock import Clock
from chappe.endpoints.ledger import Ledger
from chappe.endpoints.record import Record
from chappe.errors import BadRequest, ConfigError, Overload
from chappe.ids import Snowflake
from chappe.store.store import Store

PAGE_RECORDS = 500
ADDRESS_CHARACTERS_MAX = 512

Callback = Callable[[Record], None]


class DirectoryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a directory holds."""

    # Every node holds all of it, at some 300 bytes a record.
    records_max: int = 1_000_000
    # One tenant leaves room for nine others.
    app_records_max: int = 100_000
    # A record is options, not content.
    value_bytes_max: int = 16 * 1024
    tombstones_max: int = 100_000
    # Longer than a node is away over a long weekend.
    tombstone_s: float = 7 * 24 * 3600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"directory.{name}: must be above 0, and finite")


class Directory:
    """Records by app and address. Everything but the store's part is synchronous."""

    def __init__(
        self,
        *,
        ids: Snowflake,
        clock: Clock,
        store: Store,
        options: DirectoryOptions | None = None,
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._options = options or DirectoryOptions()
        self._apps: dict[str, dict[str, Record]] = {}
        # How many records of each app are no tombstones, and of all.
        self._live: dict[str, int] = {}
        self._live_total = 0
        # Oldest first.
        self._tombstones: dict[tuple[str, str], None] = {}
        # What ends when; entries of records that were replaced meanwhile are passed over.
        self._ends: list[tuple[int, str, str, int]] = []
        self._subscribers: dict[str, list[Callback]] = {}
        self._ledger = Ledger(store, self.record, self.merge)
        # Called with each change made here, and only those: the cluster tells the other nodes.
        self.on_change: Callback | None = None
        # Records of other nodes that there was no room for.
        self.refused = 0

    def get(self, app: str, address: str) -> bytes | None:
        """The value at an address, or None."""
        record = self.record(app, address)
        return None if record is None else record.value

    def record(self, app: str, address: str) -> Record | None:
        """The record of an address, which may be a tombstone."""
        records = self._apps.get(app)
        return None if records is None else records.get(address)

    def records(self, app: str, kind: str) -> Iterator[Record]:
        """What there is of a kind in an app; looks at all records of the app."""
        for record in list(self._apps.get(app, {}).values()):
            if record.value is not None and record.kind == kind:
                yield record

    def put(self, app: str, address: str, value: bytes, until_ms: int = 0) -> Record:
        """Set a value from now on, for ever or until a time; raises Overload or BadRequest."""
        if len(address) > ADDRESS_CHARACTERS_MAX or ":" not in address:
            raise BadRequest(f"address: not one of at most {ADDRESS_CHARACTERS_MAX} characters")
        if len(value) > self._options.value_bytes_max:
            raise BadRequest(
                f"{address}: {len(value)} bytes of options, "
                f"{self._options.value_bytes_max} are allowed"
            )
        self._sweep()
        before = self.record(app, address)
        if before is not None and (before.value, before.until_ms) == (value, until_ms):
            return before
        if before is None or before.value is None:
            self._check_room(app)
        return self._make(app, address, value, until_ms)

    def remove(self, app: str, address: str) -> bool:
        """Remove what is at an address; whether there was anything. Raises Overload."""
        self._sweep()
        if self.get(app, address) is None:
            return False
        until_ms = self._clock.wall_ms() + int(self._options.tombstone_s * 1000)
        self._make(app, address, None, until_ms)
        return True

    def merge(self, records: Iterable[Record]) -> list[Record]:
        """Take over what others know; returns what was news here."""
        self._sweep()
        return [record for record in records if self._take(record)]

    def snapshot(self, page_records: int = PAGE_RECORDS) -> Iterator[list[Record]]:
        """Give all records, tombstones too, a page at a time.

        What changes between two pages may be missing: whoever sends a snapshot sends changes too.
        """
        for app in list(self._apps):
            addresses = iter(list(self._apps[app]))
            while page := list(islice(addresses, page_records)):
                found = (self.record(app, address) for address in page)
                yield [record for record in found if record is not None]

    def subscribe(self, kind: str, callback: Callback) -> None:
        """Call back with what there is of a kind, and with every change of it from now on, wherever
        it was made. A record without a value says that what was there is gone."""
        self._subscribers.setdefault(kind, []).append(callback)
        for app in list(self._apps):
            for record in self.records(app, kind):
                callback(record)

    async def load(self) -> None:
        """Take over what the store holds; raises StorageError, naming a record it cannot read."""
        async for page in self._ledger.read():
            now_ms = self._clock.wall_ms()
            for record in page:
                known = self.record(record.app, record.address)
                if record.expired(now_ms) and known is None:
                    self._ledger.drop(record)
                elif (
                    not self._take(record, stored=True)
                    and known is not None
                    and known.beats(record)
                ):
                    self._ledger.note(known)

    async def flush(self) -> None:
        """Write what the store does not have yet; raises StorageError, and keeps trying."""
        await self._ledger.flush()

    async def close(self) -> None:
        """Flush a last time; raises StorageError."""
        await self._ledger.close()

    def _make(self, app: str, address: str, value: bytes | None, until_ms: int) -> Record:
        """Change a record here: its version is above every one seen of it, whatever the clocks."""
        self._ids.tick()
        version = self._ids.next()
        before = self.record(app, address)
        if before is not None:
            version = max(version, before.version + 1)
        record = Record(app, address, version, value, until_ms)
        self._set(record, before)
        self._ledger.note(record)
        if self.on_change is not None:
            self.on_change(record)
        self._tell(record)
        return record

    def _take(self, record: Record, *, stored: bool = False) -> bool:
        """Let a record of elsewhere stand, if it does; whether that changed anything."""
        before = self.record(record.app, record.address)
        if before is None:
            if record.expired(self._clock.wall_ms()):
                return False
        elif not record.beats(before):
            return False
        adds = record.value is not None and (before is None or before.value is None)
        if adds and self._live_total >= self._options.records_max:
            self.refused += 1
            return False
        self._set(record, before)
        if not stored:
            self._ledger.note(record)
        self._tell(record)
        return True

    def _set(self, record: Record, before: Record | None) -> None:
        app, address = record.app, record.address
        if before is not None:
            self._count(before, -1)
        self._apps.setdefault(app, {})[address] = record
        self._count(record, 1)
        if record.until_ms:
            self._end(record)
        while len(self._tombstones) > self._options.tombstones_max:
            self._drop(*next(iter(self._tombstones)))

    def _count(self, record: Record, by: int) -> None:
        app = record.app
        if record.value is not None:
            self._live[app] = self._live.get(app, 0) + by
            self._live_total += by
        elif by > 0:
            self._tombstones[app, record.address] = None
        else:
            del self._tombstones[app, record.address]

    def _end(self, record: Record) -> None:
        heapq.heappush(self._ends, (record.until_ms, record.app, record.address, record.version))
        standing = self._live_total + len(self._tombstones)
        if len(self._ends) > 2 * standing + PAGE_RECORDS:
            self._ends = [end for end in self._ends if self._stands(*end)]
            heapq.heapify(self._ends)

    def _stands(self, until_ms: int, app: str, address: str, version: int) -> bool:
        record = self.record(app, address)
        return record is not None and (record.until_ms, record.version) == (until_ms, version)

    def _sweep(self) -> None:
        """Drop what nobody needs any more."""
        now_ms = self._clock.wall_ms()
        while self._ends and self._ends[0][0] <= now_ms:
            end = heapq.heappop(self._ends)
            if self._stands(*end):
                self._drop(end[1], end[2])

    def _drop(self, app: str, address: str) -> None:
        record = self._apps[app].pop(address)
        self._count(record, -1)
        if not self._apps[app]:
            del self._apps[app]
            self._live.pop(app, None)
        self._ledger.drop(record)
        if record.value is not None:
            self._tell(msgspec.structs.replace(record, value=None))

    def _tell(self, record: Record) -> None:
        standing = self.record(record.app, record.address)
        for callback in self._subscribers.get(record.kind, ()):
            callback(record)
            if self.record(record.app, record.address) is not standing:
                # That one changed it again, and all have heard of that.
                return

    def _check_room(self, app: str) -> None:
        if self._live.get(app, 0) >= self._options.app_records_max:
            raise Overload(f"app {app} has {self._options.app_records_max} records already")
        if self._live_total >= self._options.records_max:
            raise Overload(f"the directory holds {self._options.records_max} records already")
