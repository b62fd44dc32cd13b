"""How queues are made, and what all of them may use: defaults, and refusals by name."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import BadRequest, ConfigError
from chappe.queues.options import QueueLimits, QueueOptions, ReplicationOptions


def test_a_queue_is_durable_with_one_lane_unless_its_maker_says_otherwise() -> None:
    made = QueueOptions.of({"volatile": None, "lanes": None})
    assert made == QueueOptions()
    assert (made.volatile, made.lanes, made.attempts_max, made.await_s) == (False, 1, 16, 86_400.0)
    assert (made.retry_s, made.retry_max_s, made.push_interval_s) == (1.0, 60.0, 0.0)


def test_a_volatile_queue_has_smaller_bounds_and_tries_again_at_once() -> None:
    made = QueueOptions.of({"volatile": True})
    assert (made.depth_max, made.bytes_max, made.retry_s) == (100_000, 64 * 1024 * 1024, 0.0)
    asked = QueueOptions.of({"volatile": True, "depth_max": 5, "retry_s": 2.0})
    assert (asked.depth_max, asked.retry_s) == (5, 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lanes", 0),
        ("lanes", 1_025),
        ("depth_max", 0),
        ("bytes_max", -1),
        ("ack_timeout_s", 0.0),
        ("ack_timeout_s", float("nan")),
        ("attempts_max", 0),
        ("retry_s", -1.0),
        ("retry_max_s", float("inf")),
        ("await_s", 0.0),
        ("push_interval_s", -0.1),
        ("expire_s", float("nan")),
        ("consumers", []),
        ("consumers", ["c"] * 33),
        ("consumers", ["!dead"]),
        ("consumers", ["two words"]),
    ],
    ids=str,
)
def test_what_no_queue_can_be_made_of_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        QueueOptions.of({name: value})
    assert caught.value.reason.partition(":")[0] == name


@pytest.mark.parametrize("name", QueueLimits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1])
def test_limits_that_make_no_sense_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        QueueLimits(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replicas", 16),
        ("replicas", -1),
        ("interval_s", 0),
        ("timeout_s", 4_000),
        ("insync_min", 0),
    ],
)
def test_replication_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        ReplicationOptions(**fields)
