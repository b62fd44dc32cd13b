"""`chappe report`: one page, made of tables alone, that needs no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.pipeline_tables import BORN, MINUTE, hop, path, put, put_day, snowflake
from tests.cli.process import run_here

PLOTTED = ("delivery", "latency", "links", "rooms", "queues", "push", "sessions", "audit")


class Page(HTMLParser):
    """A page as a browser takes it apart: scripts are not text, and entities are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open.append(tag)
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.scripts[-1] += data
        else:
            self.text += data + " "


def report(tables: Path, tmp_path: Path) -> Page:
    out = tmp_path / "report.html"
    done = run_here("report", "--tables", str(tables), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert str(out) in done.stdout.replace("\n", "")
    assert [found.name for found in tmp_path.glob("report.html*")] == ["report.html"]
    return Page(out.read_text())


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("day")
    put_day(folder / "tables")
    return report(folder / "tables", folder)


def figures(page: Page) -> list[dict[str, Any]]:
    """What the page draws."""
    return [json.loads(script) for script in page.scripts if script.startswith('{"data"')]


def test_every_section_has_plots(day: Page) -> None:
    places = [attrs.get("id") or "" for tag, attrs in day.tags if tag in ("section", "div")]
    for name in PLOTTED:
        assert name in places
        assert f"{name}-0" in places
    assert not [tag for tag, attrs in day.tags if attrs.get("class") == "nothing"]
    drawn = [attrs for tag, attrs in day.tags if attrs.get("class") == "plot"]
    assert len(figures(day)) == len(drawn) >= 20
    assert all(figure["data"] for figure in figures(day))


def test_some_messages_are_shown_hop_by_hop(day: Page) -> None:
    assert f"{snowflake()}  user:alice → topic:t  app main" in day.text
    assert "one  published" in day.text


def test_of_each_kind_the_message_with_the_longest_way_is_shown(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    short = [path(snowflake(0, n), "topic", hop("published", "one", 1)) for n in range(1, 9)]
    long = path(
        snowflake(0, 9),
        "topic",
        hop("published", "one", 1, went_to=["two"]),
        hop("published", "two", 2, came_from="one"),
    )
    job = path(snowflake(0, 10), "queue", hop("stored", "one", 1), target="queue:jobs")
    lost = path(snowflake(0, 11), "queue", hop("stored", "one", 1), target="queue:lost")
    put(tables, "paths", *short, long, job, lost)
    verdict = {"app": "main", "family": "queue", "message": snowflake(0, 11), "verdict": "lost"}
    put(tables, "audit", verdict | {"born": BORN, "at": BORN, "node": "one"})
    page = report(tables, tmp_path)
    assert len([tag for tag, _attrs in page.tags if tag == "details"]) == 3
    assert "two  published" in page.text
    assert "queue:jobs" in page.text
    assert "lost: a message of a queue" in page.text
    assert "audit: lost; last seen on one" in page.text


def test_the_figures_at_a_glance_are_those_of_the_tables(day: Page) -> None:
    text = re.sub(r"\s+", " ", day.text)
    # 90 minutes, 12 apps, 1000 messages each of which one in a hundred is recorded
    assert "108,000,000 messages" in text
    assert "99.9 % arrived in time, queues and push apart" in text
    # A bucket's middle: 1.02 to the power of 349, in microseconds.
    assert "1 ms median to users and topics" in text
    assert "1 ms 99 of 100 within" in text
    assert "1 lost 1 duplicated 1 late 1 unknown" in text
    assert "180 dead letters" in text
    assert "378 sessions at the end of a minute, at most" in text
    assert "2026-03-01 10:00 to 2026-03-01 11:30 UTC" in text


def test_rooms_are_shown_with_hot_spots_before_all_others(day: Page) -> None:
    text = re.sub(r"\s+", " ", day.text)
    # 90 minutes; of a sample less may be known than its broker counted.
    assert "room:0 540,000 4,500 5 2 25 % 90 min room:1 90,000 4,500 5 2" in text
    names = [trace.get("name") for figure in figures(day) for trace in figure["data"]]
    assert {"partition 0", "partition 1", "two, partition 1", "others"} <= set(names)
    assert "one proxy → two broker" in names
    [largest] = [figure for figure in figures(day) if figure["data"][0].get("name") == "room:0"]
    assert [trace["name"] for trace in largest["data"]][-1] == "others"
    # In steps of a minute: a hundred a second; of five of the others, all together.
    first = [trace["y"][0] for trace in largest["data"]]
    assert first[0] == 100.0
    assert first[-1] == pytest.approx(5 * 1000 / 60)


def test_jobs_of_push_are_shown_with_those_for_the_most_clients_first(day: Page) -> None:  # P9
    text = re.sub(r"\s+", " ", day.text)
    counts = "1,089 900 (82.6 %) 800 (73.5 %) 80 (10 %) 189 30 259"
    sent = "2026-03-01 11:29:05"
    assert f"99 of 100 within m89 j89 topic:<b>news</b> {sent} {counts} 1.01 s m88 j88" in text
    assert "and 40 more" in text
    by_name = {trace.get("name"): trace["y"] for figure in figures(day) for trace in figure["data"]}
    # Each client is acknowledged, waits, was let go by the sender, or was dropped.
    fates = ("acknowledged", "waits, or expired", "taken back", "dropped")
    assert [by_name[name][1] * 60 for name in fates] == pytest.approx([800, 171, 20, 10])
    assert by_name["clicked, of those"][0] == 10.0
    assert by_name["handed over"][0] == 90.0


def test_nothing_is_fetched_from_anywhere(day: Page) -> None:
    for tag, attrs in day.tags:
        assert tag not in ("link", "img", "iframe")
        assert "src" not in attrs, tag
        assert tag != "a" or (attrs["href"] or "").startswith("#")
    (policy,) = (a["content"] for t, a in day.tags if t == "meta" and "http-equiv" in a)
    assert (policy or "").startswith("default-src 'none'")


@pytest.mark.skipif(shutil.which("node") is None, reason="no engine for scripts here")
def test_the_script_draws_every_figure(day: Page, tmp_path: Path) -> None:
    (script,) = (script for script in day.scripts if "function draw()" in script)
    places = [{"textContent": json.dumps(figure)} for figure in figures(day)]
    file = tmp_path / "page.js"
    file.write_text(_BROWSER.replace("PLACES", json.dumps(places)) + script + _TELL)
    done = subprocess.run(["node", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    layouts = json.loads(done.stdout)
    # Once at first, and once more when the reader's machine went dark.
    assert len(layouts) == 2 * len(places)
    assert {layout["font"]["color"] for layout in layouts} == {"ink"}
    assert {layout["xaxis"]["gridcolor"] for layout in layouts} == {"rule"}
    assert all(layout["font"]["family"] for layout in layouts)


_BROWSER = """
const drawn = [];
let change;
const places = PLACES.map((beside) => ({nextElementSibling: beside}));
globalThis.matchMedia = () => ({addEventListener: (_kind, then) => { change = then; }});
globalThis.document = {documentElement: null, querySelectorAll: () => places};
globalThis.getComputedStyle = () => ({getPropertyValue: (name) => name.slice(2)});
globalThis.Plotly = {react: (_place, _data, layout) => drawn.push(layout)};
"""
_TELL = "change(); console.log(JSON.stringify(drawn));"


def test_names_of_strangers_stay_names(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "queue", hop("stored", "one", 1), target=name))
    queue = {"app": "main", "queue": name, "window": BORN, "stored": 1, "acked": 0, "lag": 1}
    put(tables, "queues", queue)
    beat = {"node": name, "peer": "two", "window": BORN, "handed": 1, "arrived": 1}
    put(tables, "links", beat)
    lost = {"family": name, "verdict": "lost", "reason": name, "target": name, "born": BORN}
    put(tables, "audit", lost | {"app": "main", "message": 1})
    page = report(tables, tmp_path)
    drawn = [script for script in page.scripts if script.startswith('{"data"')]
    assert all("alert(1)" not in script or script in drawn for script in page.scripts)
    assert "img" not in [tag for tag, _attrs in page.tags]
    assert name in page.text
    # What a plot would take for a tag is not one.
    assert drawn
    for script in drawn:
        assert "\\u003cimg" not in script
        assert "<img" not in script


def test_a_percentile_is_of_all_rows_together(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "topic", hop("published", "one", 1)))
    common = {"app": "a", "family": "topic", "hop": "delivery", "role": "whole"}
    fast = {"window": BORN, "count": 50, "buckets": [{"bucket": 0, "count": 50}]}
    slow = {"window": BORN + MINUTE, "count": 51, "buckets": [{"bucket": 698, "count": 51}]}
    put(tables, "latency", common | fast, common | slow)
    text = re.sub(r"\s+", " ", report(tables, tmp_path).text)
    # Half of all are within a second, though half of the minutes were fast.
    assert "1.01 s median to users and topics" in text


def test_a_share_is_never_rounded_up(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "topic", hop("published", "one", 1)))
    row = {"app": "a", "family": "topic", "window": BORN, "scaled": 1e6}
    put(tables, "delivery", row | {"messages": 10**6, "delivered": 10**6, "in_time": 10**6 - 1})
    text = re.sub(r"\s+", " ", report(tables, tmp_path).text)
    assert "99.999 % arrived in time, queues and push apart" in text


def test_a_section_without_rows_says_why(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    page = report(tables, tmp_path)
    whys = [attrs for _tag, attrs in page.tags if attrs.get("class") == "nothing"]
    assert len(whys) == len(PLOTTED) + 1
    for why in (
        "none was sent, or events.share of the nodes is 0",
        "a node that is alone has none",
        "Nobody said anything in a room",
        "No message went through a queue",
        "Nothing was pushed to a device",
        "Nobody was connected",
        "every message that was recorded arrived once, and in time",
    ):
        assert why in page.text


def test_what_was_put_aside_is_counted_by_what_is_wrong(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    put(tables, "quarantine", *[{"problem": "no node"}] * 3, {"problem": "<b>"})
    text = re.sub(r"\s+", " ", report(tables, tmp_path).text)
    assert "4 rows made no sense" in text
    assert "no node 3 <b> 1" in text


def test_what_is_said_of_a_node_is_listed_and_counts_as_no_message(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    row = {"family": "node", "verdict": "unknown", "reason": "killed", "node": "one", "at": BORN}
    put(tables, "audit", row)
    text = re.sub(r"\s+", " ", report(tables, tmp_path).text)
    assert "0 unknown" in text
    assert "unknown node killed one 2026-03-01 10:00:00" in text
    assert "None" not in text


def test_a_page_grows_with_what_is_seen_and_not_with_what_there_was(tmp_path: Path) -> None:
    """A month, a thousand queues, forty nodes, as many apps: more than a screen shows of each."""
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "topic", hop("published", "one", 1)))
    put(tables, "delivery", *_delivered(minutes=range(0, 43_200, 60), apps=40))
    queue = {"app": "main", "window": BORN, "stored": 1, "acked": 1, "lag": 0}
    put(tables, "queues", *(queue | {"queue": f"queue:q{n}"} for n in range(1000)))
    room = {"app": "main", "window": BORN, "messages": 1, "scaled": 1.0, "hot": False}
    put(tables, "rooms", *(room | {"room": f"room:{n}"} for n in range(1000)))
    counts = dict.fromkeys(("sent", "arrived", "clicked", "offline", "dropped", "withdrawn"), 0)
    job = {"app": "main", "window": BORN, "born": BORN, "aimed": 1, "waiting": 1, **counts}
    put(tables, "jobs", *(job | {"note": f"p{n}", "buckets": []} for n in range(2050)))
    link = {"window": BORN, "handed": 9, "arrived": 9, "delay_p99": 900.0}
    names = [f"node-{n}" for n in range(40)]
    put(tables, "links", *(link | {"node": a, "peer": b} for a in names for b in names if a != b))
    lost = {"app": "main", "family": "queue", "verdict": "lost", "born": BORN, "at": BORN}
    put(tables, "audit", *(lost | {"message": snowflake(0, n)} for n in range(4000)))
    page = report(tables, tmp_path)
    assert sum(len(script) for script in page.scripts if script.startswith('{"data"')) < 1_000_000
    assert "and 900 more" in page.text
    assert "and 950 more" in page.text
    assert "and 2,000 more" in page.text
    assert "and 3,800 more" in page.text
    assert all(len(figure["data"]) <= 8 for figure in figures(page))


def _delivered(minutes: Iterable[int], apps: int) -> Iterator[dict[str, Any]]:
    for minute in minutes:
        for n in range(apps):
            yield {
                "app": f"app-{n}",
                "family": "topic",
                "window": BORN + minute * MINUTE,
                "messages": 10,
                "delivered": 10,
                "in_time": 10,
                "scaled": 10.0,
            }


def test_a_machine_is_told_where_the_page_is(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    out = tmp_path / "page.html"
    done = run_here("report", "--tables", str(tables), "--out", str(out), "--json")
    told = json.loads(done.stdout)
    assert told == {"ok": True, "out": str(out), "bytes": out.stat().st_size}


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    done = run_here("report", "--tables", str(tmp_path / "none"), "--out", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "--tables: no tables in" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("words", [["report"], ["trace", "1"], ["pipeline", "compact"]])
def test_tables_of_another_version_are_named(tmp_path: Path, words: list[str]) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    write_deltalake(tables / "latency", pa.table({"hour": ["2026-03-01T10"], "p95": [1.0]}))
    done = run_here(*words, "--tables", str(tables))
    assert done.returncode == 2
    assert "was made by another version of chappe" in " ".join(done.stderr.split())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(snowflake(), "other", hop("dropped", "one", 1)))
    out = tmp_path / "nowhere" / "page.html"
    done = run_here("report", "--tables", str(tables), "--out", str(out))
    assert done.returncode == 2
    assert f"--out: there is no folder {out.parent}" in " ".join(done.stderr.split())
    done = run_here("report", "--tables", str(tables), "--out", str(tmp_path))
    assert done.returncode == 2
    assert f"--out: {tmp_path} is a folder" in " ".join(done.stderr.split())
