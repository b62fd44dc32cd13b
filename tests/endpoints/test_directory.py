"""The directory: which record stands, who hears of it, and what the store keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.endpoints import ledger
from chappe.endpoints.directory import Directory, DirectoryOptions
from chappe.endpoints.record import Record, decode_record, encode_record
from chappe.errors import BadRequest, ConfigError, Overload, StorageError
from chappe.ids import Snowflake
from chappe.store.memory import MemoryStore
from chappe.store.sqlite import SqliteStore
from chappe.store.store import Store
from tests.hub.rig import ManualClock
from tests.loop import on_loop

WEEK_S = 7 * 24 * 3600


class Site:
    """A directory with a clock and ids of its own, as a node has."""

    def __init__(
        self,
        store: Store | None = None,
        node: int = 1,
        clock: ManualClock | None = None,
        **options: float,
    ) -> None:
        self.clock = clock or ManualClock()
        self.store = store or MemoryStore()
        self.directory = Directory(
            ids=Snowflake(node, self.clock.wall_ms),
            clock=self.clock,
            store=self.store,
            options=DirectoryOptions(**options),  # type: ignore[arg-type]
        )
        self.told: list[Record] = []
        self.directory.on_change = self.told.append


class WrappedStore(MemoryStore):
    """A store that counts its swaps, fails when told to, and lets another in before a swap."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = 0
        self.failing = False
        self.before_swap: list[tuple[str, bytes]] = []

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        self._fail()
        return await super().get(table, keys)

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        self._fail()
        self.swaps += 1
        while self.before_swap:
            other, raw = self.before_swap.pop()
            await self.change(table, {other: raw})
        return await super().swap(table, key, expected, value)

    def _fail(self) -> None:
        if self.failing:
            raise StorageError("the disk is on fire")


async def held(store: Store) -> dict[str, Record]:
    """The records in a store, by key."""
    found: dict[str, Record] = {}
    async for page in store.scan(ledger.TABLE):
        found.update((key, decode_record(key, raw)) for key, raw in page)
    return found


def everything(directory: Directory) -> Mapping[tuple[str, str], Record]:
    return {(r.app, r.address): r for page in directory.snapshot() for r in page}


@on_loop
async def test_a_change_is_effective_at_once_and_told_to_whoever_asked():
    site = Site()
    directory, heard = site.directory, list[Record]()
    directory.subscribe("topic", heard.append)
    made = directory.put("shop", "topic:news", b"1")
    assert directory.get("shop", "topic:news") == b"1"
    assert directory.get("other", "topic:news") is None
    directory.put("shop", "queue:jobs", b"2")
    assert directory.remove("shop", "topic:news")
    assert directory.get("shop", "topic:news") is None
    assert not directory.remove("shop", "topic:news")
    assert not directory.remove("shop", "topic:never")
    assert [(r.address, r.value) for r in heard] == [("topic:news", b"1"), ("topic:news", None)]
    assert site.told[0] == made
    assert [r.address for r in site.told] == ["topic:news", "queue:jobs", "topic:news"]
    await directory.close()


@on_loop
async def test_whoever_asks_later_hears_what_there_is():
    site, heard = Site(), list[Record]()
    site.directory.put("shop", "topic:a", b"1")
    site.directory.put("shop", "topic:b", b"2")
    site.directory.remove("shop", "topic:b")
    site.directory.put("shop", "queue:c", b"3")
    site.directory.subscribe("topic", heard.append)
    assert [(r.address, r.value) for r in heard] == [("topic:a", b"1")]
    assert [r.address for r in site.directory.records("shop", "topic")] == ["topic:a"]
    await site.directory.close()


@on_loop
async def test_a_listener_that_changes_what_it_hears_of_leaves_all_with_the_last_word():
    site, heard = Site(), list[Record]()

    def improve(record: Record) -> None:
        if record.value == b"1":
            site.directory.put(record.app, record.address, b"2")

    site.directory.subscribe("topic", improve)
    site.directory.subscribe("topic", heard.append)
    site.directory.put("shop", "topic:a", b"1")
    assert heard[-1].value == b"2"
    assert [r.value for r in site.told] == [b"1", b"2"]
    await site.directory.close()


@on_loop
async def test_to_say_the_same_again_changes_nothing():
    site = Site()
    first = site.directory.put("shop", "topic:a", b"1")
    assert site.directory.put("shop", "topic:a", b"1") is first
    assert len(site.told) == 1
    await site.directory.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@on_loop
