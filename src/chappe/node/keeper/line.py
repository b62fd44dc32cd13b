"""A line to the keeper: requests over its socket, made again by itself when a keeper was replaced.

The supervisor listens, whoever the keeper is: a line that was cut connects at once, and waits there
until the next keeper takes it up.

A line is let go of only by `close`, or by the death of its process. The keeper relies on that: what
a process held is free as soon as its line ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from chappe.node.keeper import frame
from chappe.node.unix import dial

log = structlog.get_logger()

# What may wait for answers: far above what a keeper that lives leaves waiting.
REQUESTS_MAX = 10_000
REQUESTS_BYTES_MAX = 2 * frame.FRAME_BYTES_MAX
TIMEOUT_S = 5.0
_RETRY_S = 0.1


class _Request(NamedTuple):
    packed: bytes
    answer: asyncio.Future[Any]
    again: bool


class Line:
    """One process's connection to the keeper at a path."""

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._ids = count(1)
        self._requests: dict[int, _Request] = {}
        self._bytes = 0
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # Told each path that rings; None when a new connection may have missed some.
        self.on_ring: Callable[[str | None], None] | None = None

    def open(self) -> None:
        """Begin to connect, on the running loop; may be called again."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        """Hang up; what waits for an answer gets none."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_exception(ConnectionResetError("the line was closed"))

    async def ask(self, method: str, *arguments: Any, again: bool = False) -> Any:
        """Have a method carried out by the keeper and give its result.

        What may be done `again` is, when a keeper goes before it answered. Raises what the method
        raises there, and OSError when there is no answer in time: it may have happened then, as it
        may when this is cancelled.
        """
        if self._closed:
            raise ConnectionResetError("the line was closed")
        self.open()
        number = next(self._ids)
        packed = frame.pack(number, method, arguments)
        full = self._requests and self._bytes + len(packed) > REQUESTS_BYTES_MAX
        if full or len(self._requests) >= REQUESTS_MAX:
            raise BlockingIOError("too much waits for an answer already")
        answer = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(packed, answer, again)
        self._bytes += len(packed)
        try:
            self._write(packed)
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout_s} s") from None
        finally:
            del self._requests[number]
            self._bytes -= len(packed)

    def tell(self, method: str, *arguments: Any) -> None:
        """Have a method carried out, if a keeper is there; its result is nobody's."""
        self._write(frame.pack(next(self._ids), method, arguments))

    def _write(self, packed: bytes) -> None:
        """Send it, if there is a line; one that has just been cut takes nothing any more, though
        who reads from it is told only in the loop's next turn."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(packed)

    async def _stay_connected(self) -> None:
        while True:
            try:
                await self._talk(*await dial(self._path))
            except (EOFError, OSError) as error:
                log.warning("keeper.line.cut", reason=str(error) or type(error).__name__)
            self._give_up_what_was_sent()
            await asyncio.sleep(_RETRY_S)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send what waits, in the order it was asked, then take answers until the line is cut."""
        try:
            for request in self._requests.values():
                writer.write(request.packed)
            self._writer = writer
            if self.on_ring is not None:
                self.on_ring(None)
            while True:
                self._take(await frame.read(reader))
        finally:
            self._writer = None
            writer.close()

    def _take(self, parts: list[Any]) -> None:
        number, *rest = parts
        if number == 0:
            if self.on_ring is not None:
                self.on_ring(rest[0])
            return
        request = self._requests.get(number)
        # None: its asker did not wait that long.
        if request is None or request.answer.done():
            return
        if len(rest) == 1:
            request.answer.set_result(rest[0])
        else:
            request.answer.set_exception(frame.refusal(*rest))

    def _give_up_what_was_sent(self) -> None:
        for request in self._requests.values():
            if not request.again and not request.answer.done():
                request.answer.set_exception(ConnectionResetError("the keeper went"))
