"""Rows of a file are sorted out into packs: each is in one, by what it is of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from chappe.events.schema import KINDS
from chappe.ids import prefixed_ms
from chappe.pipeline import packing, reading
from chappe.pipeline.hours import HOUR_US
from chappe.pipeline.schema import EVENT, arrow_schema
from chappe.pipeline.silver import NOTHING_CLOSED
from tests.pipeline.tales import TALES, UNSHRUNK, Tale
from tests.pipeline.traffic import DAY, HOUR, Row

SCHEMA = arrow_schema(EVENT)
WHOLE = {"v": 1, "node": "n1", "boot": 1, "at": DAY, "share": 1.0}


def rows_of(tale: Tale) -> list[Row]:
    """Only what makes sense: what is lent or done has a group, a request has a label."""
    rows = [{"v": 1, **row, "group_name": row["group_name"] or "g"} for row in tale.rows]
    return [
        row for row in rows if all(row.get(name) is not None for name in KINDS[row["kind"]].needs)
    ]


def begun(row: Row) -> int:
    """When that began which a row tells of: a message and a note say it by their ids."""
    if row["message"]:
        return DAY
    note_ms = prefixed_ms(row["label"]) if row["label"] else None
    return note_ms * 1000 if note_ms is not None else row["came"] or row["at"]


@UNSHRUNK
@given(
    TALES,
    st.lists(st.tuples(st.sampled_from(["link", "node_alive"]), st.integers(0, 2)), max_size=9),
    st.lists(st.sampled_from(["nobody knows", "lent", "link"]), max_size=9),
    st.integers(1, 5),
)
def test_each_row_is_in_one_pack_with_others_of_its_hour_and_piece(tale, events, bad, pieces):
    messages = rows_of(tale)
    others = [
        {**WHOLE, "serial": -n, "kind": kind, "peer": "n2", "at": DAY + hour * HOUR}
        for n, (kind, hour) in enumerate(events)
    ]
    wrong = [{**WHOLE, "serial": -100 - n, "kind": kind} for n, kind in enumerate(bad)]
    table = pa.Table.from_pylist([*wrong, *messages, *others], SCHEMA)
    packs = list(reading._sorted_out(table, NOTHING_CLOSED, pieces, "file"))
    found: dict[int, Counter[int]] = {
        what: Counter() for what in (packing.MESSAGES, packing.EVENTS, packing.BAD)
    }
    places: dict[object, int] = {}
    for pack in packs:
        rows = pack.rows.to_pylist()
        found[pack.what].update(row["serial"] for row in rows)
        assert 0 <= pack.piece < pieces
        if pack.what == packing.MESSAGES:
            for row in rows:
                assert pack.born_hour == begun(row) // HOUR_US
                key = row["label"] or row["message"]
                assert places.setdefault(key, pack.piece) == pack.piece
        elif pack.what == packing.EVENTS:
            assert {row["at"] // HOUR_US for row in rows} == {pack.born_hour}
            beats = any(row["kind"] == "link" for row in rows)
            assert pack.note == (reading.BEATS if beats else None)
        else:
            assert all(row["problem"] and row["file"] == "file" for row in rows)
    assert len({pack[:3] for pack in packs}) == len(packs)
    truth = {packing.MESSAGES: messages, packing.EVENTS: others, packing.BAD: wrong}
    for what, rows in truth.items():
        assert found[what] == Counter(row["serial"] for row in rows)


def test_columns_that_a_file_lacks_are_null_and_those_that_nobody_knows_are_left_out(
    tmp_path: Path,
):
    file = tmp_path / "hour=01" / "n1.parquet"
    file.parent.mkdir()
    told = {**WHOLE, "serial": 1, "kind": "node_alive"}
    pq.write_table(pa.table({name: [value] for name, value in {**told, "new": "?"}.items()}), file)
    [batch] = reading._events([pa.record_batch({"file": [str(file)]})], NOTHING_CLOSED, 1)
    [row] = packing.read(batch["data"][0]).to_pylist()
    assert row == {**dict.fromkeys(SCHEMA.names), **told}


def test_a_file_of_nothing_gives_no_packs():
    assert list(reading._sorted_out(SCHEMA.empty_table(), NOTHING_CLOSED, 3, "file")) == []
