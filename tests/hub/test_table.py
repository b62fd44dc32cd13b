"""The connection table: many to many, whatever the number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.hub.table import ConnectionTable

NAMES = ("user:a", "user:b")


class Placeholder:
    """Stands for a session: the table asks for its identity only."""


def sessions(count: int) -> list[Any]:
    return [Placeholder() for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 10, 100])
def test_every_session_is_found_once_in_the_order_it_came(count: int) -> None:
    table, bound = ConnectionTable(), sessions(count)
    for session in bound:
        assert table.bind("user:a", session)
        assert not table.bind("user:a", session)
    assert list(table.get("user:a") or ()) == bound
    assert len(table) == 1


@pytest.mark.parametrize("count", [1, 8, 9, 20])
def test_the_last_to_leave_reclaims_the_entry(count: int) -> None:  # H16
    table, bound = ConnectionTable(), sessions(count)
    for session in bound:
        table.bind("user:a", session)
    for left, session in enumerate(bound, 1):
        assert "user:a" in table
        assert table.unbind("user:a", session)
        assert not table.unbind("user:a", session)
        assert list(table.get("user:a") or ()) == bound[left:]
    assert "user:a" not in table
    assert table.get("user:a") is None
    assert len(table) == 0


def test_few_sessions_are_kept_in_a_tuple_and_many_in_a_dict() -> None:
    table = ConnectionTable()
    for session in sessions(8):
        table.bind("user:a", session)
    assert isinstance(table.get("user:a"), tuple)
    table.bind("user:a", Placeholder())  # type: ignore[arg-type]
    assert isinstance(table.get("user:a"), dict)


def test_a_session_at_many_addresses_leaves_them_together_and_others_stay() -> None:
    table, (one, other) = ConnectionTable(), sessions(2)
    for address in ("topic:a", "topic:b", "topic:c"):
        table.bind(address, one)
    table.bind("topic:b", other)
    table.unbind_all({"topic:a", "topic:b", "topic:c", "topic:never"}, one)
    assert list(table) == ["topic:b"]
    assert list(table.get("topic:b") or ()) == [other]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES), st.integers(0, 11)), max_size=80))
def test_the_table_is_what_a_plain_dict_of_lists_is(steps: list[tuple[bool, str, int]]) -> None:
    table, bound = ConnectionTable(), sessions(12)
    model: dict[str, list[Any]] = {}
    for binds, address, number in steps:
        session, there = bound[number], model.setdefault(address, [])
        expected = (session not in there) if binds else (session in there)
        assert (table.bind if binds else table.unbind)(address, session) is expected
        if expected:
            (there.append if binds else there.remove)(session)
    for address in NAMES:
        assert list(table.get(address) or ()) == model.get(address, [])
        assert (address in table) is bool(model.get(address))
    assert set(table) == {address for address, there in model.items() if there}
