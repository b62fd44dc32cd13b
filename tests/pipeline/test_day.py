"""A day with a known truth: what the tables say of it is what happened. D2

What is compared, of every column of every table of results, with what was planned (day.py and
mishaps.py; never with what follows from the events):

table      equal to the plan                                       within the sketch's error
latency    which rows there are, count, max, sum of buckets,       p50 p90 p99 p999, and the same
           scaled                                                  from buckets of a whole day
delivery   which rows there are, messages, delivered, in_time,
           scaled, ratio, ratio_in_time
links      which rows there are, handed, arrived, success, beats,  delay_p50 delay_p99
           round_trip, ahead, ups, downs, down_us, probes, failed,
           probe_p50, probe_p99
rooms      which rows there are, messages, scaled, deliveries,
           counted, rate, members, gateways, partition, share, hot
room_load  which rows there are, messages, copies, rooms, members,
           share, imbalance
jobs       which rows there are, target, window, born, expires,    p50 p90 p99
           aimed, sent, arrived, clicked, offline, dropped,
           withdrawn, waiting, ratios, max, sum of buckets
queues     which rows there are, hour, stored, lent, acked,        age_p50 age_p99
           returned, died, cancelled, purged, replayed, lag,
           age_max, frontier
sessions   which rows there are, hour, opened, closed,             duration_p50 duration_p99
           reconnects, online, churn, cut
audit      which rows there are, with all columns
quarantine which rows there are, problem, file, row
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from chappe.pipeline.jobs import COUNTS, RATIOS
from chappe.pipeline.sketch import ERROR, time_of
from chappe.pipeline.table import read
from tests.pipeline.day import Day
from tests.pipeline.pushes import LIFE
from tests.pipeline.traffic import DAY, HOUR, MINUTE, hour

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Rows = dict[tuple[Any, ...], dict[str, Any]]


def by(tables: Path, name: str, *keys: str) -> Rows:
    """The rows of a table by what they are of, each once."""
    rows = read(tables, name).to_pylist()
    found = {tuple(row[key] for key in keys): row for row in rows}
    assert len(found) == len(rows)
    return found


def rank(values: Sequence[int], share: float) -> int:
    """The value that this share of all is within."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def about(us: int) -> Any:
    """A time as a sketch may tell it."""
    return pytest.approx(max(us, 1), rel=ERROR * 1.0001)


def test_every_time_of_every_hop_is_counted_and_percentiles_are_right(tables: Path, day: Day):
    found = by(tables, "latency", "hour", "app", "family", "hop", "role", "window")
    assert found.keys() == day.truth.latency.keys()
    for key, truth in day.truth.latency.items():
        row, times = found[key], [us for us, _scale in truth]
        assert row["count"] == len(truth), key
        assert row["scaled"] == pytest.approx(sum(scale for _us, scale in truth)), key
        assert row["max"] == max(times), key
        assert sum(bucket["count"] for bucket in row["buckets"]) == len(truth), key
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert row[name] == about(rank(times, share)), (key, name)


def test_buckets_of_all_minutes_add_up_to_the_percentiles_of_the_day(tables: Path, day: Day):
    sums: Counter[int] = Counter()
    for row in read(tables, "latency").to_pylist():
        if row["hop"] == "hub":
            sums += Counter({one["bucket"]: one["count"] for one in row["buckets"]})
    times = [us for key, all_ in day.truth.latency.items() if key[3] == "hub" for us, _ in all_]
    counted = sorted(sums.elements())
    assert len(counted) == len(times)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert time_of(rank(counted, share)) == about(rank(times, share))


def test_delivery_tells_the_share_that_came_and_that_came_in_time(tables: Path, day: Day):
    found = by(tables, "delivery", "hour", "app", "family", "window")
    assert found.keys() == day.truth.delivery.keys()
    for key, truth in day.truth.delivery.items():
        row = found[key]
        for name in ("messages", "delivered", "in_time"):
            assert row[name] == truth[name], (key, name)
        assert row["scaled"] == pytest.approx(truth["scaled"]), key
        assert row["ratio"] == pytest.approx(truth["delivered"] / truth["messages"]), key
        assert row["ratio_in_time"] == pytest.approx(truth["in_time"] / truth["messages"]), key


