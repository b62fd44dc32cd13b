"""Errands: tasks that a process cannot do without, mostly for as long as it lives. One that fails,
or ends before it should, is not borne in silence: the process would look well, and register, watch
or write nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

log = structlog.get_logger()

Errand = asyncio.Task[None]


class _Ended(Exception):
    """What was to go on has come to its end."""


def run(work: Coroutine[Any, Any, None], what: str, *, ends: bool = False) -> Errand:
    """Begin a task; should a mistake end it, everybody is told what is not done any more.

    To come to an end is a mistake as well, unless it `ends`.
    """
    task = asyncio.create_task(work if ends else _go_on(work), name=what)
    # One that was cancelled before it began has not awaited it.
    task.add_done_callback(lambda _: work.close())
    task.add_done_callback(_check)
    return task


def dead(tasks: Iterable[Errand | None]) -> list[str]:
    """What is not done any more, since a mistake has ended it."""
    return [task.get_name() for task in tasks if task is not None and failed(task)]


async def end(task: Errand | None) -> None:
    """Cancel a task and wait for its end; what had ended it before was told then."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def failed(task: Errand) -> bool:
    """Whether a mistake has ended a task."""
    return task.done() and not task.cancelled() and task.exception() is not None


async def _go_on(work: Coroutine[Any, Any, None]) -> None:
    await work
    raise _Ended("it has come to an end")


def _check(task: Errand) -> None:
    if failed(task):
        what, error = task.get_name(), task.exception()
        log.error(
            "task.failed",
            task=what,
            reason=f"this node does not do that any more and is not ready; restart it: {error!r}",
        )
        task.get_loop().call_exception_handler(
            {"message": f"{what} has failed", "exception": error, "task": task}
        )
