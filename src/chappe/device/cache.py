"""The cache: a device's grant and the ids of what it has shown, across restarts (P15).

`FILE` holds the grant as JSON, for its owner only, written aside and renamed. `FILE.ids` holds an
id to a line, appended before a note is shown and written anew when it has grown. A cache that can
not be read or written is no cache: the device goes on without.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from chappe.device.grant import Grant, check_grant
from chappe.device.shown import Shown
from chappe.errors import BadRequest

_OWNER_ONLY = 0o600


class Cache(Protocol):
    """Where a device keeps what it knows."""

    def load_grant(self) -> Grant | None:
        """The grant that was stored last, for this app and device."""
        ...

    def store_grant(self, grant: Grant) -> None:
        """Keep a grant."""
        ...

    def load_shown(self, ids_max: int) -> Shown:
        """What was shown."""
        ...

    def show(self, shown: Shown, id: str) -> None:
        """Keep that something is shown now; it is in the set already."""
        ...


class NoCache:
    """Forgets with the process."""

    def load_grant(self) -> Grant | None:
        return None

    def store_grant(self, grant: Grant) -> None:
        return None

    def load_shown(self, ids_max: int) -> Shown:
        return Shown((), ids_max)

    def show(self, shown: Shown, id: str) -> None:
        return None


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A grant in its file, with whose it is."""

    app: str
    device: str
    grant: Grant


class FileCache:
    """Two files; each is a few kilobytes, written rarely, and blocks for as long."""

    def __init__(self, path: Path, *, app: str, device: str) -> None:
        self._path = path
        self._ids_path = path.with_name(path.name + ".ids")
        self._app = app
        self._device = device
        self._lines = 0

    def load_grant(self) -> Grant | None:
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
            check_grant(stored.grant)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, BadRequest):
            return None
        if (stored.app, stored.device) != (self._app, self._device):
            return None
        return stored.grant

    def store_grant(self, grant: Grant) -> None:
        stored = _Stored(app=self._app, device=self._device, grant=grant)
        with suppress(OSError):
            _replace(self._path, msgspec.json.encode(stored))

    def load_shown(self, ids_max: int) -> Shown:
        lines: list[bytes] = []
        with suppress(OSError):
            lines = self._ids_path.read_bytes().split(b"\n")
        # What is after the last line's end was not written wholly.
        ids = [line.decode(errors="replace") for line in lines[:-1] if line]
        self._lines = len(ids)
        if lines and lines[-1]:
            # It would become part of the next id.
            self._rewrite(Shown(ids, ids_max))
        return Shown(ids, ids_max)

    def show(self, shown: Shown, id: str) -> None:
        self._lines += 1
        if self._lines > 2 * shown.ids_max:
            self._rewrite(shown)
            return
        with suppress(OSError):
            _append(self._ids_path, _line(id))

    def _rewrite(self, shown: Shown) -> None:
        with suppress(OSError):
            _replace(self._ids_path, b"".join(map(_line, shown)))
            self._lines = len(shown)


def _line(id: str) -> bytes:
    return id.encode().replace(b"\n", b" ") + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Let a file have another content, or stay as it was, whatever happens meanwhile."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    # One that was left over may be readable by others.
    aside.unlink(missing_ok=True)
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(file, "wb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(file)
    aside.replace(path)


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _OWNER_ONLY)
    with os.fdopen(file, "ab") as writer:
        writer.write(data)
