"""Options of rooms: what makes no sense is refused before anything starts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chappe.errors import ConfigError
from chappe.rooms.options import ProbeOptions, RoomsOptions


def test_the_defaults_are_allowed():
    options = RoomsOptions()
    assert options.silence_s < 2 * options.beat_s
    assert options.silence_s + options.pulse_s <= 2 * options.beat_s  # R5: within two beats
    assert options.expire_s == 3 * options.refresh_s


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"port": 65_536},
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"system": ""},
        {"system": "Has Space"},
        {"router_system": "a/b"},
        {"partition": -1},
        {"partition": 1024},
        {"router_partition": 1024},
        {"beat_s": 0},
        {"beat_s": math.nan},
        {"refresh_s": math.inf},
        {"confirm_s": -1.0},
        {"entries_max": 0},
        {"flows_max": 0},
        {"datagram_bytes": 100},
        {"datagram_bytes": 65_536},
        {"pieces_bytes_max": 1000},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]):
    name = next(iter(wrong))
    expected = "advertise" if name == "host" else name
    with pytest.raises(ConfigError, match=f"rooms.{expected}"):
        RoomsOptions(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"every_s": -1.0},
        {"every_s": math.nan},
        {"timeout_s": 0.0},
        {"sla": 1.5},
        {"sla": 0.0},
        {"alarm_failures": 0},
        {"links_max": 0},
        {"webhook": "ftp://x"},
    ],
)
def test_what_makes_no_sense_of_probes_is_refused_by_name(wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match=rf"rooms.probe.{next(iter(wrong))}"):
        ProbeOptions(**wrong)


def test_every_address_may_be_bound_to_if_one_is_told_to_others():
    assert RoomsOptions(host="0.0.0.0", advertise="10.0.0.7").advertise == "10.0.0.7"