def test_links_tell_what_was_handed_over_and_when_they_were_down(tables: Path, day: Day):
    found = by(tables, "links", "hour", "node", "peer", "role", "window")
    assert found.keys() == day.truth.links.keys()
    for key, truth in day.truth.links.items():
        row = found[key]
        counts = ("handed", "arrived", "beats", "ups", "downs", "down_us", "probes", "failed")
        for name in counts:
            assert row[name] == truth[name], (key, name)
        success = truth["arrived"] / truth["handed"] if truth["handed"] else None
        assert row["success"] == success, key
        for name, share in (("delay_p50", 0.5), ("delay_p99", 0.99)):
            delays = day.truth.delays.get(key)
            assert row[name] == (about(rank(delays, share)) if delays else None), (key, name)
        beats = day.truth.beats.get(key, [])
        for place, name in enumerate(("round_trip", "ahead")):
            said = int(median(beat[place] for beat in beats)) if beats else None
            assert row[name] == said, (key, name)
        probes = day.truth.probes.get(key, [])
        for place, name in enumerate(("probe_p50", "probe_p99")):
            assert row[name] == max((probe[place] for probe in probes), default=None), (key, name)


def work(told: dict[str, int]) -> int:
    """What comes to a broker, and what leaves it."""
    return told["n"] + told["copies"]


def test_rooms_tell_what_was_said_in_them_and_which_of_them_are_hot(tables: Path, day: Day):
    found = by(tables, "rooms", "hour", "app", "room", "window")
    said, heats, loads = day.truth.rooms, day.truth.heats, day.truth.loads
    assert found.keys() == said.keys() | heats.keys()
    assert {row["hot"] for row in found.values()} == {True, False}
    for key, row in found.items():
        messages, told = said.get(key, []), heats.get(key, [])
        scaled = sum(one[0] for one in messages)
        assert row["messages"] == len(messages), key
        assert row["scaled"] == pytest.approx(scaled), key
        assert row["deliveries"] == sum(one[1] for one in messages), key
        counted = sum(heat["n"] for *_broker, heat in told) if told else None
        assert row["counted"] == counted, key
        assert row["rate"] == pytest.approx(max(scaled, counted or 0) / 60), key
        members = [*(one[1] for one in messages), *(heat["members"] for *_broker, heat in told)]
        gateways = [*(one[2] for one in messages), *(heat["gateways"] for *_broker, heat in told)]
        assert (row["members"], row["gateways"]) == (max(members), max(gateways)), key
        shares = [
            sum(work(heat) for *broker, heat in told if broker == [node, partition])
            / sum(map(work, loads[key[0], node, partition, key[-1]]))
            for node, partition in {(node, partition) for node, partition, _heat in told}
        ]
        assert row["share"] == (pytest.approx(max(shares)) if shares else None), key
        partitions = [partition for _node, partition, _heat in told]
        assert row["partition"] == max(partitions, default=None), key
        assert row["hot"] == (max(shares, default=0) >= 0.1 and (counted or 0) >= 60), key


def test_the_load_of_each_broker_is_beside_that_of_all(tables: Path, day: Day):
    found = by(tables, "room_load", "hour", "node", "partition", "window")
    loads = day.truth.loads
    assert found.keys() == loads.keys()
    for key, told in loads.items():
        row = found[key]
        assert (row["messages"], row["copies"]) == (
            sum(one["n"] for one in told),
            sum(one["copies"] for one in told),
        ), key
        for name in ("rooms", "members"):
            assert row[name] == max(one[name] for one in told), (key, name)
        minute = [other for other in loads if (other[0], other[-1]) == (key[0], key[-1])]
        share = sum(map(work, told)) / sum(work(one) for other in minute for one in loads[other])
        assert row["share"] == pytest.approx(share), key
        assert row["imbalance"] == pytest.approx(share * len(minute)), key
    assert max(row["imbalance"] for row in found.values()) > 1.5


def test_queues_tell_what_came_and_went_and_what_is_in_them(tables: Path, day: Day):
    found = by(tables, "queues", "app", "queue", "window")
    for key in day.truth.waiting():
        assert day.truth.queues[key] == {}
    assert found.keys() == day.truth.queues.keys()
    kinds = ("stored", "lent", "acked", "returned", "died", "cancelled", "purged", "replayed")
    for key, lag in day.truth.running(day.truth.queues, "change"):
        row, truth = found[key], day.truth.queues[key]
        assert {name: row[name] for name in kinds} == {name: truth[name] for name in kinds}, key
        assert (row["lag"], row["hour"]) == (lag, hour(key[-1])), key
        ages = day.truth.ages.get(key)
        assert row["age_max"] == (max(ages) if ages else None), key
        for name, share in (("age_p50", 0.5), ("age_p99", 0.99)):
            assert row[name] == (about(rank(ages, share)) if ages else None), (key, name)
    for key, frontier in day.truth.frontiers():
        assert found[key]["frontier"] == frontier, key


