"""Scopes: exact addresses and prefixes, and nothing beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.address import WILDCARDS
from chappe.hub.grant import EVERYTHING, NOTHING, Scope, scope_of

ADDRESSES = st.text(st.characters(exclude_characters="".join(WILDCARDS)), max_size=12)


@pytest.mark.parametrize(
    ("patterns", "inside", "outside"),
    [
        (["user:bob"], ["user:bob"], ["user:bobby", "user:bo", "user:Bob", "topic:bob", ""]),
        (["topic:a.*"], ["topic:a.", "topic:a.b", "topic:a.b.c"], ["topic:a", "topic:ab"]),
        (["user:*"], ["user:x", "user:"], ["topic:x", "users:x", "auser:x"]),
        (["*"], ["user:x", "topic:x", ""], []),
        ([], [], ["user:x", "", "*"]),
        (["user:a*b"], ["user:a*b"], ["user:ab", "user:axb", "user:a"]),
        (["topic:a.*", "topic:b"], ["topic:a.x", "topic:b"], ["topic:b.x", "topic:c"]),
        (["topic:#"], ["topic:#"], ["topic:a", "topic:a/b"]),
        (["topic:>"], ["topic:>"], ["topic:a"]),
        (["topic:+"], ["topic:+"], ["topic:a"]),
        (["topic:."], ["topic:."], ["topic:a"]),
        (["topic:**"], ["topic:*x"], ["topic:x"]),
    ],
)
def test_a_scope_holds_what_it_says_and_nothing_else(
    patterns: list[str], inside: list[str], outside: list[str]
) -> None:
    scope = Scope(patterns)
    assert [address for address in inside if address not in scope] == []
    assert [address for address in outside if address in scope] == []


@given(st.lists(ADDRESSES, max_size=5), st.lists(ADDRESSES, max_size=5), ADDRESSES)
def test_a_scope_is_its_exact_addresses_and_what_begins_with_its_prefixes(
    exact: list[str], prefixes: list[str], address: str
) -> None:
    scope = Scope([*exact, *(prefix + "*" for prefix in prefixes)])
    held = address in exact or any(address.startswith(prefix) for prefix in prefixes)
    assert (address in scope) is held


def test_everything_is_one_object_and_nothing_holds_nothing() -> None:
    assert scope_of(["*"]) is EVERYTHING
    assert scope_of(["user:a", "*"]) is EVERYTHING
    assert scope_of(["user:*"]) is not EVERYTHING
    assert scope_of([]) is not EVERYTHING
    assert "user:a" not in NOTHING
    assert 7 not in EVERYTHING