async def test_a_directory_made_anew_loads_what_was_written(kind: str, tmp_path: Path):
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "db")
    one = Site(store)
    for i in range(1500):
        one.directory.put("shop", f"topic:{i}", str(i).encode())
    one.directory.remove("shop", "topic:7")
    await one.directory.close()
    two, heard = Site(store, node=2), list[Record]()
    two.directory.subscribe("topic", heard.append)
    await two.directory.load()
    assert everything(two.directory) == everything(one.directory)
    assert two.directory.get("shop", "topic:8") == b"8"
    # The removal is known, too: what is brought back from before it does not stand.
    assert two.directory.merge([Record("shop", "topic:7", 1, b"old")]) == []
    assert len({r.address for r in heard}) == 1500
    assert two.told == []  # what was loaded is no change for others to hear of
    await two.directory.close()
    await store.close()


@on_loop
async def test_a_change_gets_into_the_store_by_itself_and_many_of_one_record_together():
    store = WrappedStore()
    site = Site(store)
    for i in range(1000):
        site.directory.put("shop", "topic:a", str(i).encode())
    while "shop/topic:a" not in await held(store):
        await asyncio.sleep(0)
    assert (await held(store))["shop/topic:a"].value == b"999"
    assert store.swaps == 1
    await site.directory.close()


@on_loop
async def test_a_version_is_above_those_of_clocks_that_run_ahead():
    ahead, behind = Site(node=1), Site(node=2)
    ahead.clock.now_s += 3600
    theirs = ahead.directory.put("shop", "topic:a", b"ahead")
    behind.directory.merge([theirs])
    ours = behind.directory.put("shop", "topic:a", b"behind, but later")
    assert ours.beats(theirs)
    assert ahead.directory.merge([ours]) == [ours]
    assert ahead.directory.get("shop", "topic:a") == b"behind, but later"
    await ahead.directory.close()
    await behind.directory.close()


_records = st.builds(
    Record,
    st.sampled_from(["shop", "other"]),
    st.sampled_from(["topic:a", "topic:b", "queue:a"]),
    st.integers(1, 4),
    st.none() | st.sampled_from([b"", b"x", b"y"]),
)


@given(st.lists(_records, max_size=20), st.integers(0, 2**32))
def test_whatever_the_order_and_however_often_all_agree(records: list[Record], seed: int):
    @on_loop
    async def run() -> None:
        one, two = Site(node=1), Site(node=2)
        shuffled = [*records, *records]
        Random(seed).shuffle(shuffled)
        one.directory.merge(records)
        for record in shuffled:
            two.directory.merge([record])
        assert everything(one.directory) == everything(two.directory)
        assert one.directory.merge(shuffled) == []
        await one.directory.close()
        await two.directory.close()
        assert await held(one.store) == await held(two.store)
        assert len(await held(one.store)) == len(everything(one.directory))

    run()


@on_loop
async def test_news_is_what_changed_something():
    site, heard = Site(), list[Record]()
    site.directory.subscribe("topic", heard.append)
    old, new = Record("shop", "topic:a", 5, b"old"), Record("shop", "topic:a", 6, b"new")
    assert site.directory.merge([new, old, new]) == [new]
    assert heard == [new]
    assert site.told == []
    await site.directory.close()
    assert await held(site.store) == {"shop/topic:a": new}


@on_loop
async def test_a_shared_store_is_never_given_what_is_older_than_it_has():
    store = MemoryStore()
    one, two = Site(store, node=1), Site(store, node=2)
    heard: list[Record] = []
    one.directory.subscribe("topic", heard.append)
    one.directory.put("shop", "topic:a", b"older")
    two.clock.now_s += 60
    newer = two.directory.put("shop", "topic:a", b"newer")
    await two.directory.flush()
    await one.directory.flush()
    assert (await held(store))["shop/topic:a"] == newer
    # The other node's link may be down: what the store knows is taken over.
    assert one.directory.get("shop", "topic:a") == b"newer"
    assert heard[-1] == newer
    await one.directory.close()
    await two.directory.close()


