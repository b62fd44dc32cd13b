"""A process: callbacks that can be stopped together, as by SIGSTOP, or for ever, as by a crash.

Whoever starts a task in a process starts everything that comes of it there: a context says so, and
tasks, timers and callbacks inherit it. What a stopped process should have done waits, in order;
its kernel's part waits with it, as behind a window that does not open.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context

_process: ContextVar[Process | None] = ContextVar("chappe_simulated_process", default=None)


class Process:
    """What runs, or does not, as one."""

    __slots__ = ("held", "name", "stopped")

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False
        # What it should have done meanwhile. All that came of a crashed one stays here to the end
        # of the run: were it collected before, the finally blocks of its tasks would be its ghost.
        self.held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<Process {self.name}{' (stopped)' if self.stopped else ''}>"

    def enter(self, context: Context) -> Context:
        """Let what runs in a context belong to this process."""
        context.run(_process.set, self)
        return context


def process_of(context: Context) -> Process | None:
    """The process that a context belongs to."""
    return context.get(_process)


def outside() -> Context:
    """A copy of the present context that belongs to no process: what a server would do."""
    context = copy_context()
    context.run(_process.set, None)
    return context
