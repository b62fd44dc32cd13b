"""Which rows make sense, which hour they are of, and that each is there once."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.events.schema import KINDS, VERSION
from chappe.ids import EPOCH_MS, TIME_MAX
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.schema import EVENT, arrow_schema
from chappe.pipeline.silver import Check, Closed, birth_hours, once
from tests.pipeline.traffic import DAY, HOUR, SECOND, Node, Row, World

H0, H1 = "2026-03-16T00", "2026-03-16T01"
FIRST, LAST = EPOCH_MS * 1000, (EPOCH_MS + TIME_MAX) * 1000
WHOLE = {"v": VERSION, "node": "n", "boot": 1, "serial": 1, "at": DAY, "share": 1.0}
MESSAGE = (DAY // 1000 - EPOCH_MS) << 22


def table(rows: list[Row]) -> pa.Table:
    """Rows of the events' schema; what they do not have is null."""
    return pa.Table.from_pylist(rows, arrow_schema(EVENT))


def problem(row: Row, closed: Closed | None = None) -> str | None:
    check = Check(table([row]), closed or Closed())
    [found] = check.problems().to_pylist()
    return None if found is None else str(found)


def hours(rows: list[Row]) -> list[str]:
    return [hour_name(n * HOUR_US) for n in birth_hours(Check(table(rows)).born).tolist()]


def world(*names: str) -> World:
    made = World(*(Node(name) for name in names))
    for name in names:
        made.start(name, DAY)
    return made


def test_rows_have_their_birth_hour():
    here = world("n1")
    message = here.store("n1", DAY + HOUR - 100)
    here.work("n1", DAY + 5 * HOUR, message, "lent")
    here.ask("n1", DAY + 2 * HOUR - 1, "n1.7", 2)
    here.tell("n1", DAY + 3 * HOUR, "session_opened", app="a", target="user/u", edge="tcp")
    found = [(row["kind"], hour) for row, hour in zip(here.rows, hours(here.rows), strict=True)]
    assert found == [
        ("node_started", H0),
        ("stored", H0),
        ("lent", H0),
        ("asked", H1),
        ("answered", H1),
        ("session_opened", "2026-03-16T03"),
    ]


def test_all_that_is_told_of_a_request_is_in_the_hour_of_its_label():
    here = world("n1", "n2")
    true = DAY + HOUR - SECOND
    label = f"n1.{here.id_at(true)}"
    here.tell("n1", true, "asked", app="a", label=label, target="service/s", went_to=["n2"])
    here.tell("n2", true + 2 * SECOND, "asked", app="a", label=label, came_from="n1")
    here.tell("n2", true + 3 * SECOND, "answered", app="a", label=label, came=true + 2 * SECOND)
    here.ask("n1", DAY + HOUR, "n1.7", 2)
    here.ask("n1", DAY + HOUR, "a push message's", 2)
    told = [row for row in here.rows if "label" in row]
    found = {(row["label"], hour) for row, hour in zip(told, hours(told), strict=True)}
    assert found == {(label, H0), ("n1.7", H1), ("a push message's", H1)}


def test_all_that_is_told_of_a_note_is_in_the_hour_of_its_id():  # P5
    here = world("n1", "n2")
    second = (DAY + HOUR - SECOND) // SECOND
    note, far = f"p0a00001{second:08x}", f"mzzfffff{(DAY + 5 * HOUR) // SECOND:08x}"
    here.tell("n1", DAY + HOUR - SECOND, "push_sent", app="a", label=note, job="j", n=1)
    here.tell("n2", DAY + 9 * HOUR, "push_acked", app="a", label=note, client="c")
    here.tell("n2", DAY, "push_clicked", app="a", label=far, client="c")
    # These are no ids of notes: they are of when that was told.
    strange = ["c0a00001", f"j0a00001{second:08x}", f"p0A00001{second:08x}", f"{note}0", f".{note}"]
    for label in strange:
        here.tell("n2", DAY + 2 * HOUR, "push_acked", app="a", label=label, client="c")
    told = [row for row in here.rows if "label" in row]
    found = {row["label"]: hour for row, hour in zip(told, hours(told), strict=True)}
    assert found == {
        note: H0,
        far: "2026-03-16T05",
        **dict.fromkeys(strange, "2026-03-16T02"),
    }


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_a_note_s_last_digits_are_the_second_in_which_it_was_given(seconds: list[int]):  # P5
    rows = [
        {**WHOLE, "kind": "push_clicked", "label": f"p0a00001{second:08x}", "client": "c"}
        for second in seconds
    ]
    assert Check(table(rows)).born.tolist() == [second * SECOND for second in seconds]


LABELS = st.lists(
    st.one_of(st.text(".-0a9", max_size=22), st.integers(0, 10**19).map(str)), min_size=1
).map(".".join)


@given(st.lists(st.tuples(LABELS, st.one_of(st.none(), st.integers(0, 9)))))
def test_a_label_s_last_number_says_when_a_request_was_asked_or_else_who_tells(cases):
    rows = [
        {**WHOLE, "kind": "answered", "label": label, "came": None if took is None else DAY - took}
        for label, took in cases
    ]
    found = Check(table(rows)).born.tolist()
    for (label, took), born in zip(cases, found, strict=True):
        last = label.rpartition(".")[2]
        digits = last.removeprefix("-")
        is_number = digits.isdigit() and len(digits) <= 18
        if is_number and int(last) >= 1 << 42:
            assert born == ((int(last) >> 22) + EPOCH_MS) * 1000
        else:
            assert born == DAY - (took or 0)


