"""Options that make no sense are refused before anything starts, by name."""

from __future__ import annotations

import math

import pytest

from chappe.errors import ConfigError
from chappe.push.options import CometOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sessions_max", 0),
        ("logins_max", -1),
        ("outbox_bytes_max", 65_535),
        ("redelivery_s", 0.0),
        ("idle_s", 120.0),
        ("login_s", math.nan),
        ("cache_s", math.inf),
        ("topics_max", 0),
    ],
)
def test_a_bound_that_makes_no_sense_is_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"push\.comet\.{name}: "):
        CometOptions(**{name: value})


def test_notes_come_again_after_half_an_hour_unless_told_otherwise() -> None:
    # P7
    assert CometOptions().redelivery_s == 1800
