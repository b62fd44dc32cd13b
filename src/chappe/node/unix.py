"""Unix sockets in data folders: how the processes of one machine reach each other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chappe.errors import ConfigError

_BACKLOG = 128


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Lend a name for a socket's path that is short enough, however deep its folder lies.

    A Unix socket's address holds 107 bytes; the folder's descriptor has a short name.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    """Listen at a path, in the place of whoever died there; for the owner alone.

    Raises ConfigError.
    """
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        with reachable(path) as short:
            listening.bind(short)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigError(f"data: {path}: {error}") from None
    finally:
        os.umask(mask)
    return listening


async def dial(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to whoever listens at a path; raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        with reachable(path) as short:
            await asyncio.get_running_loop().sock_connect(connection, short)
        return await asyncio.open_unix_connection(sock=connection)
    except BaseException:
        connection.close()
        raise
