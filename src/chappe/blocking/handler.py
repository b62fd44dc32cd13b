"""Handlers of services that block: each in one of so many threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

# Gets the data of a request and returns that of the response.
Handler = Callable[[Any], Any]


class Pool:
    """The threads of one service's handler; they are made when they are needed."""

    def __init__(self, handler: Handler, concurrency: int) -> None:
        self._handler = handler
        self._threads = concurrent.futures.ThreadPoolExecutor(
            max(concurrency, 1), thread_name_prefix="chappe-handler"
        )

    async def answer(self, data: Any) -> Any:
        """Run the handler in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, data)

    def close(self) -> None:
        """Let the threads end, those that are busy once they are done."""
        self._threads.shutdown(wait=False, cancel_futures=True)
