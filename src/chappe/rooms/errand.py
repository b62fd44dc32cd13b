"""Errands: tasks that go on for as long as a process does. One that fails is not borne in silence:
the process would look well, and register, watch or write nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger()

Errand = asyncio.Task[None]


def run(work: Coroutine[Any, Any, None], what: str) -> Errand:
    """Begin a task; should a mistake end it, everybody is told what is not done any more."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_check, what))
    return task


def failed(task: Errand | None) -> bool:
    """Whether a mistake has ended it."""
    return task is not None and task.done() and not task.cancelled() and bool(task.exception())


async def end(task: Errand | None) -> None:
    """Cancel a task and wait for its end; what had ended it before was told then."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _check(what: str, task: Errand) -> None:
    if failed(task):
        error = task.exception()
        log.error(
            "rooms.task.failed",
            task=what,
            reason=f"this node does not do that any more and is not ready; restart it: {error!r}",
        )
        task.get_loop().call_exception_handler(
            {"message": f"rooms: {what} has failed", "exception": error, "task": task}
        )
