"""Signed requests of app servers (P10): HMAC-SHA256 over what is asked, when, and once.

    X-Chappe-App        the app's key
    X-Chappe-Time       milliseconds since 1970
    X-Chappe-Nonce      8 to 64 letters, digits, - and _, different each time
    X-Chappe-Signature  hex HMAC-SHA256(secret, method \\n path?query \\n time \\n nonce \\n hex
                        SHA-256(body))

The secret is the text that was shown when the app was made. The path is as it goes over the wire,
escapes and all. Nothing here looks at a clock: who signs and who checks say what time it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import NamedTuple

from chappe.push.unproven import Unproven

APP = "x-chappe-app"
TIME = "x-chappe-time"
NONCE = "x-chappe-nonce"
SIGNATURE = "x-chappe-signature"

# How far clocks of app servers may be off.
WINDOW_MS = 5 * 60 * 1000
# A nonce is remembered for as long as any server, the one whose clock is slowest, would take it.
REMEMBERED_MS = 3 * WINDOW_MS

# What each header looks like, and that in words.
_FORMS = {
    APP: (re.compile(r"[A-Za-z0-9_-]{1,64}"), "1 to 64 letters, digits, - and _"),
    TIME: (re.compile(r"[0-9]{1,15}"), "milliseconds since 1970, in digits"),
    NONCE: (re.compile(r"[A-Za-z0-9_-]{8,64}"), "8 to 64 letters, digits, - and _"),
    SIGNATURE: (re.compile(r"[0-9A-Fa-f]{64}"), "64 hex digits"),
}


class BadSignature(Unproven):
    """A request is not signed as it has to be; the reason names the header."""


class Signature(NamedTuple):
    """What the headers of a signed request say."""

    app: str
    time_ms: int
    nonce: str
    mac: str


def sign(
    key: str, secret: str, method: str, target: str, body: bytes, *, time_ms: int, nonce: str
) -> dict[str, str]:
    """The headers to send along. `target` is the path with its query."""
    return {
        "X-Chappe-App": key,
        "X-Chappe-Time": str(time_ms),
        "X-Chappe-Nonce": nonce,
        "X-Chappe-Signature": _mac(secret, method, target, str(time_ms), nonce, body),
    }


def read_signature(headers: Mapping[str, str]) -> Signature:
    """What lower-case headers say; raises BadSignature naming one that is missing or misshapen."""
    app, time_ms, nonce, mac = (_read(headers, name) for name in _FORMS)
    return Signature(app, int(time_ms), nonce, mac.lower())


def check_time(signature: Signature, now_ms: int) -> None:
    """Raise BadSignature, which tells the server's time, if the signer's clock is far off."""
    off_ms = signature.time_ms - now_ms
    if abs(off_ms) > WINDOW_MS:
        raise BadSignature(
            f"{TIME}: {abs(off_ms) // 1000} s {'ahead of' if off_ms > 0 else 'behind'} the "
            f"server, whose time is {now_ms}; {WINDOW_MS // 1000} s are allowed"
        )


def check_mac(signature: Signature, secret: str, method: str, target: str, body: bytes) -> None:
    """Raise BadSignature unless that very request was signed with the secret."""
    time_ms = str(signature.time_ms)
    wanted = _mac(secret, method, target, time_ms, signature.nonce, body)
    if not compare_digest(wanted, signature.mac):
        raise BadSignature(f"{SIGNATURE}: not made of this request with the app's secret")


def _read(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    shape, words = _FORMS[name]
    if value is None:
        raise BadSignature(f"{name}: missing; requests of app servers are signed")
    if not shape.fullmatch(value):
        raise BadSignature(f"{name}: must be {words}")
    return value


def _mac(secret: str, method: str, target: str, time_ms: str, nonce: str, body: bytes) -> str:
    said = "\n".join((method.upper(), target, time_ms, nonce, sha256(body).hexdigest()))
    return hmac_digest(secret.encode(), said.encode(), "sha256").hex()