def test_sessions_tell_who_is_online_also_when_a_node_dies(tables: Path, day: Day):
    truths = day.truth.sessions
    for truth in truths.values():
        truth["change"] = truth["opened"] - truth["closed"] - truth["cut"]
    found = by(tables, "sessions", "app", "edge", "window")
    assert found.keys() == truths.keys()
    for key, online in day.truth.running(truths, "change"):
        row, truth = found[key], truths[key]
        for name in ("opened", "closed", "reconnects", "cut"):
            assert row[name] == truth[name], (key, name)
        assert (row["online"], row["hour"]) == (online, hour(key[-1])), key
        gone = truth["closed"] + truth["cut"]
        churn = gone / (online + gone) if online + gone else None
        assert row["churn"] == (None if churn is None else pytest.approx(churn)), key
        stays = day.truth.stays.get(key)
        for name, share in (("duration_p50", 0.5), ("duration_p99", 0.99)):
            assert row[name] == (about(rank(stays, share)) if stays else None), (key, name)


def test_jobs_tell_what_became_of_each_note(tables: Path, day: Day):  # P9
    found = by(tables, "jobs", "hour", "app", "job", "note")
    assert found.keys() == day.truth.jobs.keys()
    for key, (counts, born) in day.truth.jobs.items():
        row, times = found[key], day.truth.arrivals[key[-1]]
        assert (row["born"], row["window"]) == (born, born - born % MINUTE), key
        assert row["expires"] == born + LIFE, key
        for name in COUNTS:
            assert row[name] == counts[name], (key, name)
        for name, (part, of) in RATIOS.items():
            assert row[name] == (counts[part] / counts[of] if counts[of] else None), (key, name)
        assert row["max"] == max(times, default=None), key
        assert sum(bucket["count"] for bucket in row["buckets"]) == len(times), key
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert row[name] == (about(rank(times, share)) if times else None), (key, name)
    assert {row["target"] for row in found.values()} >= {"many:", "topic:news", "user:u"}


def test_the_audit_names_exactly_what_went_wrong_and_where_it_was_last_seen(tables: Path, day: Day):
    rows = read(tables, "audit").to_pylist()
    assert sorted(map(_text, rows)) == sorted(map(_text, day.truth.audit))


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def test_rows_that_make_no_sense_are_put_aside_with_the_reason(tables: Path, day: Day):
    rows = read(tables, "quarantine").to_pylist()
    assert Counter(row["problem"] for row in rows) == Counter(why for _row, why in day.bad)
    told = [json.loads(row["row"]) for row in rows]
    # As JSON has it: without what is null, and a number that is none as a word.
    bad = [{name: _plain(value) for name, value in row.items()} for row, _why in day.bad]
    lean = [{name: value for name, value in row.items() if value is not None} for row in bad]
    assert sorted(map(_text, told)) == sorted(map(_text, lean))
    for row, one in zip(rows, told, strict=True):
        sensible = 0 < one.get("at", 0) - DAY + HOUR < 24 * HOUR
        assert row["hour"] == (hour(one["at"]) if sensible else "none")
        assert row["file"].endswith(".parquet")


def _plain(value: Any) -> Any:
    return "NaN" if value != value else value  # noqa: PLR0124


def test_a_path_has_every_hop_once_and_by_one_clock(tables: Path, day: Day):
    for path in read(tables, "paths").to_pylist():
        hops = path["hops"]
        serials = [(hop["node"], hop["boot"], hop["serial"]) for hop in hops]
        assert len(set(serials)) == len(serials)
        times = [hop["at"] + hop["shift"] for hop in hops]
        assert times == sorted(times)
    hops = [hop for path in read(tables, "paths", ["hops"]).to_pylist() for hop in path["hops"]]
    clocks = {(hop["node"], -hop["shift"]) for hop in hops}
    ahead = {("n1", 0), ("n2", 3_000_000), ("n2", 3_500_000), ("n2", 5_000_000)}
    assert clocks == ahead | {("n3", -2_000_000), ("n3", -700_000)}
