"""Servers of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import RedisServer


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may treat badly."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()
