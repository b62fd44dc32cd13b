"""What the audit says of messages whose hour was forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.audit import by_node
from chappe.pipeline.job import run
from chappe.pipeline.keeping import expire
from chappe.pipeline.table import read
from tests.pipeline.oddities import Row, hop, path
from tests.pipeline.test_audit import BACK, KNOWN, NOW, OVERTAKEN, WAITS, found, life
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, World, save

FORGOTTEN = "its hour was forgotten: what came of it since is not known"
H1, H2 = "2026-03-16T01", "2026-03-16T02"


def test_nobody_knows_what_came_of_a_message_in_a_queue_whose_hour_was_forgotten() -> None:
    stored, lent = hop("stored", "n1", DAY), hop("lent", "n1", DAY + 1)
    queues = {("a", "queue:then"): (None, DAY + HOUR - 1), ("a", "queue:now"): (None, BACK)}
    gone = KNOWN._replace(queues=queues, forgotten=[H1])
    assert found(
        # They would be lost, late, in hands, and with one that died, if anybody still listened.
        path(1, "queue", stored, target="queue:fast"),
        path(2, "queue", stored),
        path(3, "queue", stored, lent),
        path(4, "queue", hop("stored", "n3", DAY)),
        # Its queue was removed before its hour was forgotten; since.
        path(5, "queue", stored, target="queue:then"),
        path(6, "queue", stored, target="queue:now"),
        # Of an hour that was not.
        path(7, "queue", stored, hour=H1, target="queue:fast"),
        path(8, "queue", stored, hour=H1),
        path(9, "queue", stored, hour=H1, target="queue:now"),
        known=gone,
    ) == {
        1: ("unknown", FORGOTTEN, "n1", DAY),
        2: ("unknown", FORGOTTEN, "n1", DAY),
        3: ("unknown", FORGOTTEN, "n1", DAY + 1),
        4: ("unknown", FORGOTTEN, "n3", DAY),
        5: ("lost", "its queue was removed", "n1", DAY),
        6: ("unknown", FORGOTTEN, "n1", DAY),
        7: ("lost", OVERTAKEN, "n1", DAY),
        8: ("late", WAITS, "n1", DAY),
        9: ("lost", "its queue was removed", "n1", DAY),
    }


def test_of_what_was_forgotten_counts_what_nodes_had_told_before() -> None:
    """All but n2 and n4 tell on. When the first hour was forgotten, n1 and n2 had told of all of
    it, n3 and n4 of half, n5 of nothing."""
    half, end = DAY + HOUR // 2, DAY + HOUR - SECOND
    lives = [
        life("n1", DAY, NOW, then=((H1, end), (H2, NOW))),
        life("n2", DAY, end, stopped=end, then=((H1, end),)),
        life("n3", DAY, NOW, stopped=NOW, then=((H1, half), (H2, NOW))),
        life("n4", DAY, half, died=True, then=((H1, half),)),
        life("n5", DAY, NOW, then=((H2, NOW),)),
    ]
    gone = KNOWN._replace(lives=by_node(lives), forgotten=[H1, H2])

    def to(node: str, at: int) -> Row:
        return hop("published", "n0", at, n=0, went_to=[node])

    asked = [
        # Lost then, and now.
        path(1, "topic", to("n1", half)),
        path(2, "topic", to("n2", end - 1)),
        path(3, "topic", to("n3", half - MINUTE)),
        path(4, "request", hop("asked", "n1", half)),
        # Nobody had waited for long enough, whatever was told since.
        path(5, "topic", to("n1", end - 1)),
        path(6, "topic", to("n3", half)),
        path(7, "topic", to("n5", half)),
        path(8, "request", hop("asked", "n1", end - MINUTE)),
        path(9, "request", hop("asked", "n3", half)),
        path(10, "topic", hop("published", "n1", half, n=1, came_from="n3")),
        path(11, "topic", to("n4", half)),
        # The next hour was forgotten later.
        path(12, "topic", to("n3", half), hour=H1),
    ]
    told = found(*asked, known=gone)
    assert {message: (verdict, reason) for message, (verdict, reason, *_at) in told.items()} == {
        1: ("lost", "it did not come to n1"),
        2: ("lost", "it did not come to n2"),
        3: ("lost", "it did not come to n3"),
        4: ("lost", "nobody answered"),
        **dict.fromkeys(range(5, 11), ("unknown", FORGOTTEN)),
        11: ("unknown", "n4 died before it told"),
        12: ("lost", "it did not come to n3"),
    }


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_still_comes_of_a_forgotten_hour_makes_nothing_lost(
    spark: SparkSession, tmp_path: Path
):
    """A job waits for longer than its hour is kept, and is done then; a message was lost before."""
    world = World(Node("n1"), Node("n2"))
    for name in ("n1", "n2"):
        world.start(name, DAY)
        world.live(name, DAY, DAY + 5 * HOUR, every=5 * MINUTE)
    job = world.store("n1", DAY + MINUTE)
    lost = world.publish(DAY + MINUTE, [("n1", 0, 100), ("n2", 700, 100)])
    told = [row for row in world.rows if (row["node"], row.get("message")) != ("n2", lost)]
    events, tables = tmp_path / "events", tmp_path / "tables"
    until = DAY + 3 * HOUR
    save([row for row in told if row["at"] < until], events, tag="0")
    run(spark, [events], tables)
    before = told_of(tables)
    assert (before[job][0], before[lost][0]) == ("late", "lost")
    expire(tables, [events], large_before_us=DAY + 2 * HOUR)
    younger = world.store("n1", until + MINUTE)
    for one in (job, younger):
        world.work("n1", until + 2 * MINUTE, one, "lent")
        world.work("n1", until + 3 * MINUTE, one, "acked")
    save([row for row in world.rows if row["at"] >= until], events, tag="1")
    assert run(spark, [events], tables).quarantined == 2
    assert told_of(tables) == {job: ("unknown", FORGOTTEN), lost: before[lost]}


def told_of(tables: Path) -> dict[int, tuple[str, str]]:
    rows = read(tables, "audit").to_pylist()
    return {row["message"]: (row["verdict"], row["reason"]) for row in rows}
