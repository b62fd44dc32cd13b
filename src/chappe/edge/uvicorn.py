"""A way past uvicorn's own framing, for frames that are made already.

A hub's frame is the same for every receiver, and what one of them gets in a tick is joined: one
write for all of it. To a server by ASGI it is a message at a time, each made into a frame anew and
written by itself. Of uvicorn's protocol on `websockets` it is known how it writes a frame: while
the connection is open and takes bytes, it hands them to the transport, and so does this.

Whatever is not as it is known, another server, another version, compression, a middleware that
looks at what is sent, has no such way: it gets what ASGI says.
"""

from __future__ import annotations

import inspect
import sys
from asyncio import WriteTransport
from typing import Any

_MODULE = "uvicorn.protocols.websockets.websockets_sansio_impl"
# What it wraps `send` in does nothing but note that a response has begun.
_TRANSPARENT = "starlette._exception_handler"
_WRAPPERS_MAX = 8


def frame_transport(receive: object, send: object) -> WriteTransport | None:
    """Where whole frames may be written for the connection that an application was called for,
    while it is not closing and holds nothing back; None: they go by ASGI.

    To be asked once the connection is accepted: what was agreed on is known by then. Whatever ends
    such a connection closes its transport first, but for the application's own goodbye, which is
    the last thing it says.
    """
    owner: object = getattr(receive, "__self__", None)
    kind: object = getattr(sys.modules.get(_MODULE), "WebSocketsSansIOProtocol", None)
    if type(owner) is not kind or getattr(_unwrap(send), "__self__", None) is not owner:
        return None
    transport: WriteTransport | None = getattr(owner, "transport", None)
    agreed = getattr(getattr(owner, "conn", None), "extensions", True)
    return None if agreed else transport


def _unwrap(send: Any) -> Any:
    for _ in range(_WRAPPERS_MAX):
        if getattr(send, "__module__", None) != _TRANSPARENT or not inspect.isfunction(send):
            break
        send = inspect.getclosurevars(send).nonlocals.get("send")
    return send
