"""The web: where a device gets its grant, and tells of clicks, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from chappe.device.grant import Grant, decode_grant
from chappe.device.note import Note
from chappe.errors import BadRequest, ConfigError, Forbidden, Overload, RequestError, Unreachable

# Nothing that the web says to a device is longer.
ANSWER_BYTES_MAX = 64 * 1024
# What the web takes at once.
CLICKS_MAX = 100
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class Web(Protocol):
    """What a device asks of the web."""

    async def grant(self, app: str, device: str) -> Grant:
        """A fresh grant.

        Raises Unreachable or Overload when a later attempt may succeed, FatalRequestError when not.
        """
        ...

    async def click(self, client: str, token: str, notes: Sequence[Note]) -> None:
        """Tell that notes were clicked; raises as `grant` does."""
        ...


class _Refusal(msgspec.Struct):
    reason: str = ""


class HttpWeb:
    """The web at a URL; a connection is made for each request, since there are few."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = check_url(url)
        self._timeout_s = timeout_s

    async def grant(self, app: str, device: str) -> Grant:
        return decode_grant(await self._post("devices", {"app": app, "device": device}))

    async def click(self, client: str, token: str, notes: Sequence[Note]) -> None:
        for at in range(0, len(notes), CLICKS_MAX):
            clicks = [{"job": note.job, "note": note.id} for note in notes[at : at + CLICKS_MAX]]
            await self._post("clicks", {"client": client, "token": token, "clicks": clicks})

    async def _post(self, what: str, body: Mapping[str, object]) -> bytes:
        # A device that lives on its cache never asks; importing this takes longer than the rest.
        import httpx  # noqa: PLC0415

        url = f"{self._url}/v1/push/{what}"
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout_s) as client,
                client.stream("POST", url, json=body) as response,
            ):
                answer = bytearray()
                async for piece in response.aiter_bytes():
                    answer += piece
                    if len(answer) > ANSWER_BYTES_MAX:
                        raise Overload(f"web: it answers more than {ANSWER_BYTES_MAX} bytes")
        except httpx.HTTPError as error:
            raise Unreachable(f"web: {type(error).__name__} {error}") from None
        if response.status_code != HTTPStatus.OK:
            raise _refusal(response.status_code, bytes(answer))
        return bytes(answer)


def check_url(url: str) -> str:
    """The URL, without a slash at its end; raises ConfigError."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"web: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("web: http://host:port or https://host:port wanted")
    return url.rstrip("/")


def _refusal(status: int, answer: bytes) -> RequestError:
    try:
        said = msgspec.json.decode(answer, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _Refusal()
    reason = f"web: {status} {said.reason}".rstrip()
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return Overload(reason)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Forbidden(reason)
    return BadRequest(reason)
