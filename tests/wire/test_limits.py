"""Limits: every bound is a bound."""

import pytest

from chappe.errors import ConfigError
from chappe.wire.limits import Limits


@pytest.mark.parametrize("name", Limits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"limits.{name}"):
        Limits(**{name: value})


def test_the_defaults_hold_a_mebibyte():
    limits = Limits()
    assert limits.message_bytes_max == limits.inflated_bytes_max == 1024 * 1024
    assert limits.malformed_max == 3
