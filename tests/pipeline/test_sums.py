"""What paths say together is what is counted hop by hop, in however many pieces they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import hourly, packing, paths
from chappe.pipeline.sketch import ERROR
from chappe.pipeline.sums import DELIVERY, FLOWS, JOBS, LATENCY, LINKS, ROOMS, Sums
from tests.pipeline import plain, plain_push, plain_sums
from tests.pipeline.tales import OPTIONS, TALES, UNSHRUNK, Tale
from tests.pipeline.traffic import Row

H0 = "2026-03-16T00"


def sums_of(rows: pa.Table, tale: Tale) -> dict[str, pa.Table]:
    found, trails = paths.paths_of(rows, H0, tale.clocks(), OPTIONS)
    assert trails is not None
    return dict(Sums(found, trails, OPTIONS).all())


def made(name: str, *parts: pa.Table) -> list[Row]:
    """An hour's rows of a table."""
    rows: list[Row] = hourly._MAKERS[name](pa.concat_tables(parts)).to_pylist()
    return rows


def by(rows: Iterable[Row], keys: str, values: str) -> dict[Any, Any]:
    """Rows by some columns, each once."""
    pairs = [
        (tuple(row[name] for name in keys.split()), tuple(row[name] for name in values.split()))
        for row in rows
    ]
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


@UNSHRUNK
@given(TALES)
def test_steps_are_counted_by_how_long_they_took(tale: Tale):
    rows = made(LATENCY, sums_of(tale.table(), tale)[LATENCY])
    for row in rows:
        row["buckets"] = [(one["bucket"], one["count"]) for one in row["buckets"]]
    keys, values = "app family hop role window", "count scaled max buckets"
    assert by(rows, keys, values) == plain_sums.latency_of(plain.trails(tale), OPTIONS)


@UNSHRUNK
@given(TALES)
def test_links_have_what_was_handed_on_and_what_of_it_came(tale: Tale):
    rows = made(LINKS, sums_of(tale.table(), tale)[LINKS])
    found = by(rows, "node peer role window", "handed arrived delay_p50 delay_p99")
    truth = plain_sums.links_of(plain.trails(tale))
    for key, (handed, delays) in truth.items():
        assert found[key][:2] == (handed, len(delays))
        for percentile, share in zip(found[key][2:], (0.5, 0.99), strict=True):
            if not delays:
                assert percentile is None
                continue
            exact = max(1, delays[math.ceil(share * len(delays)) - 1])
            assert percentile == pytest.approx(exact, rel=ERROR * 1.0001)
    # Of what came from a node that does not tell of it, there may be a row of nothing.
    assert all(found[key][:2] == (0, 0) for key in found.keys() - truth.keys())


@UNSHRUNK
@given(TALES)
def test_queues_have_what_happened_in_them(tale: Tale):
    rows = made(FLOWS, sums_of(tale.table(), tale)[FLOWS])
    found = by(rows, "app queue what window bucket", "count frontier max")
    assert found == plain_sums.flows_of(plain.trails(tale), OPTIONS)


@UNSHRUNK
@given(TALES)
def test_what_was_promised_is_delivered_or_not_in_time_or_not(tale: Tale):
    rows = made(DELIVERY, sums_of(tale.table(), tale)[DELIVERY])
    found = by(rows, "app family window", "messages delivered in_time scaled")
    assert found == plain_sums.delivery_of(plain.trails(tale), OPTIONS)
    for row in rows:
        assert row["ratio"] == row["delivered"] / row["messages"]
        assert row["ratio_in_time"] == row["in_time"] / row["messages"]


@UNSHRUNK
@given(TALES)
def test_rooms_have_what_was_said_in_them_and_who_heard_it(tale: Tale):
    sums = sums_of(tale.table(), tale)
    rows = made(ROOMS, sums[ROOMS]) if ROOMS in sums else []
    found = by(rows, "app room window", "messages scaled deliveries members gateways")
    assert found == plain_sums.rooms_of(plain.trails(tale), OPTIONS)


@UNSHRUNK
@given(TALES)
def test_jobs_have_what_became_of_each_note(tale: Tale):  # P9
    sums = sums_of(tale.table(), tale)
    rows = made(JOBS, sums[JOBS]) if JOBS in sums else []
    found = {
        row["note"]: (
            tuple(row[n] for n in ("app", "job", "target", "window", "born", "expires")),
            tuple(row[n] for n in ("aimed", "sent", "arrived", "clicked")),
            tuple(row[n] for n in ("offline", "dropped", "withdrawn")),
            row["waiting"],
            row["max"],
            [(one["bucket"], one["count"]) for one in row["buckets"]],
        )
        for row in rows
    }
    assert len(found) == len(rows)
    assert found == plain_push.jobs_of(plain.trails(tale))
    for row in rows:
        for ratio, part, of in (
            ("sent_ratio", "sent", "aimed"),
            ("arrived_ratio", "arrived", "aimed"),
            ("clicked_ratio", "clicked", "arrived"),
        ):
            assert row[ratio] == (row[part] / row[of] if row[of] else None)


@UNSHRUNK
@given(TALES, st.integers(2, 5))
def test_sums_of_pieces_add_up_to_the_sums_of_all(tale: Tale, pieces: int):
    rows = tale.table()
    piece = packing.pieces_of({name: rows[name] for name in ("message", "label")}, pieces)
    parts = [
        sums_of(rows.take(pa.array(np.flatnonzero(piece == n))), tale)
        for n in sorted(set(piece.tolist()))
    ]
    for name, whole in sums_of(rows, tale).items():
        together = made(name, *(part[name] for part in parts if name in part))
        assert sorted(map(repr, together)) == sorted(map(repr, made(name, whole)))
