"""Async tests, on the kind of loop that a node runs on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

TEST_TIMEOUT_S = 30.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own, the kind that a node runs on."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(*args, **kwargs), TEST_TIMEOUT_S)

        uvloop.run(bounded())

    return run
