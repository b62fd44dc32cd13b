"""What is packed comes back as it was, and what is none is found out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import StorageError
from chappe.ids import PrefixedIds
from chappe.push.state.redis.client import ClientRecord, unpack_client
from chappe.push.state.redis.packing import Buckets, maybe_pack, pack, unpack
from chappe.push.state.redis.spreading import END, FILL, order, span

names = st.text(st.characters(exclude_categories=["Cs"])) | st.uuids().map(str)


@given(
    prefix=st.sampled_from("cpmj"),
    server=st.integers(0, PrefixedIds.SERVER_MAX),
    second=st.integers(1, 0xFFFFFFFE),
)
def test_an_id_comes_back(prefix: str, server: int, second: int):
    given_id = PrefixedIds(server, lambda: second * 1000).next(prefix)
    packed = pack(prefix, given_id)
    assert len(packed) == 8
    assert packed[0] < 0x80  # the top bit is free
    assert unpack(prefix, packed) == given_id
    assert unpack(prefix, bytes([packed[0] | 0x80]) + packed[1:]) == given_id


@given(text=st.text() | st.from_regex(r"c[0-9a-zA-Z]{15}", fullmatch=True))
def test_only_ids_are_packed(text: str):
    packed = maybe_pack("c", text)
    assert packed is None or unpack("c", packed) == text


def test_an_id_of_another_kind_is_refused():
    with pytest.raises(StorageError, match="no id that begins with c"):
        pack("c", "p0c0000165f2c3d4")


@given(
    device=names,
    user=st.none() | names,
    tokens=st.lists(st.integers(0, 0xFFFFFF), max_size=5),
)
def test_a_client_comes_back(device: str, user: str | None, tokens: list[int]):
    record = ClientRecord(b"\0app\xff!", device, user, tuple(tokens))
    assert unpack_client(record.pack()) == record


def test_a_client_with_a_usual_device_and_user_fits_into_a_small_hash():
    record = ClientRecord(b"appapp", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "u" * 30, (1, 2))
    assert len(record.pack()) <= 64


def test_names_of_apps_are_told_apart_wherever_they_are_cut():
    spots = {
        Buckets(1 << 20).of_name(app, name) for app, name in [("a", "bc"), ("ab", "c"), ("", "abc")]
    }
    assert len(spots) == 3


@given(members=st.sets(st.integers(0, (1 << 63) - 1), max_size=50), sets=st.integers(1, 300))
def test_sets_are_ranges_that_follow_each_other(members: set[int], sets: int):
    place, spans = 0, []
    while place < END:
        spans.append(span(place, sets))
        place = spans[-1].end
    assert sorted(one.at for one in spans) == list(range(sets))
    assert {span(order(member), sets) for member in members} <= set(spans)
    # One more set takes from others, and nobody moves between these.
    for member in members:
        now, then = span(order(member), sets).at, span(order(member), sets + 1).at
        assert then in (now, sets)


def test_no_set_grows_beyond_what_redis_keeps_small():
    # The largest share of members that a set has, for any number of sets.
    for sets in range(1, 600):
        place, widest = 0, 0
        while place < END:
            end = span(place, sets).end
            widest, place = max(widest, end - place), end
        assert widest / END * sets * FILL <= 400
