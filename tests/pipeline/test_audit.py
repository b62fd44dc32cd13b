"""What becomes of open paths, by what is known of nodes and queues; and the audit as a whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from chappe.pipeline.audit import Known, audit, audit_few, by_node, unsettled, untold
from chappe.pipeline.lives import Life
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.verdicts import Verdict
from tests.pipeline.oddities import H0, Row, hop, path, said
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND

OPTIONS = Options()
# When all but those that are dead are alive, and when one died that is back since.
NOW, DIED, BACK = DAY + 2 * HOUR, DAY + HOUR, DAY + HOUR + MINUTE
SOON, BEFORE, RECENTLY = DIED - MINUTE, DIED - SECOND // 5, NOW - SECOND // 2
WAITS, UNSEEN = "it still waits in its queue", "died, and it was not seen since"
OVERTAKEN = "much younger ones of its queue were handed out"


def life(node: str, began: int, alive: int | None, **columns: Any) -> Life:
    told: Row = {"stopped": None, "gone": None, "missed": frozenset(), "died": False, **columns}
    return Life(node=node, boot=began, began=began, alive=alive, **told)


# n1 lives on; n2 died and is back with a queue; n3 died for good; n4 ended; n5 was full.
LIVES = [
    life("n1", DAY, NOW),
    life("n2", BACK, NOW),
    life("n2", DAY, DIED, died=True),
    life("n3", DAY, DIED, died=True),
    life("n4", DAY, DIED, stopped=DIED),
    life("n5", DAY, NOW, missed=frozenset({H0})),
]
KNOWN = Known(
    lives=by_node(LIVES),
    horizon=NOW,
    queues={("a", "queue:q"): (BACK + 1, None), ("a", "queue:removed"): (None, DIED)},
    frontiers={("a", "queue:fast"): NOW},
)


def found(*paths: Row, known: Known = KNOWN) -> dict[int, Verdict]:
    return said((one, unsettled(one, known, OPTIONS)) for one in paths)


def test_a_life_is_the_last_that_began_before() -> None:
    assert KNOWN.life_at("n2", DAY - 1) is None
    assert KNOWN.life_at("n9", NOW) is None
    lives = [KNOWN.life_at("n2", time) for time in (DAY, BACK - 1, BACK, NOW)]
    assert [one.began for one in lives if one] == [DAY, DAY, BACK, BACK]


def test_a_message_in_a_queue_waits_or_is_with_a_node_that_died() -> None:
    stored = hop("stored", "n2", SOON)
    assert found(
        # Of a node that is there; that is back with its queue; that is not back; that is back
        # without it.
        path(1, "queue", hop("stored", "n1", RECENTLY)),
        path(2, "queue", hop("stored", "n1", NOW - 2 * MINUTE)),
        path(3, "queue", stored),
        path(4, "queue", stored, hop("lent", "n2", SOON + 1)),
        path(5, "queue", hop("stored", "n3", SOON), target="queue:gone"),
        path(6, "queue", stored, target="queue:other"),
        # Seen since, in the hands of a consumer; in another app's queue of that name.
        path(7, "queue", stored, hop("lent", "n2", BACK + SECOND)),
        path(8, "queue", stored, hop("lent", "n2", SOON + 1), app="b"),
        # In the hands of a consumer of a node that is there.
        path(9, "queue", hop("stored", "n1", SOON), hop("lent", "n1", SOON + 1)),
    ) == {
        2: ("late", WAITS, "n1", NOW - 2 * MINUTE),
        3: ("late", WAITS, "n2", SOON),
        4: ("late", WAITS, "n2", SOON + 1),
        5: ("unknown", f"n3 {UNSEEN}", "n3", SOON),
        6: ("unknown", f"n2 {UNSEEN}", "n2", SOON),
        8: ("unknown", f"n2 {UNSEEN}", "n2", SOON + 1),
    }


def test_what_was_in_hands_waits_since_its_queue_is_back() -> None:
    just_back = KNOWN._replace(queues={("a", "queue:q"): (NOW - SECOND, None)})
    stored, lent = hop("stored", "n2", SOON), hop("lent", "n2", SOON + 1)
    assert found(path(1, "queue", stored), path(2, "queue", stored, lent), known=just_back) == {
        1: ("late", WAITS, "n2", SOON)
    }


def test_what_others_overtook_is_lost_unless_somebody_was_handed_it() -> None:
    stored, fast = hop("stored", "n1", DAY), {"target": "queue:fast"}
    died, replayed = hop("died", "n1", DAY + 2), hop("replayed", "n1", DAY + 3)
    lent = hop("lent", "n1", DAY + 1)
    assert found(
        path(1, "queue", stored, **fast),
        # A group has it, or does not want it.
        path(2, "queue", stored, lent, **fast),
        path(3, "queue", stored, hop("dropped", "n1", DAY + 1, reason="nobody"), **fast),
        path(4, "queue", stored, hop("dropped", "n1", DAY + 1, reason="full"), **fast),
        # Nobody says why it was dropped: it may be that.
        path(9, "queue", stored, hop("dropped", "n1", DAY + 1), **fast),
        # Had it before it was sent once more; that was not long ago.
        path(5, "queue", stored, lent, died, replayed, **fast),
        path(6, "queue", stored, lent, died, hop("replayed", "n1", RECENTLY), **fast),
        # Due a while later than it came.
        path(7, "queue", stored, ready=RECENTLY, **fast),
        path(8, "queue", stored, ready=None, **fast),
    ) == {
        1: ("lost", OVERTAKEN, "n1", DAY),
        4: ("lost", OVERTAKEN, "n1", DAY + 1),
        5: ("lost", OVERTAKEN, "n1", DAY + 3),
        8: ("lost", OVERTAKEN, "n1", DAY),
    }


def test_what_was_in_a_queue_that_was_removed_is_lost() -> None:
    removed = {"target": "queue:removed"}
    assert found(
        path(1, "queue", hop("stored", "n1", SOON), **removed),
        # In one that was made again since.
        path(2, "queue", hop("stored", "n1", RECENTLY), **removed),
    ) == {1: ("lost", "its queue was removed", "n1", SOON)}


def test_a_request_depends_on_the_node_of_whoever_asked() -> None:
    assert found(
        # Nobody answered; it is young; its node died, whatever the home says.
        path(1, "request", hop("asked", "n1", DIED)),
        path(2, "request", hop("asked", "n1", RECENTLY)),
        path(3, "request", hop("asked", "n3", BEFORE)),
        path(
            4,
            "request",
            hop("asked", "n1", BEFORE, came_from="n3"),
            hop("answered", "n1", BEFORE + 1, came_from="n3"),
        ),
        path(
            5,
            "request",
            hop("asked", "n1", BEFORE, went_to=["n3"]),
            hop("asked", "n3", BEFORE + 1, came_from="n1"),
        ),
        # It told longer than messages may take, but not for as long as a request is waited for.
        path(6, "request", hop("asked", "n1", NOW - MINUTE)),
        path(7, "request", hop("answered", "n4", BEFORE, came_from="n3")),
    ) == {
        1: ("lost", "nobody answered", "n1", DIED),
        3: ("unknown", "n3 died before it told", "n3", BEFORE),
        4: ("unknown", "n3 died before it told", "n1", BEFORE + 1),
        5: ("lost", "nobody answered", "n3", BEFORE + 1),
        7: ("lost", "nobody answered", "n4", BEFORE),
    }


def test_a_message_on_its_way_depends_on_the_nodes_that_do_not_tell() -> None:
    def to(node: str, at: int, via: str = "n1") -> Row:
        return hop("published", via, at, n=0, went_to=[node])

    assert found(
        # To a node that told on; that died within an interval, and later; that ended in order.
        path(1, "topic", to("n1", SOON, via="n2")),
        path(2, "topic", to("n3", BEFORE)),
        path(3, "topic", to("n3", SOON)),
        path(4, "topic", to("n4", BEFORE)),
        path(5, "topic", to("n1", RECENTLY, via="n2")),
        # It came from a node that does not tell of it: one that died, and one that lives.
        path(6, "topic", hop("published", "n1", BEFORE, n=1, came_from="n3")),
        path(7, "topic", hop("published", "n2", SOON, n=1, came_from="n1")),
        # A node that could not write down everything of an hour, and one that nobody heard of.
        path(8, "topic", to("n5", SOON)),
        path(13, "topic", to("n5", SOON), hour="2026-03-15T23"),
        path(9, "topic", to("n9", SOON)),
        path(10, "topic", to("n9", NOW - MINUTE)),
        # Who dropped it got it.
        path(11, "topic", to("n3", SOON), hop("dropped", "n3", SOON + 1, reason="slow_link")),
        # Of several that it did not come to, the first.
        path(12, "topic", hop("published", "n2", SOON, n=0, went_to=["n4", "n3", "n1"])),
    ) == {
        1: ("lost", "it did not come to n1", "n2", SOON),
        2: ("unknown", "n3 died before it told", "n1", BEFORE),
        3: ("lost", "it did not come to n3", "n1", SOON),
        4: ("lost", "it did not come to n4", "n1", BEFORE),
        6: ("unknown", "n3 died before it told", "n1", BEFORE),
        7: ("unknown", "n1 had it and does not tell of it", "n2", SOON),
        8: ("unknown", "n5 could not write down everything", "n1", SOON),
        9: ("unknown", "n9 never told anything of that time", "n1", SOON),
        12: ("lost", "it did not come to n1", "n2", SOON),
        13: ("lost", "it did not come to n5", "n1", SOON),
    }


def test_nothing_is_said_while_nobody_told_anything() -> None:
    nothing = Known(lives={}, horizon=None, queues={}, frontiers={})
    to_n3 = hop("published", "n1", DAY, n=0, went_to=["n3"])
    assert not found(
        path(1, "topic", to_n3),
        path(2, "queue", hop("stored", "n1", DAY)),
        path(3, "request", hop("asked", "n1", DAY)),
        known=nothing,
    )
    wordless = nothing._replace(lives=by_node([life("n3", DAY, None)]), horizon=NOW)
    assert not found(path(1, "topic", to_n3), known=wordless)


def test_of_each_node_that_died_the_time_since_is_unknown() -> None:
    rows = [(row["verdict"], row["family"], row["node"], row["at"]) for row in untold(KNOWN)]
    assert rows == [("unknown", "node", "n2", DIED), ("unknown", "node", "n3", DIED)]


def paths(spark: SparkSession, *rows: Row) -> DataFrame:
    table = pa.Table.from_pylist([*rows], arrow_schema(TABLES["odd"]))
    return spark.createDataFrame(table, TABLES["odd"])


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_only_hours_that_were_touched_are_settled_anew(spark: SparkSession) -> None:
    dropped = hop("dropped", "n4", SOON, reason="slow_link")
    to_n1 = hop("published", "n2", SOON + 1, n=0, went_to=["n1"])
    rows = [
        path(1, "topic", dropped),
        path(2, "topic", dropped, to_n1, open=True),
        path(3, "topic", to_n1, open=True, suspect=False),
    ]
    others = [{**row, "hour": "2026-03-15T23", "message": row["message"] + 10} for row in rows]
    made = audit(paths(spark, *rows), paths(spark, *others), KNOWN, OPTIONS)
    assert made.schema.names == TABLES["audit"].names
    names = ("hour", "message", "verdict", "node", "at", "born")
    told = {tuple(row[name] for name in names) for row in made.collect()}
    few = pa.Table.from_pylist([*rows, *others], arrow_schema(TABLES["odd"]))
    by_itself = audit_few(few, {H0}, KNOWN, OPTIONS)
    assert by_itself.schema == arrow_schema(TABLES["audit"])
    assert {tuple(row[name] for name in names) for row in by_itself.to_pylist()} == told
    assert told == {
        (H0, 1, "lost", "n4", SOON, SOON),
        (H0, 2, "lost", "n4", SOON, SOON),
        ("open", 2, "lost", "n2", SOON + 1, SOON),
        ("open", 3, "lost", "n2", SOON + 1, SOON + 1),
        ("open", 12, "lost", "n2", SOON + 1, SOON),
        ("open", 13, "lost", "n2", SOON + 1, SOON + 1),
        ("open", None, "unknown", "n2", DIED, DIED),
        ("open", None, "unknown", "n3", DIED, DIED),
    }
