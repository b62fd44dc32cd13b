"""The data folder: held by one process at a time, and where a node's name is kept."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chappe.errors import ConfigError


class DataFolder:
    """A data folder held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(f"data: {path} is in use by another node") from None
        except OSError as error:
            raise ConfigError(f"data: {error}") from None

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Hold the folder only if what needs it can be made."""
        try:
            yield
        except ConfigError:
            self.release()
            raise

    def name(self) -> str:
        """The name of the node whose folder this is, made up once and kept."""
        file = self.path / "name"
        try:
            if not file.exists():
                file.write_text(f"node-{os.urandom(4).hex()}\n")
            return file.read_text().strip()
        except OSError as error:
            raise ConfigError(f"data: {error}") from None

    def release(self) -> None:
        """Let another process have it."""
        os.close(self._lock)
