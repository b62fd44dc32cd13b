"""The floor of message ids, in a file of the data folder."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from chappe.errors import ConfigError
from chappe.ids import TIME_MAX

log = structlog.get_logger()


class FileFloor:
    """Keeps how far ids were reserved, written aside and renamed so that it is never half there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> int:
        """The last reservation, 0 for a new folder; raises ConfigError when it cannot be read."""
        try:
            reserved_until = int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise ConfigError(f"data: {self._path} cannot be read: {error}") from None
        if not 0 <= reserved_until <= TIME_MAX:
            raise ConfigError(f"data: {self._path} holds {reserved_until}, which is no time")
        return reserved_until

    def store(self, reserved_until: int) -> None:
        """Write a reservation and flush it, name included; raises OSError, and says so."""
        try:
            self._write(reserved_until)
        except OSError as error:
            log.error("ids.floor", file=str(self._path), reason=str(error))
            raise

    def _write(self, reserved_until: int) -> None:
        aside = self._path.with_suffix(".new")
        with aside.open("w") as file:
            file.write(f"{reserved_until}\n")
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
