"""Callbacks: one signed POST to an app's own server, bounded in time and in what is read of it.

    POST /path HTTP/1.1
    content-type: application/json
    chappe-signature: t=1794774463244,v1=HEX      HMAC-SHA256(secret, "1794774463244." + body)

The time is in the signature, so that a receiver can refuse what somebody recorded and sent again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from enum import StrEnum
from pathlib import Path

import httpx

from chappe.endpoints.options import HookOptions
from chappe.errors import ConfigError

# As long as the hash.
SECRET_BYTES_MIN = 32
# What is read of an answer so that its connection can be used again; more is cut off.
_ANSWER_BYTES_MAX = 16 * 1024
# Not now, though the request is fine: too early, too slow, too many.
_LATER = frozenset({408, 425, 429})


class Outcome(StrEnum):
    """What became of an attempt."""

    TAKEN = "taken"
    REFUSED = "refused"
    FAILED = "failed"


class Callback:
    """The way to one app's server."""

    def __init__(self, app: str, options: HookOptions) -> None:
        self._url = options.url
        self._timeout_s = options.timeout_s
        self._secret = _read_secret(app, options.secret_file)
        # Its lines hold the whole address, which may hold what only the app should know.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = httpx.AsyncClient(
            verify=_context(app, options.ca_file),
            timeout=options.timeout_s,
            limits=httpx.Limits(
                max_connections=options.concurrency_max,
                max_keepalive_connections=options.concurrency_max,
            ),
            follow_redirects=False,
            # A proxy or a password from this process's environment is not the app's.
            trust_env=False,
            headers={"user-agent": "chappe", "accept-encoding": "identity"},
        )

    async def post(self, body: bytes, now_ms: int) -> Outcome:
        """Make one attempt; an answer of 2xx is `taken`, one that no retry can mend `refused`."""
        headers = {
            "content-type": "application/json",
            "chappe-signature": signature(self._secret, now_ms, body),
        }
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                size = 0
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > _ANSWER_BYTES_MAX:
                        break
        except (TimeoutError, httpx.HTTPError):
            return Outcome.FAILED
        return _judge(response.status_code)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()


def signature(secret: bytes, now_ms: int, body: bytes) -> str:
    """What stands in the header `chappe-signature`."""
    digest = hmac.digest(secret, b"%d.%b" % (now_ms, body), "sha256")
    return f"t={now_ms},v1={digest.hex()}"


def _judge(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome.TAKEN
    return Outcome.FAILED if status >= 500 or status in _LATER else Outcome.REFUSED


def _read_secret(app: str, file: str) -> bytes:
    try:
        secret = Path(file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"hooks.{app}.secret_file: {error}") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"hooks.{app}.secret_file: a secret of at least {SECRET_BYTES_MIN} bytes, please"
        )
    return secret


def _context(app: str, ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"hooks.{app}.ca_file: {error}") from None
    return context
