"""Asking the other nodes what one was asked itself: each about itself, and once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from fastapi import Request

from chappe.edge.http.exchange import peer_of
from chappe.edge.http.relay import Elsewhere, Relayed
from chappe.errors import RequestError

# How long the other nodes may take: one that hangs must not hide those that do not.
_ANSWER_S = 3.0
_ANSWER_BYTES_MAX = 1024 * 1024


def came_from_a_node(request: Request) -> bool:
    """Whether another node asks, which asks all others itself."""
    return "relayed" in request.scope["state"]


async def maybe_ask(elsewhere: Elsewhere, name: str, request: Request) -> bytes | None:
    """What another node answers to the same question; None if it does not in time."""
    headers = {n: request.headers[n] for n in ("authorization",) if n in request.headers}
    scope = request.scope
    question = Relayed("GET", scope["path"], scope["query_string"], headers, b"", peer_of(request))
    body = bytearray()
    try:
        async with (
            asyncio.timeout(_ANSWER_S),
            aclosing(elsewhere.relay(name, question)) as parts,
        ):
            async for part in parts:
                body += part.body
                if len(body) > _ANSWER_BYTES_MAX:
                    return None
    except (TimeoutError, RequestError):
        return None
    return bytes(body)
