"""`chappe trace`: the whole way of one message, as a tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.pipeline_tables import BORN, hop, path, put, snowflake
from tests.cli.process import run_here

NOTE, TOPIC = (f"{kind}0a00001{BORN // 1_000_000:08x}" for kind in "pm")
PUSHED, SILENT = (f"j0a0000{n}{BORN // 1_000_000:08x}" for n in (1, 2))
NEWS, JOB, LONE = snowflake(0, 1), snowflake(0, 2), snowflake(0, 3)
SENT_ON, SAID = snowflake(0, 6), snowflake(0, 7)
REQUEST, CARRIED = f"n1.{snowflake(0, 4)}", f"n1.{snowflake(0, 5)}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    put(
        folder,
        "paths",
        path(
            NEWS,
            "topic",
            hop(
                "published", "one", 100, came=BORN, went_to=["two", "three", "four"], n=1, bytes=12
            ),
            # Its clock is two seconds behind.
            hop(
                "published",
                "two",
                1300 - 2_000_000,
                came=BORN - 1_999_000,
                shift=2_000_000,
                came_from="one",
                n=3,
            ),
            hop("published", "three", 1500, came_from="one", n=2),
            hop("dropped", "three", 1700, reason="slow_consumer", n=1),
            target="topic:news",
            share=0.01,
        ),
        path(
            JOB,
            "queue",
            hop("stored", "one", 2000, came=BORN),
            hop("lent", "one", 3000, group_name="workers", attempt=1, session="s1"),
            hop("lent", "one", 3500, group_name="audit", attempt=1),
            hop("returned", "one", 9000, group_name="workers", attempt=1, reason="nack"),
            hop("acked", "one", 9500, group_name="audit", attempt=1),
            hop(
                "died", "one", 65_000_000, group_name="workers", attempt=2, reason="attempts\x1b[2J"
            ),
            target="queue:jobs",
            open=True,
        ),
        path(LONE, "send", hop("sent", "two", 5, came_from="one", n=1), target="user:bob"),
        path(
            None,
            "request",
            hop("asked", "one", 0),
            hop("answered", "one", 4000, came=BORN, reason="unreachable"),
            label=REQUEST,
            target="service:billing",
        ),
        path(
            None,
            "request",
            # A turn of the other node's loop may have begun before it was handed the request.
            hop("asked", "two", -10, came_from="one"),
            hop("asked", "one", 0, went_to=["two"]),
            hop("answered", "two", 3000, came_from="one"),
            hop("answered", "one", 4000),
            label=CARRIED,
            target="service:billing",
        ),
        path(
            SENT_ON,
            "queue",
            hop("sent", "two", 100, went_to=["one"], n=0),
            hop("stored", "one", 2000, came_from="two"),
            hop("acked", "one", 3000, group_name="workers", attempt=1),
            target="queue:jobs",
        ),
        path(
            SAID,
            "room",
            # One is publisher and gateway, two proxy and gateway, three broker and gateway.
            hop("published", "one", 10, role="publisher", went_to=["two"], n=0),
            hop("published", "two", 20, role="proxy", came_from="one", went_to=["three"], n=0),
            hop(
                *("published", "three", 30),
                role="broker",
                came_from="two",
                went_to=["one", "two"],
                n=0,
            ),
            hop("published", "three", 31, came_from="three", n=4),
            hop("published", "one", 40, came_from="three", n=2),
            # A copy, of which the way to two is lost.
            hop("published", "one", 10_010, role="publisher", went_to=["two"], n=0),
            hop("published", "two", 10_020, role="proxy", came_from="one", went_to=["three"], n=0),
            hop(
                *("published", "three", 10_030),
                role="broker",
                came_from="two",
                went_to=["one", "two"],
                n=0,
            ),
            hop("copied", "one", 10_040, came_from="three", n=0),
            target="room:7",
        ),
        path(
            None,
            "push",
            hop(
                *("push_sent", "one", 900),
                came=BORN,
                n=3,
                offline=1,
                went_to=["two", "three"],
                bytes=12,
                job=PUSHED,
                expires=BORN + 86_400_000_000,
            ),
            hop("push_handed", "two", 2000, came_from="one", client="c1", reason="live"),
            hop("push_absent", "two", 2000, came_from="one", n=1),
            hop("push_acked", "two", 30_000, client="c1", came=BORN + 29_000, reason="live"),
            hop("push_handed", "two", 60_000_000, client="c2", reason="login"),
            hop("push_clicked", "one", 90_000_000, client="c1"),
            label=NOTE,
            target="many:",
            sender=None,
        ),
        path(
            None,
            "push",
            hop("push_sent", "one", 900, n=70_000, went_to=["two"], job=SILENT),
            hop("push_handed", "two", 2000, came_from="one", n=61_234, reason="live"),
            hop("push_acked", "two", 30_000, n=1, reason="live"),
            *(
                hop("push_dropped", "one", 9 + n, client=f"c{n}", reason="removed")
                for n in range(52)
            ),
            label=TOPIC,
            target="topic:news",
        ),
        path(None, "other", hop("dropped", "one", 1), label="m0a0000165f2c3d4"),
    )
    put(folder, "jobs", {"job": PUSHED, "note": NOTE}, {"job": SILENT, "note": TOPIC})
    verdict = {"app": "main", "family": "queue", "message": JOB, "born": BORN, "at": BORN + 9000}
    put(
        folder,
        "audit",
        verdict | {"hour": "open", "verdict": "lost", "reason": "tried too often", "node": "one"},
    )
    return folder


def lines(tables: Path, id: int | str) -> list[str]:
    done = run_here("trace", str(id), "--tables", str(tables))
    assert (done.returncode, done.stderr) == (0, "")
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_each_hop_is_below_the_one_it_came_from(tables: Path) -> None:
    assert lines(tables, NEWS) == [
        f"{NEWS}  user:alice → topic:news  app main",
        "2026-03-01 10:00:00.000000 UTC  1.70 ms in all  one of 100 that are recorded",
        "└──      +100 us  one  published  to 1 session  on to two, three, four  12 B  took 100 us",
        "    ├──     +1.30 ms  two  published  to 3 sessions  took 300 us",
        "    ├──     +1.50 ms  three  published  to 2 sessions",
        "    │   └──     +1.70 ms  three  dropped  (slow_consumer)",
        "    └── four  tells nothing of it",
    ]


def test_a_message_to_a_room_is_shown_role_by_role_and_copy_by_copy(tables: Path) -> None:
    assert lines(tables, SAID)[2:] == [
        "├──       +10 us  one  published  as publisher  on to two",
        "│   └──       +20 us  two  published  as proxy  on to three",
        "│       └──       +30 us  three  published  as broker  on to one, two",
        "│           ├──       +31 us  three  published  to 4 sessions",
        "│           ├──       +40 us  one  published  to 2 sessions",
        "│           └── two  tells nothing of it",
        "└──     +10.0 ms  one  published  as publisher  on to two",
        "    └──     +10.0 ms  two  published  as proxy  on to three",
        "        └──     +10.0 ms  three  published  as broker  on to one, two",
        "            ├──     +10.0 ms  one  copied",
        "            └── two  tells nothing of it",
    ]


def test_a_queue_s_groups_are_told_apart(tables: Path) -> None:
    assert lines(tables, JOB) == [
        f"{JOB}  user:alice → queue:jobs  app main",
        "2026-03-01 10:00:00.000000 UTC  1.08 min in all",
        "├──     +2.00 ms  one  stored  took 2.00 ms",
        "├── group workers",
        "│   ├──     +3.00 ms  one  lent  attempt 1  session s1",
        "│   ├──     +9.00 ms  one  returned  attempt 1  (nack)",
        "│   └──    +1.08 min  one  died  attempt 2  (attempts?[2J)",
        "├── group audit",
        "│   ├──     +3.50 ms  one  lent  attempt 1",
        "│   └──     +9.50 ms  one  acked  attempt 1",
        "├── audit: lost, tried too often; last seen on one at 2026-03-01 10:00:00.009000 UTC",
        "└── not all of it is told yet",
    ]


def test_a_hop_whose_origin_told_nothing_is_shown_all_the_same(tables: Path) -> None:
    assert lines(tables, LONE)[-1] == "└──        +5 us  two  sent  to 1 session"


def test_a_request_is_found_by_its_label(tables: Path) -> None:
    assert lines(tables, REQUEST)[2:] == [
        "└──        +0 us  one  asked",
        "    └──     +4.00 ms  one  answered  took 4.00 ms  (unreachable)",
    ]


def test_a_request_between_nodes_is_below_whoever_handed_it_on(tables: Path) -> None:
    assert lines(tables, CARRIED)[2:] == [
        "└──        +0 us  one  asked  on to two",
        "    ├──       -10 us  two  asked",
        "    │   └──     +3.00 ms  two  answered",
        "    └──     +4.00 ms  one  answered",
    ]


def test_a_queue_s_message_is_below_the_node_that_handed_it_on(tables: Path) -> None:
    assert lines(tables, SENT_ON)[2:] == [
        "├──      +100 us  two  sent  on to one",
        "│   └──     +2.00 ms  one  stored",
        "└── group workers",
        "    └──     +3.00 ms  one  acked  attempt 1",
    ]


def test_a_label_that_tells_no_time_is_found_too(tables: Path) -> None:
    assert lines(tables, "m0a0000165f2c3d4")[-1] == "└──        +1 us  one  dropped"


@pytest.mark.parametrize("id", [NOTE, PUSHED])
def test_a_note_has_a_branch_for_each_client(tables: Path, id: str) -> None:  # P5, D2
    assert lines(tables, id) == [
        f"{NOTE}  many:  app main",
        "2026-03-01 10:00:00.000000 UTC  1.50 min in all",
        "├──      +900 us  one  push_sent  3 clients  1 offline"
        "  until 2026-03-02 10:00:00.000000 UTC  on to two, three  12 B  took 900 us",
        "│   ├──     +2.00 ms  two  push_absent  1 client",
        "│   └── three  tells nothing of it",
        "├── client c1",
        "│   ├──     +2.00 ms  two  push_handed  (live)",
        "│   ├──     +30.0 ms  two  push_acked  took 1.00 ms  (live)",
        "│   └──    +1.50 min  one  push_clicked",
        "└── client c2",
        "    └──    +1.00 min  two  push_handed  (login)",
    ]


def test_a_topic_s_note_is_told_by_counts_and_of_few_clients(tables: Path) -> None:
    told = lines(tables, TOPIC)
    assert told[2:5] == [
        "├──      +900 us  one  push_sent  70,000 clients  on to two",
        "│   └──     +2.00 ms  two  push_handed  61,234 clients  (live)",
        "├──     +30.0 ms  two  push_acked  1 client  (live)",
    ]
    assert sum("client c" in line for line in told) == 50
    assert told[-1] == "└── and 2 more clients"


def test_a_machine_gets_all_that_is_known(tables: Path) -> None:
    done = run_here("trace", str(JOB), "--tables", str(tables), "--json")
    told = json.loads(done.stdout)
    (way,) = told["paths"]
    assert way["message"] == JOB
    assert [one["kind"] for one in way["hops"]][:2] == ["stored", "lent"]
    assert [verdict["verdict"] for verdict in told["audit"]] == ["lost"]


def failed(tables: Path, id: str) -> str:
    done = run_here("trace", id, "--tables", str(tables))
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "no table tells of it" in told
    return told


@pytest.mark.parametrize(
    "id",
    [
        str(snowflake(5, 9)),
        f"nobody.{snowflake(5, 9)}",
        *(f"{kind}zz00009{BORN // 1_000_000:08x}" for kind in "pmj"),
    ],
)
def test_an_id_that_no_table_has_is_an_error(tables: Path, id: str) -> None:
    assert "perhaps it was not recorded (events.share)" in failed(tables, id)


@pytest.mark.parametrize(
    "id", ["x", "a.b", "1.5e3", str(2**64), "١٢", "p0a00001", "x0a0000165f2c3d4"]
)
def test_what_is_no_id_is_told_so(tables: Path, id: str) -> None:
    assert "nor is this what ids are like" in failed(tables, id)


def test_an_id_of_an_hour_that_was_forgotten_is_told_so(tables: Path) -> None:
    told = failed(tables, str(snowflake(-7_200_000)))
    assert "it is of 2026-03-01T08 UTC, and the tables begin with 2026-03-01T10" in told
    assert "it is of 2026-03-01T08 UTC" in failed(tables, f"p0a00001{BORN // 1_000_000 - 7200:08x}")


def test_a_verdict_outlives_the_way(tmp_path: Path) -> None:
    put(tmp_path, "paths", path(NEWS, "topic", hop("published", "one", 1)))
    verdict = {"app": "main", "family": "queue", "message": JOB, "verdict": "lost", "node": "one"}
    put(tmp_path, "audit", verdict)
    assert lines(tmp_path, JOB) == [
        "audit: lost; last seen on one",
        "its way was forgotten (chappe pipeline expire)",
    ]
