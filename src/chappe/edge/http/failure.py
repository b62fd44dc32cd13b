"""Failures: every error of the HTTP edge as the same JSON object, with its status."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chappe.edge.http.bodies import Failure
from chappe.errors import (
    BadRequest,
    ErrorCode,
    FatalRequestError,
    RequestError,
    StorageError,
    Throttled,
)
from chappe.events.recorder import Recorder
from chappe.push.unproven import Unproven

log = structlog.get_logger()

JSON = "application/json"
# What a client that was refused for want of room should wait.
RETRY_AFTER_S = "1"

STATUS: dict[str, int] = {
    ErrorCode.UNREACHABLE: 404,
    ErrorCode.OVERLOAD: 503,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.PROTOCOL: 400,
}


class Unauthorized(FatalRequestError):
    """There is no token, or it is not good."""

    code = ErrorCode.FORBIDDEN


class TooLarge(BadRequest):
    """The request's body is larger than any message."""


def failure(error: str, reason: str, outcome: str | None = None) -> bytes:
    """The body of an error."""
    return msgspec.json.encode(Failure(ok=False, error=error, reason=reason, outcome=outcome))


def failed(status: int, error: str, reason: str, outcome: str | None = None) -> Response:
    """The response of an error."""
    return Response(failure(error, reason, outcome), status, headers_of(status), JSON)


def headers_of(status: int) -> dict[str, str]:
    """The headers that tell a client what to do about a status."""
    if status == 503:
        return {"retry-after": RETRY_AFTER_S}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


def answer_failures(app: Starlette, recorder: Recorder) -> None:
    """Make an app answer whatever goes wrong in one form; what the hub did not see is recorded.

    The handlers are coroutines because others would each be run in a thread.
    """

    async def refused(request: Request, error: Any) -> Response:
        recorder.refused("", error.code)
        return _request_error(request, error)

    async def not_stored(request: Request, error: Any) -> Response:
        recorder.refused("", ErrorCode.OVERLOAD)
        log.warning("a store could not do what was asked", path=request.url.path, error=str(error))
        reason = "store: it cannot do this now"
        return failed(503, ErrorCode.OVERLOAD, reason, "unknown")

    app.add_exception_handler(RequestError, refused)
    app.add_exception_handler(StorageError, not_stored)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _bug)


def _request_error(request: Request, error: Any) -> Response:
    status = STATUS[error.code]
    if isinstance(error, Throttled):
        response = failed(429, error.code, error.reason)
        response.headers["retry-after"] = str(error.retry_after_s)
        return response
    if isinstance(error, Unauthorized | Unproven):
        status = 401
    elif isinstance(error, TooLarge):
        status = 413
    outcome = "unknown" if getattr(error, "outcome_unknown", False) else None
    return failed(status, error.code, error.reason, outcome)


async def _http_error(request: Request, error: Any) -> Response:
    reasons = {404: "there is nothing at this path", 405: "this path has no such method"}
    response = failed(
        error.status_code, ErrorCode.PROTOCOL, reasons.get(error.status_code, error.detail)
    )
    response.headers.update(error.headers or {})
    return response


async def _gone(request: Request, error: Any) -> Response:
    """The client left in the middle of its request: nobody reads this."""
    return Response(status_code=400)


async def _bug(request: Request, error: Exception) -> Response:
    """Our own mistake: the log has it, the peer learns no more than that."""
    return failed(500, "internal", "the node made a mistake; its log says which")
