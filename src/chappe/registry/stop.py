"""Ends a task that would go on for ever."""

from __future__ import annotations

import asyncio


async def stop(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end; raises what ended it before, if that was a mistake."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
