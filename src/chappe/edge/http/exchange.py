"""Requests in, responses out: bounded bodies, and replies with their status."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chappe.edge.http.bodies import Answer
from chappe.edge.http.failure import JSON, STATUS, TooLarge, headers_of

_encode = msgspec.json.Encoder().encode


async def read(request: Request, bytes_max: int) -> bytes:
    """A request's body; raises TooLarge before it is read when it says so, or as soon as it is."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > bytes_max:
        raise TooLarge(f"body: more than {bytes_max} bytes")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > bytes_max:
            raise TooLarge(f"body: more than {bytes_max} bytes")
    return bytes(data)


def peer_of(request: Request) -> str:
    """The address a request came from."""
    return request.client.host if request.client else ""


def answered(answer: Answer) -> Response:
    """A reply, with the status that its error stands for."""
    status = 200 if answer.ok else STATUS[answer.error or ""]
    return Response(_encode(answer), status, headers_of(status), JSON)


def done(body: msgspec.Struct) -> Response:
    """What was asked for."""
    return Response(_encode(body), 200, media_type=JSON)
