"""What is said of notes that devices did not acknowledge, and of those that had them twice or late.

D2, P9
"""

from __future__ import annotations

from typing import Any

from hypothesis import given

from chappe.pipeline.audit import Known, by_node, unsettled
from chappe.pipeline.lives import Life
from chappe.pipeline.options import Options
from chappe.pipeline.paths import paths_of
from chappe.pipeline.unheard import is_sent
from chappe.pipeline.verdicts import Verdict, settled
from tests.pipeline import plain, plain_push
from tests.pipeline.oddities import H0, Row, hop, path, said
from tests.pipeline.tales import NODES, TALES, UNSHRUNK, Tale
from tests.pipeline.tales import OPTIONS as SHORT
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND

OPTIONS = Options()
DIED, EXPIRES = DAY + HOUR, DAY + 2 * HOUR
NOW = EXPIRES + 10 * MINUTE
UNSAID = "handed to c1, and not acknowledged"


def life(node: str, **columns: Any) -> Life:
    told: Row = {"stopped": None, "gone": None, "missed": frozenset(), "died": False, **columns}
    return Life(node=node, boot=DAY, began=DAY, **{"alive": NOW, **told})


# n1 sends, c1 and c2 are comets that live, c3 died, c4 was full.
LIVES = [
    *map(life, ("n1", "c1", "c2")),
    life("c3", alive=DIED, died=True),
    life("c4", missed=frozenset({H0})),
]
KNOWN = Known(by_node(LIVES), NOW, {}, {})


def sent(n: int = 1, **columns: Any) -> Row:
    told = {"n": n, "offline": 0, "expires": EXPIRES, "went_to": ["c1"], **columns}
    return hop("push_sent", "n1", DAY, **told)


def handed(client: str | None = "c1", node: str = "c1", at: int = DAY + 1, **columns: Any) -> Row:
    told = {"client": client, "came_from": "n1", "reason": "live", **columns}
    return hop("push_handed", node, at, **told)


def acked(client: str | None = "c1", at: int = DAY + 2, **columns: Any) -> Row:
    return hop("push_acked", "c1", at, client=client, **{"reason": "live", **columns})


def note(id: int, *hops: Row, **columns: Any) -> Row:
    return path(id, "push", *hops, open=True, **columns)


def found(*paths: Row, known: Known = KNOWN) -> dict[int, tuple[str, str]]:
    judged = said((one, unsettled(one, known, OPTIONS)) for one in paths)
    return {number: verdict[:2] for number, verdict in judged.items()}


def test_a_device_that_was_handed_a_note_and_said_nothing_is_not_known_to_have_it() -> None:
    assert found(
        note(1, sent(), handed()),
        note(2, sent(), handed(), handed("c2")),
        # The comet that handed it last died: it may have heard more.
        note(3, sent(), handed(), handed(node="c3", at=DIED - 1)),
        note(4, sent(), handed(node="c3"), handed(at=DIED)),
        # Somebody else acknowledged it; it was dropped for this one.
        note(5, sent(2), handed(), acked("c2")),
        note(6, sent(), handed(), hop("push_dropped", "n1", DAY, client="c1", reason="removed")),
    ) == {
        1: ("unknown", UNSAID),
        2: ("unknown", "handed to 2 clients, and not acknowledged"),
        3: ("unknown", "c3 died before it told"),
        4: ("unknown", UNSAID),
        5: ("unknown", UNSAID),
    }


def test_until_it_expires_a_note_waits_and_nothing_is_said() -> None:
    waits = note(1, sent(expires=NOW), handed())
    assert found(waits) == {}
    soon = note(1, sent(expires=NOW - OPTIONS.grace_ms * 1000), handed())
    assert found(soon) == {}
    assert found(soon, known=KNOWN._replace(horizon=NOW + 1)) == {1: ("unknown", UNSAID)}
    assert found(soon, known=KNOWN._replace(horizon=None)) == {}
    # By the clock of all.
    ahead = note(1, sent(expires=NOW, shift=-HOUR), handed())
    assert found(ahead) == {1: ("unknown", UNSAID)}
    # Of one that does not say when it expires, what was told last is the end.
    assert found(note(1, sent(expires=None), handed())) == {1: ("unknown", UNSAID)}


