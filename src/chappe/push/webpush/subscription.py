"""A subscription: where a browser's push service takes messages for it, and under which keys."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from chappe.errors import BadRequest
from chappe.push.webpush.address import is_public
from chappe.push.webpush.encryption import AUTH_BYTES, read_point
from chappe.push.webpush.options import WebPushOptions

# Push services use up to some 500.
ENDPOINT_CHARS_MAX = 2048
# Of a URL as it goes over the wire: a name in other letters is written in these.
_ENDPOINT = re.compile(r"https?://[!-~]+")
_TEXT = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Names that lead to this machine, or into its network, whatever a resolver says (RFC 6761, 6762).
_LOCAL = ("localhost", "local", "internal", "localdomain", "home.arpa")


class Subscription(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """As it is stored: sealed, for who has it can read what is sent, and has it sent."""

    endpoint: str
    point: bytes
    auth: bytes

    @property
    def host(self) -> str:
        """Where the endpoint is: all of it that may be told."""
        return urlsplit(self.endpoint).hostname or ""

    @property
    def origin(self) -> str:
        """The push service (RFC 6454): what is signed for it is good for no other."""
        split = urlsplit(self.endpoint)
        return f"{split.scheme}://{split.netloc.lower()}"


def read_subscription(
    endpoint: str, p256dh: str, auth: str, options: WebPushOptions
) -> Subscription:
    """A subscription as browsers give it; raises BadRequest that names the field."""
    check_endpoint(endpoint, options)
    point, secret = _decoded(p256dh, "keys.p256dh"), _decoded(auth, "keys.auth")
    try:
        read_point(point)
    except ValueError:
        raise BadRequest("keys.p256dh: not an uncompressed point on P-256") from None
    if len(secret) != AUTH_BYTES:
        raise BadRequest(f"keys.auth: {len(secret)} bytes, not {AUTH_BYTES}")
    return Subscription(endpoint, point, secret)


def check_endpoint(endpoint: str, options: WebPushOptions) -> None:
    """Raise BadRequest for a URL that notes may not be sent to. What its name leads to is looked at
    when something is: it may lead elsewhere by then."""
    if len(endpoint) > ENDPOINT_CHARS_MAX or not _ENDPOINT.fullmatch(endpoint):
        raise BadRequest(f"endpoint: an https URL of at most {ENDPOINT_CHARS_MAX} characters")
    try:
        split = urlsplit(endpoint)
        host, _ = (split.hostname or "").rstrip("."), split.port
    except ValueError:
        raise BadRequest("endpoint: not a URL") from None
    if not host or "@" in split.netloc or split.fragment:
        raise BadRequest("endpoint: a URL with a host, without a user and a fragment")
    if options.hosts and not _is_below(host, options.hosts):
        raise BadRequest("endpoint: its host is none of the push services that are allowed")
    if options.allow_private:
        return
    if split.scheme != "https":
        raise BadRequest("endpoint: https is needed")
    if not (is_public(host) if _is_address(host) else _is_public_name(host)):
        raise BadRequest("endpoint: its host is not public")


def _is_below(host: str, names: tuple[str, ...]) -> bool:
    return any(host == name or host.endswith("." + name) for name in names)


def _is_public_name(host: str) -> bool:
    # One without a dot is looked for in the machine's own domain.
    return "." in host and not _is_below(host, _LOCAL)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        # What ends with a number is no name: resolvers read 127.1 and 0x7f000001 as addresses.
        return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
    return True


def _decoded(text: str, field: str) -> bytes:
    if not _TEXT.fullmatch(text):
        raise BadRequest(f"{field}: not base64url")
    text = text.rstrip("=")
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise BadRequest(f"{field}: not base64url") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Subscription).decode


def pack(subscription: Subscription) -> bytes:
    """Its bytes, before they are sealed."""
    return _encode(subscription)


def unpack(packed: bytes) -> Subscription:
    """From bytes that were sealed by us."""
    return _decode(packed)