@on_loop
async def test_what_another_writes_between_a_look_and_a_write_is_not_overwritten():
    store = WrappedStore()
    site = Site(store)
    newer = Record("shop", "topic:a", 2**62, b"newer")
    store.before_swap.append(("shop/topic:a", encode_record(newer)))
    site.directory.put("shop", "topic:a", b"older")
    await site.directory.flush()
    assert (await held(store))["shop/topic:a"] == newer
    assert site.directory.get("shop", "topic:a") == b"newer"
    older = Record("shop", "topic:b", 1, b"older")
    store.before_swap.append(("shop/topic:b", encode_record(older)))
    ours = site.directory.put("shop", "topic:b", b"ours")
    await site.directory.flush()
    assert (await held(store))["shop/topic:b"] == ours
    await site.directory.close()


@on_loop
async def test_what_changes_while_it_is_written_is_written_again():
    store = WrappedStore()
    site = Site(store)
    site.directory.put("shop", "topic:a", b"1")
    writing = asyncio.create_task(site.directory.flush())
    while not store.swaps:
        await asyncio.sleep(0)
    later = site.directory.put("shop", "topic:a", b"2")
    await writing
    assert await held(store) == {"shop/topic:a": later}
    await site.directory.close()


@on_loop
async def test_a_store_that_fails_holds_nothing_up_and_gets_it_later(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ledger, "PAUSE_S_MIN", 0.001)
    store = WrappedStore()
    store.failing = True
    site = Site(store)
    for i in range(200):
        site.directory.put("shop", f"topic:{i}", b"1")
    with pytest.raises(StorageError, match="on fire"):
        await site.directory.flush()
    assert site.directory.get("shop", "topic:0") == b"1"
    store.failing = False
    while len(await held(store)) < 200:  # without being asked to
        await asyncio.sleep(0)
    store.failing = True
    site.directory.remove("shop", "topic:0")
    with pytest.raises(StorageError, match="on fire"):
        await site.directory.close()
    store.failing = False
    await site.directory.close()
    assert (await held(store))["shop/topic:0"].value is None


@on_loop
async def test_what_is_removed_is_remembered_for_a_week():
    store = MemoryStore()
    site = Site(store)
    made = site.directory.put("shop", "topic:a", b"1")
    site.directory.remove("shop", "topic:a")
    await site.directory.flush()
    site.clock.now_s += WEEK_S - 1
    assert site.directory.merge([made]) == []
    tombstone = site.directory.record("shop", "topic:a")
    assert tombstone is not None
    site.clock.now_s += 2
    site.directory.put("shop", "topic:b", b"2")
    assert site.directory.record("shop", "topic:a") is None
    await site.directory.flush()
    assert list(await held(store)) == ["shop/topic:b"]
    # Another node that still has it does not bring it back.
    assert site.directory.merge([tombstone]) == []
    assert site.directory.record("shop", "topic:a") is None
    await site.directory.close()


@on_loop
async def test_what_ended_while_nobody_ran_is_not_loaded_and_leaves_the_store():
    store = MemoryStore()
    one = Site(store)
    one.directory.put("shop", "topic:a", b"1")
    one.directory.remove("shop", "topic:a")
    one.directory.put("shop", "token:7f3a", b"", one.clock.wall_ms() + 1000)
    one.directory.put("shop", "topic:b", b"2")
    await one.directory.close()
    two = Site(store)
    two.clock.now_s = one.clock.now_s + WEEK_S + 1
    await two.directory.load()
    assert list(everything(two.directory)) == [("shop", "topic:b")]
    await two.directory.flush()
    assert list(await held(store)) == ["shop/topic:b"]
    await two.directory.close()


@on_loop
async def test_what_has_an_end_goes_by_itself_and_whoever_listens_hears_of_it():
    site, heard = Site(), list[Record]()
    site.directory.subscribe("token", heard.append)
    site.directory.put("shop", "token:7f3a", b"", site.clock.wall_ms() + 1000)
    site.clock.now_s += 0.9
    site.directory.merge([])
    assert site.directory.get("shop", "token:7f3a") == b""
    site.clock.now_s += 0.2
    site.directory.merge([])
    assert site.directory.record("shop", "token:7f3a") is None
    assert [r.value for r in heard] == [b"", None]
    assert len(site.told) == 1
    await site.directory.close()
    assert await held(site.store) == {}


@on_loop
async def test_tombstones_are_bounded_and_the_oldest_go():
    store = WrappedStore()
    site = Site(store, tombstones_max=3)
    for i in range(10):
        site.directory.put("shop", f"topic:{i}", b"1")
    await site.directory.flush()
    store.failing = True
    for i in range(10):
        site.directory.remove("shop", f"topic:{i}")
    assert [a for _, a in everything(site.directory)] == ["topic:7", "topic:8", "topic:9"]
    store.failing = False
    await site.directory.flush()
    # What was before a tombstone that was never written goes with it.
    assert sorted(await held(store)) == ["shop/topic:7", "shop/topic:8", "shop/topic:9"]
    await site.directory.close()


