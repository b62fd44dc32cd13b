"""The description of the API: `/openapi.json`, from the types that read and write its bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from chappe.edge.http.bodies import Failure

_REF = "#/components/schemas/{name}"
_FAILURES = {
    400: "Something in the request is wrong; the reason names it",
    401: "The token is missing or not good",
    403: "The identity, or the page, may not do this",
    404: "Nobody is there to take it",
    413: "The body is larger than any message",
    429: "More is asked than may be; try again after as long as is said",
    503: "A bound was reached; try again after a moment",
}
# Every type that a route speaks of.
_types: dict[Any, None] = {}
_SECURITY = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Chappe-Signature",
        "description": "Hex HMAC-SHA256, with the app's secret, of method, path with query, time, "
        "nonce and the hex SHA-256 of the body, with newlines between them; sent with "
        "X-Chappe-App, X-Chappe-Time (milliseconds since 1970) and X-Chappe-Nonce. An "
        "administrator sends X-Chappe-App and a token instead.",
    },
}


def operation(
    summary: str,
    *answers: Any,
    body: Any = None,
    fails: tuple[int, ...] = (400, 401, 403, 503),
    signed: bool = False,
) -> dict[str, Any]:
    """What a route says about itself: the types of its answer, its body, and how it can fail.

    `signed`: app servers ask, and sign.
    """
    described = {status: _response(_FAILURES[status], [Failure]) for status in fails}
    extra: dict[str, Any] = {"security": [{"signature": []} if signed else {}, {"token": []}]}
    if body is not None:
        described[413] = _response(_FAILURES[413], [Failure])
        extra["requestBody"] = {"required": True, "content": _json([body])}
    return {
        "summary": summary,
        "status_code": 200,
        "responses": {200: _response("Done", answers), **described},
        "openapi_extra": extra,
    }


def describe(app: FastAPI) -> None:
    """Make an app's description the one of its routes' types."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _openapi(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _openapi(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for methods in document["paths"].values():
        for described in methods.values():
            # FastAPI's own idea of a refused parameter; ours is a 400.
            described["responses"].pop("422", None)
    _, schemas = msgspec.json.schema_components(_types, ref_template=_REF)
    document["components"] = {"schemas": schemas, "securitySchemes": _SECURITY}
    return document


def _response(description: str, answers: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"description": description}
    if answers:
        described["content"] = _json(answers)
    return described


def _json(types: Any) -> dict[str, Any]:
    _types.update(dict.fromkeys(types))
    schemas = [_schema(each) for each in types]
    return {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}


@cache  # the same few types stand at every route, and looking into them is what takes time
def _schema(type_: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=_REF)
    return schema
