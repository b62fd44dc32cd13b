"""Addresses: what is one, and what a refusal says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.address import (
    KINDS,
    NAME_BYTES_MAX,
    WILDCARDS,
    Address,
    check_app,
    name_fault,
    parse_address,
)
from chappe.errors import BadRequest

names = st.text(
    st.characters(exclude_categories=("C", "Z"), exclude_characters="".join(WILDCARDS)),
    min_size=1,
    max_size=60,
).filter(lambda name: name.isprintable())


@given(st.sampled_from(KINDS), names)
def test_an_address_survives_a_round_trip(kind, name):
    text = f"{kind}:{name}"
    address = parse_address(text)
    assert address == Address(kind, name)
    assert str(address) == text
    assert parse_address(str(address)) == address


@given(st.text())
def test_any_text_is_an_address_or_a_bad_request(text):
    reason = ""
    try:
        address = parse_address(text, "there")
    except BadRequest as error:
        reason = error.reason
    if reason:
        assert reason.startswith("there: ")
        assert reason.isascii()
        assert reason.isprintable()
        assert len(reason) < 600
    else:
        assert str(address) == text
        assert address.kind in KINDS
        assert 0 < len(address.name.encode()) <= NAME_BYTES_MAX
        assert WILDCARDS.isdisjoint(address.name)


@given(st.sampled_from(KINDS), st.text(max_size=300))
def test_any_name_is_taken_whole_or_refused(kind, name):
    fault = name_fault(name)
    if fault is None:
        assert parse_address(f"{kind}:{name}") == (kind, name)
    else:
        with pytest.raises(BadRequest, match=r"^protocol: to: "):
            parse_address(f"{kind}:{name}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "missing; an address starts with one of user:"),
        ("alice", "is not an address"),
        (":alice", "is not an address"),
        ("User:alice", "is not an address"),
        ("planet:mars", "starts with one of user:"),
        (" user:alice", "is not an address"),
        ("user:", "is empty"),
        ("user:a b", "a space"),
        ("user:a\u00a0b", "a space"),
        ("user:a\nb", "control character"),
        ("user:a\x00", "control character"),
        ("user:a\x7f", "control character"),
        ("user:a\u0085", "control character"),
        ("user:a\u200bb", "unprintable"),
        ("user:a\u202eb", "unprintable"),
        ("user:a\u2028b", "unprintable"),
        ("user:\ufeffa", "unprintable"),
        ("user:\ud800", "unprintable"),
        ("user:\udc80x", "unprintable"),
        ("user:a*", "wildcard"),
        ("topic:>", "wildcard"),
        ("topic:#", "wildcard"),
        ("topic:+/a", "wildcard"),
        ("user:" + "x" * 256, "longer than 255 bytes"),
        ("user:" + "x" * 10_000, "longer than 255 bytes"),
        ("user:" + "\u00e9" * 128, "longer than 255 bytes"),
        ("x" * 10_000, "is not an address"),
    ],
)
def test_a_bad_address_is_refused_with_field_and_reason(text, why):
    with pytest.raises(BadRequest) as caught:
        parse_address(text, "as")
    reason = caught.value.reason
    assert reason.startswith("as: ")
    assert why in reason
    # The stranger's text is quoted short and escaped, so that a log line stays a line.
    assert len(reason) < 600
    assert reason.isascii()
    assert reason.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "user:" + "x" * 255,
        "user:" + "\u00e9" * 127,
        "user:a:b",
        'user:"quoted"',
        "user:back\\slash",
        "user:\u65e5\u672c",
        "user:\U0001f600",
        "key:order-7",
        "avatar:support-3",
        "queue:jobs",
        "service:billing",
        "room:42",
        "topic:a/b.c",
    ],
)
def test_a_good_address_is_taken_as_it_is(text):
    assert str(parse_address(text)) == text


@given(st.text())
def test_an_app_name_is_plain_or_refused(name):
    plain = (
        0 < len(name) <= 64
        and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
        and name[0] not in "_-"
    )
    if plain:
        assert check_app(name) == name
    else:
        with pytest.raises(BadRequest, match=r"^protocol: app: "):
            check_app(name)


@pytest.mark.parametrize("name", ["", "Shop", "a b", "a\n", "-a", "_a", "a" * 65, "shop:1", "é"])
def test_a_bad_app_name_is_refused(name):
    with pytest.raises(BadRequest):
        check_app(name)


@pytest.mark.parametrize("name", ["a", "0", "shop-1_b", "a" * 64])
def test_a_good_app_name_is_taken(name):
    assert check_app(name) == name
