"""Tables are held by one command at a time: two would get into each other's way."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.tether import held


@contextmanager
def holding(tables: Path) -> Iterator[None]:
    """Hold the tables, whose folder is made if need be; let go of them also when killed.

    Raises ChappeError if somebody else holds them, ConfigError if there can be no such folder.
    """
    if tables.exists() and not tables.is_dir():
        raise ConfigError(f"--tables: {tables} is not a folder")
    try:
        tables.mkdir(parents=True, exist_ok=True)
        lock = (tables / "_lock").open("ab")
    except OSError as error:
        raise ConfigError(f"--tables: {error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ChappeError(f"{tables}: another command is at work on these tables") from None
        # A stream of a server of Spark Connect may be in its last batch when its client is gone.
        with held(tables):
            pass
        yield
