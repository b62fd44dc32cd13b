"""Clocks are put right from what beats say of them, whichever links there are."""

from __future__ import annotations

import math
from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline.clocks import Offset, offsets, solve, solved
from chappe.pipeline.hours import hour_name, hour_us, hours_after
from chappe.pipeline.packing import SUMS, Pack
from chappe.pipeline.schema import EVENT, arrow_schema
from tests.pipeline.traffic import DAY, HOUR, MINUTE

H0, H1 = "2026-03-16T00", "2026-03-16T01"


def shifts(offsets: list[Offset], hour: str = H0) -> dict[tuple[str, int], int]:
    return {
        (shift.node, (shift.window - hour_us(hour)) // MINUTE): shift.shift
        for shift in solve(offsets, [hour])
    }


def test_hours_have_names():
    assert hour_us(H0) == DAY
    assert hour_name(DAY + HOUR + 5) == H1
    assert hours_after([H0], 1) == {H0, H1}


# Few values, so that much is equal.
BEATS = st.tuples(
    st.sampled_from([("a", "b"), ("b", "a")]),
    st.sampled_from([0, 1, MINUTE - 1, MINUTE]),
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(-9, 9)),
)


@given(st.lists(BEATS, max_size=60))
def test_clocks_are_told_by_the_median_of_the_quickest_quarter_of_beats(beats: list):
    names = ("pair", "at", "round_trip", "ahead")
    rows = [dict(zip(names, beat, strict=True)) for beat in beats]
    told = [
        {**row, "node": row["pair"][0], "peer": row["pair"][1], "at": DAY + row["at"]}
        for row in rows
    ]
    found = offsets(pa.Table.from_pylist(told, arrow_schema(EVENT))).to_pylist()
    by_minute: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for (node, peer), at, trip, ahead in beats:
        if trip is not None and ahead is not None:
            by_minute[node, peer, DAY + at - at % MINUTE].append((trip, ahead))
    truth = []
    for key, said in sorted(by_minute.items()):
        quickest = sorted(said)[: math.ceil(len(said) / 4)]
        truth.append((*key, sorted(a for _t, a in quickest)[(len(quickest) - 1) // 2]))
    assert [tuple(row.values()) for row in found] == truth


def test_of_beats_that_are_equally_quick_those_count_that_say_less():
    beat = {"node": "a", "peer": "b", "at": DAY, "round_trip": 1}
    said = [{**beat, "ahead": ahead} for ahead in (9, 8, 7, 6, 5)]
    [found] = offsets(pa.Table.from_pylist(said, arrow_schema(EVENT))).to_pylist()
    assert found["ahead"] == 5


def test_hours_are_solved_one_by_one_as_all_together():
    found = [Offset("a", "b", DAY + n * 7 * MINUTE, 1000 * n) for n in range(30)]
    hours = sorted({hour_name(one.window) for one in found})
    packs = {}
    for name in hours:
        mine = [one._asdict() for one in found if hour_name(one.window) == name]
        pack = Pack(SUMS, 0, 0, pa.Table.from_pylist(mine))
        packs[name] = pack.batch().column("data")[0]
    wanted = hours_after(hours, 2)
    assert len(wanted) == len(hours) + 2
    assert list(solved(packs, wanted)) == list(solve(found, wanted))


@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.integers(-(10**9), 10**9), min_size=2),
    st.randoms(use_true_random=False),
)
def test_nodes_that_are_linked_somehow_agree(ahead: dict[str, int], random):
    names = sorted(ahead)
    # A tree, so that all are linked, and each link told from either end.
    pairs = [(name, random.choice(names[:n])) for n, name in enumerate(names) if n]
    pairs = [pair if random.random() < 0.5 else pair[::-1] for pair in pairs]
    found = shifts([Offset(a, b, DAY, ahead[b] - ahead[a]) for a, b in pairs])
    assert {found[name, 30] + ahead[name] for name in names} == {ahead[names[0]]}


def test_both_ends_of_a_link_count():
    found = shifts([Offset("a", "b", DAY, 100), Offset("b", "a", DAY, -104)])
    assert found["b", 0] == -102


def test_those_that_are_not_linked_have_references_of_their_own():
    found = list(solve([Offset("a", "b", DAY, 5), Offset("c", "d", DAY, 7)], [H0]))
    assert {(one.node, one.reference, one.shift) for one in found} == {
        ("a", "a", 0),
        ("b", "a", -5),
        ("c", "c", 0),
        ("d", "c", -7),
    }


def test_a_minute_without_beats_has_the_last_before_it_or_else_the_first_after():
    found = shifts([Offset("a", "b", DAY + 10 * MINUTE, 5), Offset("a", "b", DAY + 20 * MINUTE, 9)])
    assert [found["b", n] for n in (0, 9, 10, 19, 20, 59)] == [-5, -5, -5, -5, -9, -9]


def test_an_hour_goes_on_from_the_one_before_and_from_no_other():
    before = [Offset("a", "b", DAY + 59 * MINUTE, 5)]
    assert shifts(before, H1)["b", 0] == -5
    assert not shifts(before, "2026-03-16T02")


@given(st.integers(-(10**8), 10**8), st.integers(-500, 500))
def test_a_clock_that_drifts_is_right_within_what_it_drifts_in_a_minute(ahead: int, ppm: int):
    def drifted(true: int) -> int:
        return ahead + (true - DAY) * ppm // 1_000_000

    # Each minute is told of by a beat in its middle.
    beats = [DAY + n * MINUTE for n in range(60)]
    found = shifts([Offset("a", "b", begin, drifted(begin + MINUTE // 2)) for begin in beats])
    for true in range(DAY, DAY + HOUR, 7 * MINUTE // 3):
        told = true + drifted(true)
        right = told + found["b", (true - DAY) // MINUTE]
        assert abs(right - true) <= abs(ppm) * 30 + 2