def test_who_was_online_and_was_not_handed_a_note_lost_it() -> None:
    absent = hop("push_absent", "c1", DAY, n=1)
    assert found(
        note(1, sent(2), handed(), acked()),
        note(2, sent(2, went_to=["c1", "c2"]), handed(), acked()),
        note(3, sent(2, went_to=["c1", "c3"]), handed(), acked()),
        note(4, sent(2, went_to=["c1", "c4"]), handed(), acked()),
        note(5, sent(2, went_to=["c1", "c9"]), handed(), acked()),
        # Who was offline, or gone when it came, waits as long as it likes.
        note(6, sent(2, offline=1), handed(), acked()),
        note(7, sent(2), handed(), acked(), absent),
        # The comet that had it died.
        note(8, sent(2, went_to=["c3"]), handed(node="c3"), acked()),
    ) == {
        1: ("lost", "clients that were online were not handed it"),
        2: ("lost", "it did not come to c2"),
        3: ("unknown", "c3 died before it told"),
        4: ("unknown", "c4 could not write down everything"),
        5: ("unknown", "c9 never told anything of that time"),
        8: ("unknown", "c3 died before it told"),
    }


def test_of_a_topic_s_note_every_comet_has_to_tell() -> None:
    topic = {"offline": None, "went_to": ["c1", "c2"]}
    one, two = (handed(None, node, n=5) for node in ("c1", "c2"))
    assert found(
        note(1, sent(100, **topic), one, two),
        note(2, sent(100, **topic), one),
        # All have it, by other ways.
        note(3, sent(9, **topic), one, acked(None, n=9)),
        note(4, sent(9, **topic), one, acked(None, n=8)),
    ) == {
        2: ("lost", "it did not come to c2"),
        4: ("lost", "it did not come to c2"),
    }


def test_of_a_note_that_nobody_tells_of_sending_it_is_asked_who_had_it() -> None:
    assert found(
        note(1, handed(came_from="n1")),
        note(2, handed(came_from="c3", at=DIED)),
        note(3, handed(came_from=None)),
    ) == {
        1: ("unknown", "n1 had it and does not tell of it"),
        2: ("unknown", "c3 died before it told"),
    }


def test_of_a_note_whose_hour_was_forgotten_before_it_expired_nobody_knows() -> None:
    forgotten = "its hour was forgotten: what came of it since is not known"
    early, late = "2026-03-16T01", "2026-03-16T04"
    one = note(1, sent(), handed())
    assert found(one, known=KNOWN._replace(forgotten=[early])) == {1: ("unknown", forgotten)}
    assert found(one, known=KNOWN._replace(forgotten=[late])) == {1: ("unknown", UNSAID)}


def verdicts(*hops: Row) -> list[Verdict]:
    return settled(path(1, "push", *hops), OPTIONS)


def test_what_a_client_acknowledged_twice_is_duplicated() -> None:
    assert verdicts(sent(2), acked(), acked("c2")) == []
    twice = "acknowledged twice by c1"
    assert verdicts(sent(2), acked(), acked(at=DAY + 5)) == [
        ("duplicated", twice, "c1", DAY + 5),
    ]
    assert verdicts(sent(5), acked(None, n=2), acked(None, n=3)) == []
    assert verdicts(sent(4), acked(None, n=2), acked(None, n=3)) == [
        ("duplicated", "acknowledged 5 times, and sent to 4", "c1", DAY + 2),
    ]


def test_who_was_online_has_it_in_time_or_late() -> None:
    slow = DAY + 2 * SECOND
    assert verdicts(sent(), acked(at=slow)) == [("late", "took 2000 ms", "c1", slow)]
    # When the acknowledgement was read counts, not when it was settled.
    assert verdicts(sent(), acked(at=slow, came=DAY + SECOND)) == []
    # Who came back later was promised nothing before.
    assert verdicts(sent(), acked(at=slow, reason="login")) == []
    assert verdicts(sent(9), acked(None, at=slow, n=0)) == []
    assert verdicts(sent(9), acked(None, at=slow, n=2)) == [("late", "took 2000 ms", "c1", slow)]


@UNSHRUNK
@given(TALES)
def test_of_every_odd_note_something_is_said_and_of_no_other(tale: Tale) -> None:
    known = Known(by_node(life(node, alive=NOW) for node in NODES), NOW + HOUR, {}, {})
    paths, _trails = paths_of(tale.table(), H0, tale.clocks(), SHORT)
    hops_of = {hops[0]["label"]: hops for hops in plain.trails(tale)}
    for one in paths.to_pylist():
        if one["family"] != "push":
            continue
        assert bool(settled({**one, "suspect": True}, SHORT)) == one["suspect"]
        hops = hops_of[one["label"]]
        if not is_sent(one) or plain_push.is_ended(hops):
            continue
        assert bool(unsettled(one, known, SHORT)) == one["open"]
