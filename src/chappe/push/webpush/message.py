"""A note as a push service takes it: its text, how long and how urgently it is kept (RFC 8030)."""

from __future__ import annotations

import hmac
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import msgspec

from chappe.push.note import Note
from chappe.push.webpush.encryption import TEXT_BYTES_MAX
from chappe.push.webpush.subscription import Subscription

# By priority; `very-low` is for what waits until a device is charged.
_URGENCY = ("low", "normal", "high")
# 32 characters at most, of base64url: 24 bytes.
_TOPIC_BYTES = 24

_encode = msgspec.json.Encoder().encode


def text_of(note: Note) -> bytes:
    """What the browser gets: JSON, with the content as `data` if it is JSON itself, else in base64
    as `data64`; with neither, if that is too large, for the browser to fetch."""
    named: dict[str, Any] = {"id": note.id, "job": note.job, "type": note.type}
    # What is larger by itself need not be looked at.
    if len(note.content) <= TEXT_BYTES_MAX:
        text = _encode({**named, **_content(note.content)})
        if len(text) <= TEXT_BYTES_MAX:
            return text
    return _encode(named)


def headers_of(note: Note, subscription: Subscription, now_ms: int) -> dict[str, str]:
    """How the push service is to keep it."""
    headers = {
        "content-type": "application/octet-stream",
        "content-encoding": "aes128gcm",
        "ttl": str(max(0, note.expires_ms - now_ms) // 1000),
        "urgency": _URGENCY[note.priority],
    }
    if note.collapse is not None:
        headers["topic"] = _topic(note.collapse, subscription.auth)
    return headers


def _content(content: bytes) -> dict[str, Any]:
    try:
        msgspec.json.decode(content)
    except (ValueError, RecursionError):
        # ValueError: no JSON, or text that is none.
        return {"data64": b64encode(content).decode()}
    return {"data": msgspec.Raw(content)}


def _topic(collapse: str, auth: bytes) -> str:
    """The same for a key each time, and nothing that the push service could guess it from."""
    digest = hmac.digest(auth, collapse.encode(), "sha256")[:_TOPIC_BYTES]
    return urlsafe_b64encode(digest).decode()
