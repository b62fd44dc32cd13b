"""Lives that are read in parts are put together as if they were read whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import lives
from tests.pipeline.test_lives import OPTIONS, YEARS, table
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Row, hour

TIMES = st.integers(0, 9).map(lambda n: DAY + n * 30 * MINUTE)
QUEUES = st.lists(
    st.fixed_dictionaries(
        {
            "app": st.sampled_from([None, "a"]),
            "target": st.sampled_from(["queue/q", "queue/r"]),
            "at": TIMES,
        }
    ),
    max_size=2,
)
HOURS = [hour(DAY + n * HOUR) for n in range(5)]
ROWS = st.fixed_dictionaries(
    {
        "hour": st.sampled_from(HOURS),
        "node": st.sampled_from(["n1", "n2"]),
        "boot": st.sampled_from([DAY, DAY + HOUR, DAY + YEARS]),
        "began": TIMES,
        "alive": st.none() | TIMES | TIMES.map(lambda at: at + YEARS),
        "stopped": st.none() | TIMES,
        "gone": st.none() | TIMES,
        "missed": st.sampled_from([None, 0, 0, 2]),
        "recovered": st.none() | QUEUES,
        "removed": st.none() | QUEUES,
    }
)


@given(
    st.lists(st.lists(ROWS, max_size=6), max_size=4),
    st.none() | TIMES,
    st.lists(st.sampled_from(HOURS), unique=True).map(sorted),
)
def test_what_is_read_in_parts_is_put_together_as_if_it_were_whole(
    parts: list[list[Row]], written: int | None, forgotten: list[str]
):
    every = [row for part in parts for row in part]
    found = lives.Lived(map(table, parts), OPTIONS, written, forgotten)
    processes, horizon = found.known()
    assert horizon == plain_horizon(every, written)
    by_process: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in every:
        by_process[row["node"], row["boot"]].append(row)
    assert [(one.node, one.boot) for one in processes] == sorted(by_process)
    for one in processes:
        mine = by_process[one.node, one.boot]
        assert one.began == min(row["began"] for row in mine)
        for name in ("alive", "stopped", "gone"):
            assert getattr(one, name) == latest(mine, name)
        assert one.missed == {row["hour"] for row in mine if row["missed"]}
        for limit in forgotten:
            before = [row for row in mine if row["hour"] < limit]
            assert one.alive_before(limit) == latest(before, "alive")
        followed = any(node == one.node and boot > one.boot for node, boot in by_process)
        grace = OPTIONS.grace_ms * 1000
        silent = horizon is not None and one.alive is not None and horizon - one.alive > grace
        ended = followed or silent or one.gone is not None
        assert one.died == (one.stopped is None and ended)
    told = {
        name: [(q["app"], q["target"], q["at"]) for row in every for q in row[name] or ()]
        for name in ("recovered", "removed")
    }
    assert found.queues() == {
        key: tuple(
            max((at for *queue, at in told[name] if (*queue,) == key), default=None)
            for name in told
        )
        for key in {(app, target) for queues in told.values() for app, target, _at in queues}
    }


def latest(rows: Iterable[Row], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def plain_horizon(rows: list[Row], written: int | None) -> int | None:
    if written is None or not rows:
        return latest(rows, "alive")
    until = written + OPTIONS.grace_ms * 1000
    told = [row for row in rows if row["alive"] is not None]
    times = [(row["alive"], row["alive"] - row["began"] + row["boot"]) for row in told]
    believed = [right if right <= until else own for right, own in times]
    return max((time for time in believed if time <= until), default=written)
