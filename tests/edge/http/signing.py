"""Clients that sign their requests as an app's server does."""

from __future__ import annotations

from itertools import count
from urllib.parse import urlsplit

import httpx
import requests

from chappe.push.signing import sign

_nonces = count(1)


class Signer(httpx.Auth):
    """Signs each request with a nonce of its own, by the time of a clock."""

    requires_request_body = True

    def __init__(self, key, secret, clock) -> None:
        self.key, self.secret, self.clock = key, secret, clock

    def auth_flow(self, request):
        target = request.url.raw_path.decode()
        request.headers.update(self.sign(request.method, target, request.content))
        yield request

    def sign(self, method, target, body):
        nonce = f"nonce-{next(_nonces):08}"
        now = self.clock.wall_ms()
        return sign(self.key, self.secret, method, target, body, time_ms=now, nonce=nonce)


class SigningAuth(requests.auth.AuthBase):
    """The same for requests, which schemathesis speaks with."""

    def __init__(self, key, secret, clock) -> None:
        self._signer = Signer(key, secret, clock)

    def __call__(self, request):
        parts = urlsplit(request.url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        request.headers.update(self._signer.sign(request.method, target, body))
        return request
