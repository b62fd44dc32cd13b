"""The gate before the API: which pages may use it, and headers that every response carries.

No cookie ever stands for a user, so a page can do no more than anybody on its visitor's machine; in
development, where no token is needed, that would be everything. Hence the checks come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chappe.edge.http.failure import failed
from chappe.edge.origin import Origins
from chappe.errors import ErrorCode

_METHODS = "GET, POST, PUT, DELETE"
_ALLOWED_HEADERS = "authorization, content-type"
_PREFLIGHT_S = "600"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A browser sends no Origin with an image's or a script's request, but says where it comes from.
_FOREIGN = frozenset({"cross-site", "same-site"})


class Gate:
    """Refuses foreign pages on `/v1`, answers preflights, and hardens responses."""

    def __init__(self, app: ASGIApp, origins: Origins, *, dev: bool, header_bytes_max: int) -> None:
        self._app = app
        self._header_bytes_max = header_bytes_max
        self._origins = origins
        self._dev = dev

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        api = scope["path"].startswith("/v1/")
        app = self._app
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._header_bytes_max:
            # What comes in one piece is whole before the parser could find it too long.
            app, origin = failed(431, ErrorCode.PROTOCOL, "headers: too long"), None
        elif "content-length" in headers and "transfer-encoding" in headers:
            # Two lengths: a proxy in front may believe the other one, and what one of them takes
            # for a body the other would take for the next request.
            app, origin = _ambiguous(), None
        elif fault := self._fault(headers, api):
            app, origin = failed(403, ErrorCode.FORBIDDEN, fault), None
        elif part := _unreadable(scope):
            app = failed(400, ErrorCode.PROTOCOL, f"{part}: not UTF-8")
        elif api and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            app = _preflight()

        async def send_hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                _harden(MutableHeaders(scope=message), origin, api)
            await send(message)

        await app(scope, receive, send_hardened)

    def _fault(self, headers: Headers, api: bool) -> str | None:
        """Why this request may not pass, or None."""
        if self._dev and not _is_loopback(headers.getlist("host")):
            # A page whose name was made to point here has an origin that matches its own.
            return "host: in development only this machine's own name is answered"
        if not api:
            return None
        origins = headers.getlist("origin")
        if len(origins) > 1 or not all(self._origins.allow(origin) for origin in origins):
            return "origin: this page may not use the API"
        if not origins and headers.get("sec-fetch-site") in _FOREIGN:
            return "sec-fetch-site: this page may not use the API"
        return None


def _is_loopback(hosts: Iterable[str]) -> bool:
    return all(host in _LOOPBACK or host.rpartition(":")[0] in _LOOPBACK for host in hosts)


def _unreadable(scope: Scope) -> str | None:
    """The part of a request's target that is not UTF-8: names in it would come out as others."""
    for part, value in (("path", scope["raw_path"]), ("query", scope["query_string"])):
        if b"%" in value:
            try:
                unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                return part
    return None


def _ambiguous() -> Response:
    reason = "content-length: not together with transfer-encoding"
    response = failed(400, ErrorCode.PROTOCOL, reason)
    response.headers["connection"] = "close"
    return response


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": _ALLOWED_HEADERS,
            "access-control-max-age": _PREFLIGHT_S,
        },
    )


def _harden(headers: MutableHeaders, origin: str | None, api: bool) -> None:
    headers["x-content-type-options"] = "nosniff"
    headers["content-security-policy"] = "default-src 'none'; frame-ancestors 'none'"
    if api:
        headers["cache-control"] = "no-store"
        headers.add_vary_header("Origin")
        if origin is not None:
            headers["access-control-allow-origin"] = origin
