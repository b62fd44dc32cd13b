"""Notes as push services take them."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from chappe.push.note import Note
from chappe.push.webpush.encryption import TEXT_BYTES_MAX
from chappe.push.webpush.message import headers_of, text_of
from tests.push.webpush.browsers import Browser

NOW_MS = 1_800_000_000_000
BROWSER = Browser("https://push.example/x")


def a_note(content=b"{}", **fields) -> Note:
    return Note("p1", "j1", "shop", 3, NOW_MS, NOW_MS + 60_000, content, **fields)


@pytest.mark.parametrize("content", [b'{"a":[1,"\\u00e9"]}', b"1", b'"x"', b" null "])
def test_json_is_given_as_it_is(content):
    assert json.loads(text_of(a_note(content))) == {
        "id": "p1",
        "job": "j1",
        "type": 3,
        "data": json.loads(content),
    }


@pytest.mark.parametrize(
    "content", [b"", b"\xff\0", b"{", b'"\xff"', b"NaN", b"1 2", b"[" * 2500, b'{"a":1}}']
)
def test_bytes_that_are_no_json_are_given_in_base64(content):
    said = json.loads(text_of(a_note(content)))
    assert "data" not in said
    assert b64decode(said["data64"]) == content


@pytest.mark.parametrize("wraps", [lambda size: b'"%s"' % (b"x" * (size - 2)), bytes])
def test_what_fits_is_sent_and_what_does_not_is_named_to_be_fetched(wraps):
    sizes = range(TEXT_BYTES_MAX + 100)
    fits = max(size for size in sizes if size >= 2 and len(text_of(a_note(wraps(size)))) > 100)
    assert TEXT_BYTES_MAX - 4 < len(text_of(a_note(wraps(fits)))) <= TEXT_BYTES_MAX
    larger = json.loads(text_of(a_note(wraps(fits + 1))))
    assert larger == {"id": "p1", "job": "j1", "type": 3}
    assert json.loads(text_of(a_note(bytes(60_000)))) == larger


@pytest.mark.parametrize(("priority", "urgency"), [(0, "low"), (1, "normal"), (2, "high")])
def test_it_is_as_urgent_as_its_priority_and_kept_while_it_lives(priority, urgency):
    headers = headers_of(a_note(priority=priority), BROWSER.subscription, NOW_MS + 1)
    assert headers["urgency"] == urgency
    assert headers["ttl"] == "59"
    assert headers["content-encoding"] == "aes128gcm"
    assert "topic" not in headers
    late = headers_of(a_note(), BROWSER.subscription, NOW_MS + 60_001)
    assert late["ttl"] == "0"


def test_notes_that_collapse_have_one_topic_that_tells_nothing_of_their_key():
    def topic(key, browser=BROWSER):
        return headers_of(a_note(collapse=key), browser.subscription, NOW_MS)["topic"]

    assert topic("score") == topic("score") != topic("weather")
    assert topic("score") != topic("score", Browser("https://push.example/y", auth=b"x" * 16))
    for key in ("", "score", "é" * 64):
        assert len(topic(key)) == 32
        assert set(topic(key)) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        )
