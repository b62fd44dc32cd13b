"""What /metrics says of a cluster: counts that follow what happens between nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chappe.cluster.counters import MeshCounters
from chappe.cluster.metrics import ClusterMetrics
from chappe.wire.ops import Subscribe
from tests.cluster.hamlet import Hamlet
from tests.hub.rig import send


def samples(metrics: ClusterMetrics) -> dict[str, float]:
    found = {}
    for family in metrics():
        assert family.documentation
        for sample in family.samples:
            label = "".join(sample.labels.values())
            found[f"{sample.name}{label and ':' + label}"] = sample.value
    return found


def test_links_routes_watches_and_what_is_awaited_are_counted() -> None:
    hamlet = Hamlet(*"abc")
    a = hamlet["a"]
    metrics = ClusterMetrics(a.hub, a.cluster, None)
    assert samples(metrics) == {
        "chappe_links": 2,
        "chappe_routes": 0,
        "chappe_topics_watched": 0,
        "chappe_link_waiting_bytes": 0,
        "chappe_verdicts_pending": 0,
        "chappe_finds_total": 0,
    }
    alice, bob = a.user("alice"), hamlet["b"].user("bob")
    hamlet["b"].user("shopper", app="shop")
    hamlet["c"].user("bob")
    hamlet.settle()
    hamlet.ask(bob, Subscribe(id=1, to=hamlet.placed("topic", "a")))
    hamlet.ask(alice, send("user:ghost", 1, id=1))
    hamlet.pause("a", "b")
    alice.say(send("user:bob", "x" * 500, id=2))
    hamlet.settle()
    found = samples(metrics)
    assert found["chappe_routes"] == 2
    assert found["chappe_topics_watched"] == 1
    assert found["chappe_verdicts_pending"] == 1
    assert 500 < found["chappe_link_waiting_bytes"] < 1000
    assert found["chappe_finds_total"] == 1
    hamlet.cut("a", "b")
    hamlet.settle()
    found = samples(metrics)
    assert (found["chappe_links"], found["chappe_link_waiting_bytes"]) == (1, 0)
    assert found["chappe_topics_watched"] == 0


def link(**numbers: int) -> Any:
    zero = dict.fromkeys(("bytes_in", "bytes_out", "frames_in", "frames_out", "duplicates"), 0)
    return SimpleNamespace(**{**zero, **numbers})


def test_links_that_are_gone_count_together_with_those_that_are_up() -> None:
    hamlet = Hamlet("a")
    counters = MeshCounters(lambda: 0.0)
    mesh: Any = SimpleNamespace(counters=counters, links={"b": link(bytes_in=5, bytes_out=7)})
    metrics = ClusterMetrics(hamlet["a"].hub, hamlet["a"].cluster, mesh)
    counters.came_up()
    counters.came_up()
    counters.went_down(link(bytes_in=100, bytes_out=200), "silence: for 15 s")
    counters.failed("secret")
    counters.failed("version")
    found = samples(metrics)
    assert found["chappe_link_opens_total"] == 2
    assert found["chappe_link_resets_total:silence"] == 1
    assert found["chappe_link_refusals_total"] == 2
    assert found["chappe_link_received_bytes_total"] == 105
    assert found["chappe_link_sent_bytes_total"] == 207


def test_a_reason_is_one_of_few_words() -> None:
    counters = MeshCounters(lambda: 0.0)
    for n in range(100):
        counters.went_down(link(), f"reason-{n}: detail")
    assert len(counters.resets) <= 33
    assert counters.resets["other"] + 32 == 100
    assert counters.resets.total() == 100


def test_failed_handshakes_are_counted_each_and_logged_once_a_second() -> None:
    now = 10.0
    counters = MeshCounters(lambda: now)
    assert [counters.failed("secret") for _ in range(3)] == [True, False, False]
    now += 1.0
    assert counters.failed("taken")
    counters.came_up()
    assert counters.handshakes == 5
    assert counters.auth_failures == 3
