"""Which processes died: by what they said, and by what others did. From literal rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import lives
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Row, hour

OPTIONS = Options()
YEARS = 10 * 366 * 24 * HOUR
H0 = hour(DAY)


def life(node: str, alive: int | None, **columns: int) -> Row:
    """A life that began at midnight; `boot` is that by its own clock, `began` by the right one."""
    nothing = dict.fromkeys(TABLES["lives"].names)
    told = {"node": node, "boot": DAY, "began": DAY, "alive": alive, "missed": 0}
    return {**nothing, "hour": H0, "recovered": [], "removed": [], **told, **columns}


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, arrow_schema(TABLES["lives"]))


def lived(*rows: Row, written: int | None = None, forgotten: Sequence[str] = ()) -> lives.Lived:
    return lives.Lived([table(rows)], OPTIONS, written, forgotten)


def died(written: int | None, *rows: Row) -> tuple[set[str], int | None]:
    """Who died, and until when anybody told anything."""
    found, horizon = lived(*rows, written=written).known()
    return {one.node for one in found if one.died}, horizon


def told(rows: list[Row], shifts: dict[tuple[str, int], int]) -> list[Row]:
    events = pa.Table.from_pylist(rows, arrow_schema(EVENT))
    return lives.told(events, H0, clocks(shifts)).to_pylist()


def test_a_node_died_if_it_is_back_or_silent_without_having_stopped():
    rows = [
        life("stopped", DAY, stopped=DAY),
        life("slow", DAY + HOUR - MINUTE, missed=1),
        life("silent", DAY + HOUR - 3 * MINUTE),
        life("back", DAY + HOUR, boot=2, began=2),
        life("back", DAY + HOUR - MINUTE, boot=1, began=1),
    ]
    found, horizon = lived(*rows).known()
    assert [(one.node, one.boot, one.died, set(one.missed)) for one in found] == [
        ("back", 1, True, set()),
        ("back", 2, False, set()),
        ("silent", DAY, True, set()),
        ("slow", DAY, False, {H0}),
        ("stopped", DAY, False, set()),
    ]
    assert horizon == DAY + HOUR


def test_a_life_is_what_it_told_in_all_hours_together():
    later = hour(DAY + HOUR)
    rows = [
        life("n1", DAY + HOUR, hour=later, began=DAY - 2, missed=3, stopped=DAY + HOUR),
        life("n1", DAY + MINUTE, began=DAY - 1),
        life("n1", None, hour="2026-03-16T02", began=DAY, missed=1),
    ]
    missed = frozenset({later, "2026-03-16T02"})
    n1 = lives.Life("n1", DAY, DAY - 2, DAY + HOUR, DAY + HOUR, None, missed, died=False)
    assert lived(*rows).known() == ([n1], DAY + HOUR)
    assert lived(written=DAY).known() == ([], None)
    # Of whom there is no sign of life, nobody can say that it is silent.
    assert died(None, life("n2", None), *rows) == (set(), DAY + HOUR)


def test_a_node_is_silent_for_longer_than_it_may_be_or_not() -> None:
    now, grace = DAY + HOUR, OPTIONS.grace_ms * 1000
    assert died(None, life("here", now), life("mute", now - grace)) == (set(), now)
    assert died(None, life("here", now), life("mute", now - grace - 1)) == ({"mute"}, now)


def test_a_time_may_be_as_much_later_than_files_were_written() -> None:
    now, grace = DAY + HOUR, OPTIONS.grace_ms * 1000
    believed, not_any_more = now + grace, now + grace + 1
    assert died(now, life("n1", believed)) == (set(), believed)
    assert died(now, life("n1", believed, boot=DAY + YEARS)) == (set(), believed)
    assert died(now, life("n1", not_any_more)) == (set(), now)
    # By its own clock, where that of all is years ahead.
    assert died(now, life("n1", believed + YEARS, began=DAY + YEARS)) == (set(), believed)
    assert died(now, life("n1", not_any_more + YEARS, began=DAY + YEARS)) == (set(), now)


def test_a_clock_that_is_years_ahead_makes_nobody_dead() -> None:
    now = DAY + HOUR
    one, two = life("one", now - SECOND), life("two", now)
    silent = life("silent", now - 5 * MINUTE)
    fast = life("fast", now + YEARS)
    assert died(now, one, two, silent) == ({"silent"}, now)
    assert died(now, one, two, silent, fast) == ({"silent"}, now)
    # A little ahead of the clock that files were written by is nothing.
    assert died(now - MINUTE, one, two, silent) == ({"silent"}, now)
    # Whose clock was put right counts.
    right = life("right", now + MINUTE, boot=DAY + YEARS)
    assert died(now, one, silent, right) == ({"silent"}, now + MINUTE)


def test_others_are_put_right_by_a_clock_that_is_years_ahead() -> None:
    now = DAY + HOUR
    ahead = life("ahead", now + YEARS, boot=DAY + YEARS, began=DAY + YEARS)
    group = [ahead, life("linked", now + YEARS, began=DAY + YEARS)]
    assert died(now, *group, life("alone", now)) == (set(), now)
    assert died(now, *group, life("alone", now - HOUR)) == ({"alone"}, now)
    # If there is nobody else, nobody is called dead for being silent.
    assert died(now, ahead, life("further", now + 2 * YEARS)) == (set(), now)


def test_a_process_that_is_gone_died_and_one_that_stopped_did_not() -> None:
    now = DAY + HOUR
    rows = [
        life("gone", now, gone=now),
        life("here", now),
        life("stopped", now, gone=now, stopped=now),
    ]
    assert died(now, *rows)[0] == {"gone"}


def test_that_a_process_is_gone_is_told_and_is_no_sign_of_life() -> None:
    about = {"node": "n1", "boot": DAY}
    words = [
        {"kind": "node_started", "serial": 1, "at": DAY, **about},
        {"kind": "node_alive", "serial": 2, "at": DAY + SECOND, **about},
        {"kind": "node_gone", "serial": 3, "at": DAY + 2 * SECOND, **about},
    ]
    [one] = told(words, {("n1", DAY): 5})
    assert (one["began"], one["alive"], one["stopped"]) == (DAY + 5, DAY + SECOND + 5, None)
    assert one["gone"] == DAY + 2 * SECOND + 5


def test_queues_are_known_by_when_they_were_last_gone_on_with_and_removed() -> None:
    def queue(name: str, at: int) -> Row:
        return {"app": "a", "target": f"queue/{name}", "at": at}

    rows = [
        life("n1", DAY) | {"recovered": [queue("q", 3), queue("r", 2)]},
        life("n2", DAY) | {"recovered": [queue("q", 1)], "removed": [queue("r", 7), queue("s", 5)]},
        life("n3", DAY) | {"removed": None},
    ]
    assert lived(*rows).queues() == {
        ("a", "queue/q"): (3, None),
        ("a", "queue/r"): (2, 7),
        ("a", "queue/s"): (None, 5),
    }


def test_it_is_known_until_when_a_process_was_alive_when_hours_were_forgotten() -> None:
    h1, h2, h3, h4 = (hour(DAY + n * HOUR) for n in range(1, 5))
    rows = [
        life("n1", DAY + MINUTE),
        life("n1", DAY + 2 * HOUR, hour=h2),
        life("n1", DAY + HOUR, hour=h1),
        # By a clock that was put right otherwise in that hour.
        life("n1", DAY + HOUR, hour=h3),
        life("n1", DAY + 4 * HOUR, hour=h4),
        life("n2", None),
        life("n3", DAY + 4 * HOUR, hour=h4),
    ]
    (n1, n2, n3), _horizon = lived(*rows, forgotten=[h1, h3, h4]).known()
    assert [n1.alive_before(one) for one in (h1, h3, h4)] == [
        DAY + MINUTE,
        DAY + 2 * HOUR,
        DAY + 2 * HOUR,
    ]
    assert [n2.alive_before(h4), n3.alive_before(h4), n1.alive] == [None, None, DAY + 4 * HOUR]


WORDS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([*lives.KINDS, "link", "session_opened"]),
        "node": st.sampled_from(["n1", "n2"]),
        "boot": st.sampled_from([DAY, DAY + SECOND]),
        "at": st.integers(0, 3 * MINUTE).map(lambda us: DAY + us),
        "app": st.sampled_from([None, "a"]),
        "target": st.sampled_from(["queue/q", "queue/r"]),
        "n": st.sampled_from([None, 0, 2]),
    }
)
SHIFTS = st.dictionaries(
    st.tuples(st.sampled_from(["n1", "n2"]), st.integers(0, 3).map(lambda n: DAY + n * MINUTE)),
    st.integers(-SECOND, SECOND),
)


@given(st.lists(WORDS, max_size=30), SHIFTS)
def test_what_a_process_tells_in_an_hour_is_put_together(
    words: list[Row], shifts: dict[tuple[str, int], int]
):
    by_process: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for word in words:
        if word["kind"] in lives.KINDS:
            shift = shifts.get((word["node"], word["at"] - word["at"] % MINUTE), 0)
            right = {"time": word["at"] + shift, "began": word["boot"] + shift}
            by_process[word["node"], word["boot"]].append(word | right)

    def latest(parts: list[Row], *kinds: str) -> Any:
        return max((part["time"] for part in parts if part["kind"] in kinds), default=None)

    def queues(parts: list[Row], kind: str) -> list[Row]:
        names = {"app": "app", "target": "target", "at": "time"}
        told = [part for part in parts if part["kind"] == kind]
        return [{name: part[old] for name, old in names.items()} for part in told]

    assert told(words, shifts) == [
        {
            "hour": H0,
            "node": node,
            "boot": boot,
            "began": min(part["began"] for part in parts),
            "alive": latest(parts, "node_started", "node_alive", "node_stopped"),
            "stopped": latest(parts, "node_stopped"),
            "gone": latest(parts, "node_gone"),
            "missed": sum(
                1 if part["n"] is None else part["n"] for part in parts if part["kind"] == "missed"
            ),
            "recovered": queues(parts, "recovered"),
            "removed": queues(parts, "removed"),
        }
        for (node, boot), parts in sorted(by_process.items())
    ]