# What each kind cannot do without, besides what all have.
NEEDS = {
    **dict.fromkeys(KINDS, ()),
    **dict.fromkeys(("stored", "cancelled", "returned", "died", "replayed"), ("message",)),
    **dict.fromkeys(("lent", "acked"), ("message", "group_name")),
    **dict.fromkeys(("asked", "answered"), ("label",)),
    **dict.fromkeys(("link", "link_up", "link_down"), ("peer",)),
    "room_load": ("partition", "n"),
    "room_heat": ("app", "target", "partition", "n"),
    "room_link": ("came_from", "role", "peer", "n"),
    "room_alarm": ("peer", "reason"),
    "push_sent": ("label", "job", "n"),
    **dict.fromkeys(("push_handed", "push_acked", "push_retracted"), ("label",)),
    "push_absent": ("label", "n"),
    "push_bridged": ("label", "reason"),
    "push_clicked": ("label", "client"),
    "push_dropped": ("label", "reason"),
}
GIVEN = {"message": MESSAGE, "group_name": "g", "label": "l", "peer": "p", "came_from": "c"}
GIVEN |= {"app": "a", "target": "t", "role": "r", "reason": "w", "partition": 0, "n": 1}
GIVEN |= {"job": "j", "client": "c"}


def test_a_row_is_put_aside_exactly_if_it_lacks_what_it_needs():
    """Of each kind without each column, and without each two."""
    pairs = combinations_with_replacement([*WHOLE, *GIVEN], 2)
    cases = [(kind, set(pair)) for pair in pairs for kind in NEEDS]
    cases += [(kind, set()) for kind in NEEDS]
    rows = [
        {**{k: v for k, v in {**WHOLE, **GIVEN}.items() if k not in lacking}, "kind": kind}
        for kind, lacking in cases
    ]
    found = Check(table(rows)).problems().to_pylist()
    for (kind, lacking), problem in zip(cases, found, strict=True):
        missing = lacking & {*WHOLE, *NEEDS[kind]}
        assert problem in ({f"{name}: missing" for name in missing} or {None})


NO_TIME = "at no time that an id is given at"


@pytest.mark.parametrize(
    ("column", "good", "bad", "told"),
    [
        ("v", [1, VERSION, VERSION + 1], [0, -1], "not a version"),
        ("at", [FIRST, LAST], [FIRST - 1, 0, -1], "before any id was given"),
        ("at", [], [LAST + 1, 1 << 62], "beyond all ids"),
        ("message", [1, MESSAGE], [0, -1], "not an id"),
        *((name, [0, LAST], [-1, LAST + 1], NO_TIME) for name in ("boot", "came", "expires")),
        ("due", [0, LAST], [-1, LAST + 1], NO_TIME),
        *(
            (name, [0, 1 << 40], [-1, (1 << 40) + 1], "not a number of them")
            for name in ("n", "bytes", "round_trip", "offline")
        ),
        ("ahead", [-LAST, 0, LAST], [-LAST - 1, LAST + 1], NO_TIME),
        ("share", [1e-9, 1.0], [0.0, -0.5, 1.01, math.inf, math.nan], "not above 0 up to 1"),
        ("kind", ["sent", "purged"], ["", "Sent"], "unknown"),
    ],
)
def test_a_column_s_bounds(column: str, good: list[Any], bad: list[Any], told: str):
    row = {**WHOLE, "kind": "sent"}
    assert [problem({**row, column: value}) for value in good] == [None] * len(good)
    assert {problem({**row, column: value}) for value in bad} == {f"{column}: {told}"}


def test_a_row_of_a_later_version_may_be_of_a_kind_that_is_not_known():
    assert problem({**WHOLE, "kind": "new", "v": VERSION + 1}) is None


def test_what_is_late_is_put_aside_and_what_is_old_only_if_it_is_forgotten():
    old = {**WHOLE, "kind": "acked", "message": MESSAGE, "group_name": "g", "at": DAY + HOUR}
    assert problem(old, Closed(at_before=DAY + HOUR)) is None
    assert problem(old, Closed(at_before=DAY + HOUR + 1)) == "late: before 2026-03-16T01:00:00"
    assert problem(old, Closed(born_before=DAY)) is None
    forgotten = "late: of an hour before 2026-03-16T01:00:00, which is forgotten"
    assert problem(old, Closed(born_before=DAY + HOUR)) == forgotten


def test_a_time_that_makes_no_sense_is_of_no_hour():
    rows = [{**WHOLE, "kind": "node_alive", "at": at} for at in (-1, FIRST - 1, LAST + 1, FIRST)]
    assert birth_hours(Check(table(rows)).born).tolist() == [0, 0, 0, FIRST // HOUR_US]


EVENTS = st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 50))


@given(st.lists(EVENTS, max_size=60))
def test_what_was_written_down_several_times_is_there_once(events: list[tuple[str, int, int]]):
    def told(node: str, boot: int, serial: int) -> Row:
        kind = ("node_alive", "link_up")[serial % 2]
        number = {"node": node, "boot": boot, "serial": serial}
        # Some at the same time as others.
        return {**WHOLE, **number, "kind": kind, "at": DAY + serial // 5}

    found = once(table([told(*one) for one in events])).to_pylist()
    order = ("kind", "at", "node", "boot", "serial")
    truth = sorted((told(*one) for one in set(events)), key=lambda row: [row[n] for n in order])
    assert [[row[n] for n in order] for row in found] == [[row[n] for n in order] for row in truth]
