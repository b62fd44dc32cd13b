"""What paths say by themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from chappe.pipeline.delivery import delivery
from chappe.pipeline.options import Options
from chappe.pipeline.paths import paths_of
from chappe.pipeline.sums import DELIVERY, Sums
from chappe.pipeline.verdicts import Verdict, replays, settled
from tests.pipeline import tales
from tests.pipeline.oddities import H0, Row, hop, path, said
from tests.pipeline.tales import TALES, UNSHRUNK, Tale
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Hop, Node, World

OPTIONS = Options()
GIVEN: dict[str, Any] = {"n": 1, "target": "topic:t"}
ACKED: dict[str, Any] = {"group_name": "g"}


def found(*paths: Row) -> dict[int, Verdict]:
    return said((one, settled(one, OPTIONS)) for one in paths)


def test_what_was_dropped_is_lost_if_somebody_missed_it() -> None:
    to_u = {"target": "user:u"}
    dropped = hop("dropped", "n1", DAY, reason="unreachable", **to_u)
    assert found(
        path(1, "topic", hop("dropped", "n1", DAY, reason="slow_link", n=1)),
        path(2, "topic", hop("dropped", "n1", DAY, reason="nobody", n=1)),
        # Another node gave it to them; to others; to nobody.
        path(3, "send", dropped, hop("sent", "n2", DAY + 1, n=1, **to_u)),
        path(4, "send", dropped, hop("sent", "n2", DAY + 1, n=1, target="user:v")),
        path(5, "send", dropped, hop("sent", "n2", DAY + 1, n=0, **to_u)),
        # Nobody looks at what is not suspect.
        path(6, "topic", dropped, suspect=False),
        # The first that was missed counts, by the clock of all.
        path(
            7,
            "topic",
            hop("dropped", "n1", DAY, reason="nobody"),
            hop("dropped", "n2", DAY, shift=5),
            hop("dropped", "n3", DAY + 6, reason="slow_link"),
        ),
        # Where it is not told to whom, or to how many: it may have been to them.
        path(8, "send", hop("dropped", "n1", DAY), hop("sent", "n2", DAY + 1, n=1, **to_u)),
        path(9, "send", dropped, hop("sent", "n2", DAY + 1, n=1)),
        path(10, "send", dropped, hop("sent", "n2", DAY + 1, **to_u)),
    ) == {
        1: ("lost", "dropped: slow_link", "n1", DAY),
        4: ("lost", "dropped: unreachable", "n1", DAY),
        5: ("lost", "dropped: unreachable", "n1", DAY),
        7: ("lost", "dropped: no reason", "n2", DAY + 5),
    }


def test_what_a_node_gave_twice_is_duplicated() -> None:
    first = hop("published", "n1", DAY, **GIVEN)
    assert found(
        path(1, "topic", first, hop("published", "n1", DAY + 1, **GIVEN)),
        # By two nodes, each to whom it has; to another; only to nodes.
        path(2, "topic", first, hop("published", "n2", DAY + 1, **GIVEN)),
        path(3, "topic", first, hop("published", "n1", DAY + 1, n=1, target="topic:u")),
        path(4, "topic", first, hop("published", "n1", DAY + 1, n=0, target="topic:t")),
        # Nobody knows whether these were the same.
        path(5, "topic", hop("sent", "n1", DAY, n=1), hop("sent", "n1", DAY + 1, n=1)),
        # The second time counts, not the third.
        path(6, "topic", first, *(hop("published", "n1", DAY + n, **GIVEN) for n in (1, 2))),
    ) == {
        1: ("duplicated", "twice at n1", "n1", DAY + 1),
        6: ("duplicated", "twice at n1", "n1", DAY + 1),
    }


def test_what_a_group_did_twice_is_duplicated() -> None:
    done = hop("acked", "n1", DAY, **ACKED)
    again = hop("acked", "n1", DAY + 1, reason="recovered", **ACKED)
    assert found(
        path(1, "queue", done, hop("acked", "n1", DAY + 1, **ACKED)),
        # Two groups; told once more after a start, or before.
        path(2, "queue", done, hop("acked", "n1", DAY + 1, group_name="h")),
        path(3, "queue", done, again),
        path(4, "queue", again, hop("acked", "n1", DAY + 2, **ACKED)),
        path(5, "queue", done, again, hop("acked", "n2", DAY + 2, **ACKED)),
        path(6, "queue", hop("acked", "n1", DAY), hop("acked", "n1", DAY + 1)),
    ) == {
        1: ("duplicated", "done twice by g", "n1", DAY + 1),
        5: ("duplicated", "done twice by g", "n2", DAY + 2),
    }


def test_what_took_longer_than_was_promised_is_late() -> None:
    def took(message: int, us: int) -> Row:
        given = hop("published", "n1", DAY + us, **GIVEN)
        return path(message, "topic", given, born=DAY, delivered=DAY + us)

    assert found(
        took(1, 2 * SECOND),
        took(2, SECOND),
        took(3, SECOND + 499),
        took(4, SECOND + 2500),
    ) == {
        1: ("late", "took 2000 ms", "n1", DAY + 2 * SECOND),
        3: ("late", "took 1000 ms", "n1", DAY + SECOND + 499),
        4: ("late", "took 1003 ms", "n1", DAY + SECOND + 2500),
    }


def test_in_a_queue_it_is_the_wait_that_counts() -> None:
    stored, replayed = hop("stored", "n1", DAY), hop("replayed", "n1", DAY + HOUR)
    tried = hop("lent", "n1", DAY + 1, attempt=1)

    def lent(at: int, attempt: int | None = 1) -> Row:
        return hop("lent", "n1", at, attempt=attempt)

    assert found(
        path(1, "queue", stored, lent(DAY + 2 * MINUTE + 999)),
        path(2, "queue", stored, lent(DAY + MINUTE)),
        # Tried again; for the first time, as nothing else is told.
        path(3, "queue", stored, tried, lent(DAY + HOUR, 2)),
        path(4, "queue", stored, lent(DAY + 2 * MINUTE, None)),
        # A dead letter waits from when it was sent again.
        path(5, "queue", stored, tried, replayed, lent(DAY + HOUR + SECOND)),
        path(6, "queue", stored, tried, replayed, lent(DAY + HOUR + 2 * MINUTE)),
        path(10, "queue", stored, tried, replayed, lent(DAY + HOUR)),
        # It was late before that, too.
        path(9, "queue", stored, lent(DAY + 2 * MINUTE), replayed),
        # Not yet due; nobody knows since when.
        path(7, "queue", stored, lent(DAY + HOUR), ready=DAY + HOUR),
        path(8, "queue", lent(DAY + HOUR), ready=None),
    ) == {
        1: ("late", "waited 120000 ms", "n1", DAY + 2 * MINUTE + 999),
        4: ("late", "waited 120000 ms", "n1", DAY + 2 * MINUTE),
        6: ("late", "waited 120000 ms", "n1", DAY + HOUR + 2 * MINUTE),
        9: ("late", "waited 120000 ms", "n1", DAY + 2 * MINUTE),
    }


def test_nobody_knows_what_whoever_asked_was_told_so() -> None:
    unsure = "overload, outcome unknown"
    asked = hop("asked", "n1", DAY)
    assert found(
        path(1, "request", asked, hop("answered", "n1", DAY + 5, reason=unsure)),
        path(2, "request", asked, hop("answered", "n1", DAY + 5, reason="forbidden")),
        # The home said so, not the end.
        path(
            3,
            "request",
            hop("answered", "n2", DAY + 4, came_from="n1", reason=unsure),
            hop("answered", "n1", DAY + 5, reason="forbidden"),
        ),
        path(4, "request", asked, hop("answered", "n1", DAY + 5)),
    ) == {1: ("unknown", f"answered: {unsure}", "n1", DAY + 5)}


def test_several_things_may_be_said_of_one() -> None:
    path_ = path(
        1,
        "topic",
        hop("dropped", "n2", DAY, reason="slow_link", target="topic:t"),
        hop("published", "n1", DAY + 1, **GIVEN),
        hop("published", "n1", DAY + 2 * SECOND, **GIVEN),
        delivered=DAY + 2 * SECOND,
    )
    assert settled(path_, OPTIONS) == [
        ("lost", "dropped: slow_link", "n2", DAY),
        ("duplicated", "twice at n1", "n1", DAY + 2 * SECOND),
        ("late", "took 2000 ms", "n1", DAY + 2 * SECOND),
    ]


@UNSHRUNK
@given(TALES)
def test_of_what_is_not_suspect_nothing_could_be_said(tale: Tale) -> None:
    paths, _trails = paths_of(tale.table(), H0, tale.clocks(), tales.OPTIONS)
    for row in paths.to_pylist():
        # In tales a message may be sent once more before its queue had it, if it ever had.
        strange = bool(replays(row)) or (row["family"] == "queue" and row["ready"] is None)
        if not strange and not row["suspect"]:
            assert settled({**row, "suspect": True}, tales.OPTIONS) == []


@UNSHRUNK
@given(TALES)
def test_what_is_delivered_in_vain_is_what_the_audit_calls_dropped(tale: Tale) -> None:
    paths, _trails = paths_of(tale.table(), H0, tale.clocks(), tales.OPTIONS)
    for row in paths.to_pylist():
        said = [one for one in settled(row, tales.OPTIONS) if one.reason.startswith("dropped: ")]
        assert row["vain"] == bool(said)


def test_who_it_was_dropped_for_may_not_be_told() -> None:
    """Delivery and the audit count it alike: as lost, unless it may have been given to them."""
    here = World(Node("n1"), Node("n2"))
    for node in here.nodes:
        here.start(node, DAY)
    about = {"kind": "sent", "target": "user/u"}
    to_nobody, _left = here.travel(DAY, [Hop("n1", n=0)], **about)
    given_, _left = here.travel(DAY, [Hop("n1", n=1)], **about)
    for message in (to_nobody, given_):
        here.tell("n2", DAY + 9, "dropped", message=message, reason="slow_link")
    rows = tales.table([row for row in here.rows if "message" in row])
    paths, trails = paths_of(rows, H0, tales.clocks({}), OPTIONS)
    assert trails is not None
    assert said((row, settled(row, OPTIONS)) for row in paths.to_pylist()) == {
        to_nobody: ("lost", "dropped: slow_link", "n2", DAY + 9)
    }
    [counted] = delivery(dict(Sums(paths, trails, OPTIONS).all())[DELIVERY]).to_pylist()
    assert (counted["messages"], counted["delivered"]) == (2, 1)
