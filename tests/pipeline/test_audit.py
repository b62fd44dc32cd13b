"""Every verdict of the audit, from literal paths: each is of one message, named by its number."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline import audit, lives
from chappe.pipeline.options import Options
from chappe.pipeline.schema import HOP_NAMES, TABLES
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = Options()
H0 = "2026-03-16T00"
# When all but those that are dead are alive, and when one died that is back since.
NOW, DIED, BACK = DAY + 2 * HOUR, DAY + HOUR, DAY + HOUR + MINUTE
Row = dict[str, Any]


def table(spark: SparkSession, name: str, *rows: Row) -> DataFrame:
    """A table with these rows; what they do not have is null."""
    schema = TABLES[name]
    return spark.createDataFrame([tuple(row.get(n) for n in schema.names) for row in rows], schema)


def hop(kind: str, node: str, at: int, **columns: Any) -> Row:
    return {"kind": kind, "node": node, "boot": 1, "serial": 1, "at": at, "shift": 0, **columns}


def path(message: int, family: str, *hops: Row, **columns: Any) -> Row:
    """A path whose facts are those of its hops, unless they are said."""
    times = [one["at"] for one in hops]
    facts = {
        "hour": H0,
        "app": "a",
        "family": family,
        "message": message,
        "target": "queue:q" if family == "queue" else "topic:t",
        "born": times[0],
        "ready": times[0] if family == "queue" else None,
        "ended": max(times),
        "open": False,
        "suspect": True,
    }
    told = [tuple(one.get(name) for name in HOP_NAMES) for one in hops]
    return {**facts, **columns, "hops": told}


def found(frame: DataFrame) -> dict[int, tuple[str, str, str, int]]:
    """What is said of each message, and where and when it was last seen."""
    rows = [row for row in frame.collect() if row["message"] is not None]
    said = {row["message"]: (row["verdict"], row["reason"], row["node"], row["at"]) for row in rows}
    assert len(said) == len(rows)
    return said


def test_what_a_path_says_by_itself(spark: SparkSession) -> None:
    passed = {"n": 1, "target": "topic:t"}
    acked = {"group_name": "g"}
    unsure = "overload, outcome unknown"
    frame = table(
        spark,
        "paths",
        # Dropped, and somebody missed it; nobody did; another node gave it to them.
        path(1, "topic", hop("dropped", "n1", DAY, reason="slow_link", n=1)),
        path(2, "topic", hop("dropped", "n1", DAY, reason="nobody", n=1)),
        path(
            3,
            "send",
            hop("dropped", "n1", DAY, reason="unreachable", target="user:u"),
            hop("sent", "n2", DAY + 1, n=1, target="user:u"),
        ),
        # Given twice by one node; by two nodes, to whom each has.
        path(
            4,
            "topic",
            hop("published", "n1", DAY, **passed),
            hop("published", "n1", DAY + 1, **passed),
        ),
        path(
            5,
            "topic",
            hop("published", "n1", DAY, **passed),
            hop("published", "n2", DAY + 1, **passed),
        ),
        # Done twice by one group; by two groups; told once more after a start.
        path(6, "queue", hop("acked", "n1", DAY, **acked), hop("acked", "n1", DAY + 1, **acked)),
        path(
            7,
            "queue",
            hop("acked", "n1", DAY, **acked),
            hop("acked", "n1", DAY + 1, group_name="h"),
        ),
        path(
            8,
            "queue",
            hop("acked", "n1", DAY, **acked),
            hop("acked", "n1", DAY + 1, reason="recovered", **acked),
        ),
        # Too slow, and quick enough.
        path(
            9,
            "topic",
            hop("published", "n1", DAY + 2 * SECOND, **passed),
            born=DAY,
            delivered=DAY + 2 * SECOND,
        ),
        path(
            10,
            "topic",
            hop("published", "n1", DAY + SECOND, **passed),
            born=DAY,
            delivered=DAY + SECOND,
        ),
        # In a queue it is the wait that counts, of a dead letter from when it was sent again.
        path(11, "queue", hop("stored", "n1", DAY), hop("lent", "n1", DAY + 2 * MINUTE, attempt=1)),
        path(
            12,
            "queue",
            hop("stored", "n1", DAY),
            hop("lent", "n1", DAY + 1, attempt=1),
            hop("died", "n1", DAY + 2, **acked),
            hop("replayed", "n1", DAY + HOUR),
            hop("lent", "n1", DAY + HOUR + SECOND, attempt=1),
        ),
        # Who asked was told that nobody knows; that it was refused; the home said so, not the end.
        path(
            13,
            "request",
            hop("asked", "n1", DAY),
            hop("answered", "n1", DAY + 5, reason=unsure),
            suspect=False,
        ),
        path(
            14,
            "request",
            hop("asked", "n1", DAY),
            hop("answered", "n1", DAY + 5, reason="forbidden"),
            suspect=False,
        ),
        path(
            15,
            "request",
            hop("answered", "n2", DAY + 4, came_from="n1", reason="unreachable, outcome unknown"),
            hop("answered", "n1", DAY + 5, reason="forbidden"),
            suspect=False,
        ),
        # Nobody looks at what is not suspect.
        path(16, "topic", hop("dropped", "n1", DAY, reason="slow_link"), suspect=False),
    )
    assert found(audit.settled(frame, OPTIONS)) == {
        1: ("lost", "dropped: slow_link", "n1", DAY),
        4: ("duplicated", "twice at n1", "n1", DAY + 1),
        6: ("duplicated", "done twice by g", "n1", DAY + 1),
        9: ("late", "took 2000 ms", "n1", DAY + 2 * SECOND),
        11: ("late", "waited 120000 ms", "n1", DAY + 2 * MINUTE),
        13: ("unknown", f"answered: {unsure}", "n1", DAY + 5),
    }


def life(node: str, began: int, alive: int, **columns: Any) -> Row:
    told = {"hour": H0, "node": node, "boot": began, "began": began, "alive": alive, "missed": 0}
    return {**told, "recovered": [], "removed": [], **columns}


def lived(spark: SparkSession) -> DataFrame:
    """n1 lives on; n2 died and is back with a queue; n3 died for good; n4 ended; n5 was full."""
    return table(
        spark,
        "lives",
        life("n1", DAY, NOW, removed=[("a", "queue:removed", DIED)]),
        life("n2", DAY, DIED),
        life("n2", BACK, NOW, recovered=[("a", "queue:q", BACK + 1)]),
        life("n3", DAY, DIED),
        life("n4", DAY, DIED, stopped=DIED),
        life("n5", DAY, NOW, missed=3),
    )


def test_what_becomes_of_open_paths_depends_on_nodes_and_queues(spark: SparkSession) -> None:
    soon, before, recently = DIED - MINUTE, DIED - SECOND // 5, NOW - SECOND // 2
    to_n3 = hop("published", "n1", before, n=0, went_to=["n3"])
    frame = table(
        spark,
        "paths",
        # A queue's message, of a node that is there; that is back with its queue; that is not back;
        # that is back without it.
        path(1, "queue", hop("stored", "n1", recently)),
        path(2, "queue", hop("stored", "n1", NOW - 2 * MINUTE)),
        path(3, "queue", hop("stored", "n2", soon)),
        path(4, "queue", hop("stored", "n2", soon), hop("lent", "n2", soon + 1)),
        path(5, "queue", hop("stored", "n3", soon), target="queue:gone"),
        path(6, "queue", hop("stored", "n2", soon), target="queue:other"),
        # Seen since, in the hands of a consumer.
        path(7, "queue", hop("stored", "n2", soon), hop("lent", "n2", BACK + SECOND)),
        # Overtaken by much younger ones; passed over by a group.
        path(8, "queue", hop("stored", "n1", DAY), target="queue:fast"),
        path(
            9,
            "queue",
            hop("stored", "n1", DAY),
            hop("dropped", "n1", DAY + 1, reason="nobody"),
            target="queue:fast",
        ),
        # In a queue when that was removed; in one that was made again since.
        path(24, "queue", hop("stored", "n1", soon), target="queue:removed"),
        path(25, "queue", hop("stored", "n1", recently), target="queue:removed"),
        # A request: nobody answered; it is young; its node died, whatever the home says.
        path(10, "request", hop("asked", "n1", DIED)),
        path(11, "request", hop("asked", "n1", recently)),
        path(12, "request", hop("asked", "n3", before)),
        path(
            13,
            "request",
            hop("asked", "n1", before, came_from="n3"),
            hop("answered", "n1", before + 1, came_from="n3"),
        ),
        path(
            14,
            "request",
            hop("asked", "n1", before, went_to=["n3"]),
            hop("asked", "n3", before + 1, came_from="n1"),
        ),
        # On its way to a node that told on; that died within an interval; that ended in order.
        path(15, "topic", hop("published", "n2", soon, n=0, went_to=["n1"])),
        path(16, "topic", to_n3),
        path(17, "topic", hop("published", "n1", soon, n=0, went_to=["n3"])),
        path(18, "topic", hop("published", "n1", before, n=0, went_to=["n4"])),
        path(19, "topic", hop("published", "n2", recently, n=0, went_to=["n1"])),
        # It came from a node that does not tell of it: one that died, and one that lives.
        path(20, "topic", hop("published", "n1", before, n=1, came_from="n3")),
        path(21, "topic", hop("published", "n2", soon, n=1, came_from="n1")),
        # A node that could not write down everything, and one that nobody heard of.
        path(22, "topic", hop("published", "n1", soon, n=0, went_to=["n5"])),
        path(23, "topic", hop("published", "n1", soon, n=0, went_to=["n9"])),
    )
    told = lived(spark)
    frontiers = spark.createDataFrame(
        [("a", "queue:fast", NOW)], "app string, target string, frontier long"
    )
    rows = audit.unsettled(
        frame, lives.known(told, OPTIONS), lives.queues(told), frontiers, OPTIONS
    )
    waits, unseen = "it still waits in its queue", "died, and it was not seen since"
    assert found(rows) == {
        2: ("late", waits, "n1", NOW - 2 * MINUTE),
        3: ("late", waits, "n2", soon),
        4: ("late", waits, "n2", soon + 1),
        5: ("unknown", f"n3 {unseen}", "n3", soon),
        6: ("unknown", f"n2 {unseen}", "n2", soon),
        8: ("lost", "much younger ones of its queue were handed out", "n1", DAY),
        10: ("lost", "nobody answered", "n1", DIED),
        12: ("unknown", "n3 died before it told", "n3", before),
        13: ("unknown", "n3 died before it told", "n1", before + 1),
        14: ("lost", "nobody answered", "n3", before + 1),
        15: ("lost", "it did not come to n1", "n2", soon),
        16: ("unknown", "n3 died before it told", "n1", before),
        17: ("lost", "it did not come to n3", "n1", soon),
        18: ("lost", "it did not come to n4", "n1", before),
        20: ("unknown", "n3 died before it told", "n1", before),
        21: ("unknown", "n1 had it and does not tell of it", "n2", soon),
        22: ("unknown", "n5 could not write down everything", "n1", soon),
        24: ("lost", "its queue was removed", "n1", soon),
        23: ("unknown", "n9 never told anything of that time", "n1", soon),
    }
    untold = [row for row in rows.collect() if row["family"] == "node"]
    assert sorted((row["verdict"], row["node"], row["at"]) for row in untold) == [
        ("unknown", "n2", DIED),
        ("unknown", "n3", DIED),
    ]
