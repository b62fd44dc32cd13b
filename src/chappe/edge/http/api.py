"""The API, whatever routes it has: how it is described, and how it fails."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from chappe.edge.http.description import describe
from chappe.edge.http.failure import answer_failures, failed
from chappe.errors import ErrorCode
from chappe.events.recorder import Recorder


def make_api() -> FastAPI:
    """An API without routes."""
    # The documentation pages load scripts from elsewhere: off.
    return FastAPI(
        title="Chappe",
        version=version("chappe"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Traces would carry the session ids in addresses.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )


def finish_api(app: FastAPI, recorder: Recorder) -> None:
    """Answer whatever goes wrong in one form, and describe the routes that there are by now."""
    answer_failures(app, recorder)
    app.add_exception_handler(RequestValidationError, _validation_error)
    describe(app)


async def _validation_error(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return failed(400, ErrorCode.PROTOCOL, f"{field}: {first['msg']}")