@on_loop
async def test_records_are_bounded_for_an_app_and_for_all():
    site = Site(app_records_max=2, records_max=3, value_bytes_max=10)
    directory = site.directory
    directory.put("a", "topic:1", b"1")
    directory.put("a", "topic:2", b"2")
    with pytest.raises(Overload, match="app a has 2 records"):
        directory.put("a", "topic:3", b"3")
    directory.put("a", "topic:2", b"changed")
    directory.put("b", "topic:1", b"1")
    with pytest.raises(Overload, match="3 records"):
        directory.put("b", "topic:2", b"2")
    assert directory.merge([Record("c", "topic:1", 9, b"1")]) == []
    assert directory.refused == 1
    # A removal, and a change of what is there, need no room.
    news = [Record("a", "topic:1", 2**62, None), Record("b", "topic:1", 2**62, b"2")]
    assert directory.merge(news) == news
    directory.put("a", "topic:4", b"4")
    for address, value, said in (
        ("topic:a", b"x" * 11, "11 bytes"),
        ("topic:" + "x" * 600, b"", "address"),
        ("nothing", b"", "address"),
    ):
        with pytest.raises(BadRequest, match=said):
            directory.put("c", address, value)
    await directory.close()


@on_loop
async def test_ends_of_what_was_replaced_do_not_pile_up():
    site = Site()
    for i in range(5000):
        site.directory.put("shop", "token:a", b"", site.clock.wall_ms() + 1_000_000 + i)
    assert len(site.directory._ends) < 1000
    site.clock.now_s += 2000
    site.directory.merge([])
    assert everything(site.directory) == {}
    await site.directory.close()


@on_loop
async def test_a_snapshot_comes_in_pages_and_makes_another_node_equal():
    one, two = Site(node=1), Site(node=2)
    for i in range(950):
        one.directory.put(("shop", "other")[i % 2], f"topic:{i}", b"1")
    one.directory.remove("shop", "topic:0")
    pages = list(one.directory.snapshot(100))
    assert max(map(len, pages)) == 100
    for page in pages:
        two.directory.merge(page)
    assert everything(two.directory) == everything(one.directory)
    await one.directory.close()
    await two.directory.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"nonsense",
        encode_record(Record("shop", "topic:b", 1, b"")),
        encode_record(Record("shop", "topic:a", 0, b"")),
        encode_record(Record("shop", "topic:a", 2**63, b"")),
    ],
)
@on_loop
async def test_a_record_that_cannot_be_read_is_named(raw: bytes):
    store = MemoryStore()
    await store.change(ledger.TABLE, {"shop/topic:a": raw})
    site = Site(store)
    with pytest.raises(StorageError, match="shop/topic:a"):
        await site.directory.load()
    made = site.directory.put("shop", "topic:a", b"1")
    await site.directory.close()
    assert await held(store) == {"shop/topic:a": made}


@on_loop
async def test_a_later_release_may_add_fields():
    store = MemoryStore()
    raw = b"\x97" + encode_record(Record("shop", "topic:a", 9, b"1"))[1:] + b"\x01\x02"
    await store.change(ledger.TABLE, {"shop/topic:a": raw})
    site = Site(store)
    await site.directory.load()
    assert site.directory.get("shop", "topic:a") == b"1"
    await site.directory.close()


@on_loop
async def test_loading_again_keeps_what_is_newer_here_and_writes_it():
    store = MemoryStore()
    site = Site(store)
    await store.change(
        ledger.TABLE, {"shop/topic:a": encode_record(Record("shop", "topic:a", 1, b"old"))}
    )
    ours = Record("shop", "topic:a", 2, b"new")
    site.directory.merge([ours])
    await site.directory.flush()
    await store.change(
        ledger.TABLE, {"shop/topic:a": encode_record(Record("shop", "topic:a", 1, b"old"))}
    )
    await site.directory.load()  # a Redis has stepped back in time
    await site.directory.close()
    assert await held(store) == {"shop/topic:a": ours}


@pytest.mark.parametrize("name", DirectoryOptions.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_bound_that_bounds_nothing_is_refused(name: str, value: float):
    with pytest.raises(ConfigError, match=f"directory.{name}"):
        DirectoryOptions(**{name: value})  # type: ignore[arg-type]
