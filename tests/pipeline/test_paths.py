"""Paths, which are made of whole columns, are what is found hop by hop, whatever nodes tell."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.ids import Snowflake
from chappe.pipeline import packing, paths, reading
from chappe.pipeline.hours import HOUR_US
from chappe.pipeline.parts import Attempt, piece_of
from chappe.pipeline.schema import HOP_NAMES
from tests.pipeline import plain
from tests.pipeline.tales import OPTIONS, TALES, UNSHRUNK, Tale, clocks, table
from tests.pipeline.traffic import DAY, HOUR, SECOND, Hop, Node, Row, World

H0 = "2026-03-16T00"
ABOUT = ("message", "label", "app", "sender", "share")


def made(rows: pa.Table, tale: Tale) -> list[Row]:
    """Paths as rows, in the order of messages."""
    found, _trails = paths.paths_of(rows, H0, tale.clocks(), OPTIONS)
    return ordered(found.to_pylist())


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["label"] or "", row["message"] or 0))


@UNSHRUNK
@given(TALES)
def test_a_path_is_what_its_hops_say_one_by_one(tale: Tale):
    trails = plain.trails(tale)
    hops = {(one[0]["label"], one[0]["message"]): one for one in trails}
    truth = ordered([{"hour": H0, **plain.path(one, OPTIONS)} for one in trails])
    found = made(tale.table(), tale)
    for row in found:
        told = [{name: hop.get(name) for name in HOP_NAMES} for hop in hops[_key(row)]]
        assert row.pop("hops") == [{**hop, "bytes": None, "session": None} for hop in told]
    assert found == truth


def _key(row: Row) -> tuple[str | None, int | None]:
    return row["label"], row["message"]


@UNSHRUNK
@given(TALES, st.integers(1, 7), st.integers(1, 3))
def test_paths_of_pieces_are_the_paths_of_all(tale: Tale, pieces: int, packs: int):
    rows = tale.table()
    parts: dict[int, list[pa.Table]] = {}
    size = -(-rows.num_rows // packs)
    for begin in range(0, rows.num_rows, size):
        some = rows.slice(begin, size)
        for places, [piece] in packing.runs([packing.pieces_of(_of(some), pieces)]):
            parts.setdefault(piece, []).append(packed(some.take(pa.array(places))))
    assert all(0 <= piece < pieces for piece in parts)
    found = [row for part in parts.values() for row in made(pa.concat_tables(part), tale)]
    assert ordered(found) == made(rows, tale)


def test_messages_and_requests_are_spread_over_pieces():
    told = [{"label": f"n1.{n}"} for n in range(50)], [{"message": n + 1} for n in range(50)]
    for rows in map(table, told):
        assert set(packing.pieces_of(_of(rows), 3).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_ids_as_nodes_give_them_are_spread_evenly(pieces: int):
    """One in each millisecond, from three nodes."""
    now = itertools.count(1_773_619_200_000)
    nodes = [Snowflake(node, lambda: next(now)) for node in (1, 2, 3)]
    rows = table([{"message": node.next()} for _ in range(2000) for node in nodes])
    counts = np.bincount(packing.pieces_of(_of(rows), pieces))
    assert max(counts) < 1.1 * rows.num_rows / pieces


def _of(rows: pa.Table) -> dict[str, Any]:
    return {name: rows[name] for name in ("message", "label")}


def packed(rows: pa.Table) -> pa.Table:
    """Rows that were in a pack."""
    batch = packing.Pack(packing.MESSAGES, DAY // HOUR_US, 0, rows).batch()
    return packing.read(batch.column("data")[0])


@UNSHRUNK
@given(TALES)
def test_paths_that_are_taken_apart_give_the_same_paths(tale: Tale):
    first, _trails = paths.paths_of(tale.table(), H0, tale.clocks(), OPTIONS)
    hops = pa.table(reading._hops(first, ABOUT))
    again = table([*hops.drop_columns("shift").to_pylist(), *tale.rows])
    assert made(again, tale) == ordered(first.to_pylist())


def test_paths_go_through_files_and_back(tmp_path: Path):
    here = World(Node("n1"), Node("n2"))
    for node in here.nodes:
        here.start(node, DAY)
    here.publish(DAY + 1, [("n1", 0, 10), ("n2", 20, 30)])
    here.work("n1", DAY + 9 * SECOND, here.store("n1", DAY + SECOND), "lent")
    here.ask("n1", DAY, "n1.7", 2)
    told = [row for row in here.rows if row["kind"] != "node_started"]
    nowhere = clocks({})

    def gathered(run: int, *packs: packing.Pack) -> list[Row]:
        keys = ["born_hour", "piece", "note", "data"]
        batches = [pack.batch().select(keys) for pack in packs]
        attempt = Attempt(tmp_path, run, "one")
        list(paths._gathered(iter(batches), attempt, nowhere, OPTIONS, 1))
        files = attempt.place("paths").rglob("*.parquet")
        return ordered([row for file in files for row in pq.ParquetFile(file).read().to_pylist()])

    hour = DAY // HOUR_US
    first = gathered(1, packing.Pack(packing.MESSAGES, hour, 0, table(told)))
    columns = ("family", "open", "receivers", "born", "ready")
    assert {tuple(row[name] for name in columns) for row in first} == {
        ("queue", True, 0, DAY + SECOND, DAY + SECOND + 500),
        ("request", False, 0, DAY, None),
        ("topic", False, 2, DAY + 1, None),
    }
    [file] = Attempt(tmp_path, 1, "one").place("paths").rglob("*.parquet")
    names = pa.record_batch({"file": [str(file)]})
    packs = list(reading._paths([names], pieces=3))
    assert {batch["born_hour"][0].as_py() for batch in packs} == {hour}
    again = [
        packing.Pack(packing.MESSAGES, hour, batch["piece"][0].as_py(), packing.read(data))
        for batch in sorted(packs, key=lambda batch: batch["piece"][0].as_py())
        for data in batch["data"]
    ]
    assert len({pack.piece for pack in again}) > 1
    assert gathered(2, *again) == first
    # Of a file that has all of its piece only the name is passed on.
    assert (piece_of(str(file), 1), piece_of(str(file), 2)) == (0, None)
    named = packing.Pack(packing.MESSAGES, hour, 0, pa.table({"file": [str(file)]}), reading.FILES)
    assert gathered(3, named) == first


@pytest.mark.parametrize(
    "name", ["whole-7", "part-0", "part-1-of-30", "part-x-of-3", "part-1-of-3x"]
)
def test_a_file_whose_name_does_not_tell_may_have_any_piece(name: str):
    assert piece_of(f"/tables/paths/hour=2026-03-16T00/{name}.parquet", 3) is None


def test_who_dropped_a_message_got_it_and_others_may_still_serve_its_receiver():
    here = World(Node("n1"), Node("n2"), Node("n3"))
    for node in here.nodes:
        here.start(node, DAY)
    hops = [Hop("n1"), Hop("n2", "n1", 5, 5, 0)]
    about = {"kind": "sent", "target": "user/u"}
    lost, _left = here.travel(DAY, hops, silent=["n2"], **about)
    dropped, _left = here.travel(DAY, hops, silent=["n2"], **about)
    served, _left = here.travel(DAY, [*hops, Hop("n3", "n1", 5, 5, 1)], silent=["n2"], **about)
    for message in (dropped, served):
        here.tell("n2", DAY + 9, "dropped", message=message, target="user/u", reason="full")
    told = [row for row in here.rows if "message" in row]
    found, _trails = paths.paths_of(table(told), H0, clocks({}), OPTIONS)
    columns = ("message", "open", "vain", "suspect")
    assert [tuple(row[name] for name in columns) for row in ordered(found.to_pylist())] == [
        (lost, True, False, False),
        (dropped, False, True, True),
        (served, False, False, True),
    ]


def test_there_are_no_paths_of_nothing():
    found, trails = paths.paths_of(table([]), H0, clocks({}), OPTIONS)
    assert (found.num_rows, trails) == (0, None)
    assert paths.odd(found).num_rows == 0


@UNSHRUNK
@given(TALES)
def test_the_odd_ones_are_those_that_are_open_or_suspect(tale: Tale):
    found, _trails = paths.paths_of(tale.table(), H0, tale.clocks(), OPTIONS)
    kept = [row for row in found.to_pylist() if row["open"] or row["suspect"]]
    assert paths.odd(found).to_pylist() == kept


def test_a_message_that_waits_is_open_in_the_hour_of_its_birth_only_until_a_group_is_done():
    here = World(Node("n1"))
    here.start("n1", DAY)
    message = here.store("n1", DAY)

    def is_open() -> bool:
        rows = [row for row in here.rows if "message" in row]
        found, _trails = paths.paths_of(table(rows), H0, clocks({}), OPTIONS)
        return bool(found["open"][0].as_py())

    seen = [is_open()]
    for n, (kind, group) in enumerate(
        [("acked", "g"), ("lent", "h"), ("died", "h"), ("replayed", None), ("acked", "h")]
    ):
        here.work("n1", DAY + HOUR + n, message, kind, group_name=group)
        seen.append(is_open())
    assert seen == [True, False, True, False, True, False]
