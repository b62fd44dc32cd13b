"""A thread with an event loop of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from chappe.errors import CloseCode, ConnectionClosed

T = TypeVar("T")

# How long calls of other threads may take to learn that the client was closed.
_FAREWELL_S = 1.0


class Background:
    """An event loop in a thread, which runs until it is stopped."""

    def __init__(self) -> None:
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = (
            concurrent.futures.Future()
        )
        # A daemon: a client that was never closed does not keep its program from ending.
        self._thread = threading.Thread(target=self._run, name="chappe-client", daemon=True)
        self._thread.start()
        self._loop = self._started.result()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop and wait for it; interrupting the wait cancels it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise _closed() from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        finally:
            if not future.done():
                future.cancel()

    def stop(self) -> None:
        """End the loop and its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._started.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_FAREWELL_S)


def _closed() -> ConnectionClosed:
    return ConnectionClosed(CloseCode.NORMAL, "closed by this client")
