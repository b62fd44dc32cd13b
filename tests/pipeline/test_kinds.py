"""A kind is added in one place: an entry in the schema, and all of the pipeline knows its hops. D1

What is added here is hops of messages, as rooms will have them. It is done as one would do it, in a
copy of the source: so nothing that was read from the schema before can be missed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.pipeline.table import read
from tests.cli.process import CHAPPE, environment
from tests.pipeline import sparks
from tests.pipeline.full import full_only
from tests.pipeline.relaying import KINDS, ROOM, SHED, WHOLE
from tests.pipeline.traffic import DAY, SECOND

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    full_only("has a source, and so a Java, of its own"),
]

HALF = pytest.approx(0.5, rel=1e-4)
ONE_OF_TWO, TWO_OF_FOUR = pytest.approx(2, rel=1e-4), pytest.approx(4, rel=1e-4)
BEGIN = "KINDS: dict[str, Kind] = {\n"


class Place:
    """A copy of the source with more kinds, what its nodes told, and the tables of that."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(Path(chappe.__file__).parent, folder / "source" / "chappe")
        schema = folder / "source" / "chappe" / "events" / "schema.py"
        before, after = schema.read_text().split(BEGIN)
        schema.write_text(before + BEGIN + KINDS + after)
        root = Path(__file__).parents[2]
        self._environment = environment() | sparks.environment(folder)
        self._environment["PYTHONPATH"] = f"{folder / 'source'}:{root}"
        self.tables, events = folder / "tables", folder / "events"
        self._run(sys.executable, "-m", "tests.pipeline.relaying", str(events))
        words = ("--events", str(events), "--tables", str(self.tables), "--master", "local[1]")
        self.chappe("pipeline", "run", *words)

    def chappe(self, *words: str) -> list[str]:
        return self._run(CHAPPE, *words)

    def _run(self, *words: str) -> list[str]:
        done = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stderr
        return [line.rstrip() for line in done.stdout.splitlines()]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row[name] for name in columns) for row in read(self.tables, table).to_pylist()
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("kinds"))


def test_every_row_of_a_new_kind_makes_sense_and_is_of_its_message(place: Place) -> None:
    assert place.rows("quarantine", "problem") == []
    of_none = {kind for [kind] in place.rows("events", "kind")}
    assert of_none == {"node_started", "node_alive", "node_stopped"}


def test_a_hop_of_a_new_kind_is_in_the_path_of_its_message(place: Place) -> None:
    columns = ("message", "family", "target", "born", "delivered", "receivers", "share")
    assert place.rows("paths", *columns, "open", "vain") == [
        (WHOLE, "room", ROOM, DAY, DAY + 900, 5, HALF, False, False),
        (SHED, "room", ROOM, DAY + SECOND, None, 0, HALF, False, True),
    ]
    [(_whole, whole), (_shed, shed)] = place.rows("paths", "message", "hops")
    assert [(hop["node"], hop["kind"], hop["at"] - DAY) for hop in whole] == [
        ("proxy", "relayed", 100),
        ("broker", "relayed", 350),
        ("east", "relayed", 700),
        ("west", "relayed", 900),
        ("west", "read", 5000),
    ]
    assert [(hop["node"], hop["kind"], hop["reason"]) for hop in shed] == [
        ("proxy", "relayed", None),
        ("broker", "shed", "slow_link"),
    ]


def test_it_is_counted_how_long_its_steps_took(place: Place) -> None:
    columns = ("app", "family", "hop", "role", "window", "count", "scaled", "max")
    assert place.rows("latency", *columns) == [
        ("chat", "room", "delivery", "whole", DAY, 1, ONE_OF_TWO, 900),
        ("chat", "room", "hub", "last", DAY, 2, TWO_OF_FOUR, 250),
        ("chat", "room", "hub", "origin", DAY, 2, TWO_OF_FOUR, 100),
        ("chat", "room", "hub", "relay", DAY, 1, ONE_OF_TWO, 50),
        ("chat", "room", "link", "last", DAY, 2, TWO_OF_FOUR, 300),
        ("chat", "room", "link", "relay", DAY, 1, ONE_OF_TWO, 200),
    ]


def test_it_is_counted_what_arrived_and_over_which_links(place: Place) -> None:
    columns = ("app", "family", "messages", "delivered", "in_time", "scaled")
    assert place.rows("delivery", *columns) == [("chat", "room", 2, 1, 1, TWO_OF_FOUR)]
    assert place.rows("links", "node", "peer", "handed", "arrived") == [
        ("broker", "east", 1, 1),
        ("broker", "west", 1, 1),
        ("proxy", "broker", 2, 1),
    ]


def test_the_audit_names_what_a_new_kind_says_was_lost(place: Place) -> None:
    assert place.rows("audit", "message", "family", "verdict", "reason", "node") == [
        (SHED, "room", "lost", "shed: slow_link", "broker")
    ]


def test_a_trace_shows_each_hop_below_the_one_it_came_from(place: Place) -> None:
    assert place.chappe("trace", str(WHOLE), "--tables", str(place.tables)) == [
        f"{WHOLE}  user:a → room:42  app chat",
        "2026-03-16 00:00:00.000000 UTC  5.00 ms in all  one of 2 that are recorded",
        "└──      +100 us  proxy  relayed  on to broker  9 B  took 100 us",
        "    └──      +350 us  broker  relayed  on to east, west  9 B  took 50 us",
        "        ├──      +700 us  east  relayed  to 3 sessions  9 B  took 100 us",
        "        └──      +900 us  west  relayed  to 2 sessions  9 B  took 250 us",
        "            └──     +5.00 ms  west  read",
    ]
    assert place.chappe("trace", str(SHED), "--tables", str(place.tables))[2:] == [
        "├──      +100 us  proxy  relayed  on to broker  9 B  took 100 us",
        "├──      +400 us  broker  shed  (slow_link)",
        "└── audit: lost, shed: slow_link; last seen on broker at 2026-03-16 00:00:01.000400 UTC",
    ]


def test_the_report_has_a_plot_of_it(place: Place, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    place.chappe("report", "--tables", str(place.tables), "--out", str(page))
    assert "to rooms" in page.read_text()
    assert "a message to a room, one with many hops" in page.read_text()
