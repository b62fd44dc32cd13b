"""The handshake: who may open a WebSocket at all."""

from __future__ import annotations

from http import HTTPStatus

from picows import WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener

from chappe.edge.origin import Origins, same_host

_VERSION = "13"


def refusal_of(
    request: WSUpgradeRequest, origins_allowed: Origins, *, draining: bool, same: bool = False
) -> WSUpgradeResponseWithListener | None:
    """What is wrong with a request, as its answer; None when it may come in.

    With `same`, pages of the host that is asked may come in as well.
    """
    headers = request.headers
    if headers.getall("Sec-WebSocket-Version", []) != [_VERSION]:
        return _refusal(
            HTTPStatus.UPGRADE_REQUIRED,
            b"this is a WebSocket of version 13\n",
            {"Sec-WebSocket-Version": _VERSION},
        )
    if "upgrade" in _tokens(headers.getall("Connection", [])):
        # picows knows the word only when it stands alone; Firefox sends `keep-alive, Upgrade`.
        headers["Connection"] = "upgrade"
    origins = headers.getall("Origin", [])
    origin = origins[0] if origins else None
    allowed = origins_allowed.allow(origin) or (same and same_host(origin, headers.get("Host", "")))
    if len(origins) > 1 or not allowed:
        return _refusal(HTTPStatus.FORBIDDEN, b"this origin may not connect\n")
    if draining:
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, b"this node is draining\n")
    return None


def _tokens(values: list[str]) -> set[str]:
    return {token.strip().lower() for value in values for token in value.split(",")}


def _refusal(
    status: HTTPStatus, reason: bytes, headers: dict[str, str] | None = None
) -> WSUpgradeResponseWithListener:
    return WSUpgradeResponseWithListener(
        WSUpgradeResponse.create_error_response(status, reason, headers), None
    )
