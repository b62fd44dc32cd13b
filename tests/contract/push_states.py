"""The states of push wherever they may be kept, with a clock that is set by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from chappe.ids import PrefixedIds
from chappe.push.note import Note
from chappe.push.state.states import States
from chappe.push.state.url import open_states
from tests.servers import RedisServer

NOW_MS = 1_790_000_000_000
DAY_MS = 24 * 3600 * 1000
MOST = 1000
# Text that has misled stores: separators, patterns, NUL, more than one byte, long, numbers.
NAMES = [
    *("a", "", "a:b", "a", "b:", "*", "[a]", "a\\b", "{a}", "}", "a\0b", "\0", "\n", "é", "日本"),
    *("😀", "x" * 2000, "0", "-1", "007", "1e3", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    *("F81D4FAE-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae7dec11d0a76500a0c91e6bf6", "é"),
]

_numbers = count()
_instants = count(NOW_MS, 1000)
_ids = PrefixedIds(7, lambda: next(_instants))


def client_id() -> str:
    """An id of a client that nobody has yet."""
    return _ids.next("c")


def note_id() -> str:
    """An id of a note that nobody has yet."""
    return _ids.next("p")


def job_id() -> str:
    """An id of a job that nobody has yet."""
    return _ids.next("j")


def a_note(at_ms: int = NOW_MS, life_ms: int = DAY_MS, **fields: object) -> Note:
    """A note that begins then, and lives so long."""
    given = {"id": note_id(), "job": job_id(), "app": "app", "type": 1, "content": b"\0content"}
    return Note(**{**given, "ts_ms": at_ms, "expires_ms": at_ms + life_ms, **fields})  # type: ignore[arg-type]


class Opening:
    """Opens states; what is opened again is the same, unless it is in memory."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self._data = data
        self.now_ms = NOW_MS
        self._shared: States | None = None

    def __call__(self) -> States:
        if self.url != "memory":
            return open_states(self.url, self._data, lambda: self.now_ms)
        if self._shared is None:
            self._shared = open_states(self.url, self._data, lambda: self.now_ms)
        return self._shared


@pytest.fixture(params=["memory", "sqlite", "redis"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """States with nothing in them."""
    if request.param == "memory":
        return Opening("memory", tmp_path)
    if request.param == "sqlite":
        return Opening("sqlite:", tmp_path)
    server: RedisServer = request.getfixturevalue("redis_server")
    return Opening(f"{server.url}/?prefix=push{next(_numbers)}&buckets=32", tmp_path)


@asynccontextmanager
async def opened(opening: Callable[[], States]) -> AsyncIterator[States]:
    """States that are closed in the end."""
    states = opening()
    try:
        yield states
    finally:
        await states.close()
