"""What happened in a run, in order, with one hash over all of it."""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable

# The newest lines, for people to read; the hash covers the older ones too.
LINES_MAX = 50_000

Detail = str | int | float | bool | bytes | None


class Trace:
    """Events with their virtual time. Equal hashes mean that two runs did the same."""

    def __init__(self, time: Callable[[], float], lines_max: int = LINES_MAX) -> None:
        self._time = time
        self._hash = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=lines_max)
        self.count = 0

    def record(self, kind: str, **details: Detail) -> None:
        """Note an event. Bytes are noted as their length and checksum.

        Raises TypeError for a detail whose text could differ between processes.
        """
        shown = "".join(f" {name}={_show(value)}" for name, value in details.items())
        line = f"{self._time():.9f} {kind}{shown}"
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        """The hash of everything recorded so far, in hexadecimal."""
        return self._hash.hexdigest()


def _show(value: Detail) -> str:
    if isinstance(value, bytes):
        return f"{len(value)}/{zlib.crc32(value):08x}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    raise TypeError(f"a trace takes text, numbers and bytes, not {type(value).__name__}")
