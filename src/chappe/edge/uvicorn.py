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
from collections.abc import Callable
from typing import Any

# Whole frames; False when they have to go the other way.
StraightWrite = Callable[[bytes], bool]

_MODULE = "uvicorn.protocols.websockets.websockets_sansio_impl"
# What it wraps `send` in does nothing but note that a response has begun.
_TRANSPARENT = "starlette._exception_handler"
_WRAPPERS_MAX = 8
_NOBODY: Any = object()


def straight_write(receive: object, send: object) -> StraightWrite | None:
    """How to write frames to the connection that an application was called for; None: by ASGI.

    To be asked once the connection is accepted: what was agreed on is known by then.
    """
    owner: Any = getattr(receive, "__self__", _NOBODY)
    kind: Any = getattr(sys.modules.get(_MODULE), "WebSocketsSansIOProtocol", _NOBODY)
    if type(owner) is not kind:
        return None
    if getattr(_unwrap(send), "__self__", None) is not owner:
        return None
    try:
        return None if owner.conn.extensions else _straight(owner.transport)
    except AttributeError:
        return None


def _unwrap(send: Any) -> Any:
    for _ in range(_WRAPPERS_MAX):
        if getattr(send, "__module__", None) != _TRANSPARENT or not inspect.isfunction(send):
            break
        send = inspect.getclosurevars(send).nonlocals.get("send")
    return send


def _straight(transport: Any) -> StraightWrite:
    # Whatever ends such a connection closes its transport first, but for the application's own
    # goodbye, which is the last thing it says.
    write, is_closing, waits = (
        transport.write,
        transport.is_closing,
        transport.get_write_buffer_size,
    )

    def straight(data: bytes) -> bool:
        if is_closing() or waits():
            return False
        write(data)
        return True

    return straight
