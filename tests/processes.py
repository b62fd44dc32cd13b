"""Processes that tests start: nobody waits for what they say, or for their end, without a limit."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import IO, Any

# Longer than anything takes on a busy machine.
LINE_S = 60.0
END_S = 30.0


def read_line(pipe: IO[Any], limit_s: float = LINE_S) -> str:
    """The next line that a process writes, or what there is of it when the process has ended.

    Nothing else may read from the pipe before: a line is taken from it byte by byte, so that
    nothing is left in a buffer where no `select` sees it. Raises TimeoutError.
    """
    said = bytearray()
    # Not `select`, which knows no descriptors above 1,023.
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    deadline = time.monotonic() + limit_s
    while not said.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not ready.poll(left_s * 1000):
            raise TimeoutError(f"no line came within {limit_s} s, only {bytes(said)!r}")
        byte = os.read(pipe.fileno(), 1)
        if not byte:
            break
        said += byte
    return said.decode()


def kill(process: subprocess.Popen[Any]) -> int:
    """Kill a process, whatever it does; how it ended. Raises TimeoutExpired."""
    process.kill()
    try:
        return process.wait(END_S)
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
