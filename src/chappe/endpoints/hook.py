"""Hooks: apps' own servers, told who is gone and who came.

A notice is put into its app's line and sent by one of a few tasks, which end when the line is
empty. One that fails is tried again after a while by the task that has it; meanwhile the others go
on, so notices may overtake each other: `at` says what happened last. A notice comes at least once:
its id is the same in every attempt, and on every node that sends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from random import Random

import msgspec
import structlog

from chappe.address import check_app
from chappe.clock import Clock
from chappe.endpoints.callback import Callback, Outcome
from chappe.endpoints.options import HookOptions
from chappe.endpoints.presence import Transition
from chappe.errors import BadRequest, ConfigError
from chappe.events.recorder import Recorder

log = structlog.get_logger()


class Notice(msgspec.Struct, frozen=True):
    """The body of a callback."""

    event: str
    id: str
    app: str
    address: str
    at: int
    node: str


class Hooks:
    """Tells each app that has a hook. Made on the running loop; raises ConfigError."""

    def __init__(
        self,
        hooks: Mapping[str, HookOptions],
        *,
        node: str,
        clock: Clock,
        rng: Random,
        recorder: Recorder,
    ) -> None:
        self._node = node
        self._lines: dict[str, Line] = {}
        for app, options in hooks.items():
            try:
                check_app(app)
            except BadRequest as error:
                raise ConfigError(f"hooks: {error.reason}") from None
            self._lines[app] = Line(app, options, clock, rng, recorder)

    def tell(self, transition: Transition) -> None:
        """Let the app's server know, soon; when too many wait, the oldest is dropped."""
        line = self._lines.get(transition.app)
        if line is None or transition.event not in line.events:
            return
        notice = Notice(
            transition.event,
            transition.id,
            transition.app,
            transition.address,
            transition.at_ms,
            self._node,
        )
        line.put(msgspec.json.encode(notice))

    async def close(self) -> None:
        """Stop at once; what waits is dropped and counted."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))


class Line:
    """The notices of one app, in order, and the tasks that send them."""

    def __init__(
        self, app: str, options: HookOptions, clock: Clock, rng: Random, recorder: Recorder
    ) -> None:
        self.events = frozenset(options.events)
        self._app = app
        self._options = options
        self._clock = clock
        self._rng = rng
        self._recorder = recorder
        self._callback = Callback(app, options)
        # Each with the time it was put in.
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        # Said once when it begins to fail, and once when it works again.
        self._failing = False

    def put(self, body: bytes) -> None:
        """Take a notice."""
        if self._closed:
            self._count("dropped")
            return
        if len(self._waiting) >= self._options.waiting_max:
            self._waiting.popleft()
            self._count("dropped")
        self._waiting.append((self._clock.monotonic(), body))
        if len(self._tasks) < self._options.concurrency_max:
            self._tasks.add(asyncio.create_task(self._send_all()))

    async def close(self) -> None:
        """Stop at once."""
        self._closed = True
        for _ in self._waiting:
            self._count("dropped")
        self._waiting.clear()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._callback.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                since, body = self._waiting.popleft()
                outcome = "dropped"
                try:
                    outcome = await self._send(since, body)
                finally:
                    self._count(outcome)
        finally:
            # At once, not by a callback: a notice put in between would be nobody's.
            self._tasks.discard(asyncio.current_task())

    async def _send(self, since: float, body: bytes) -> Outcome:
        """Try until it is taken or refused, or has been tried for long enough."""
        options = self._options
        delay_s = options.retry_first_s
        for attempt in range(1, options.attempts_max + 1):
            outcome = await self._callback.post(body, self._clock.wall_ms())
            self._note(outcome)
            if outcome is not Outcome.FAILED:
                return outcome
            late_s = self._clock.monotonic() - since + delay_s
            if attempt == options.attempts_max or late_s > options.give_up_s:
                break
            self._count("retried")
            # Nodes that lost the same server do not come back to it all at once.
            await asyncio.sleep(delay_s * (1 - self._rng.random() / 2))
            delay_s = min(2 * delay_s, options.retry_last_s)
        return Outcome.FAILED

    def _note(self, outcome: Outcome) -> None:
        failing = outcome is not Outcome.TAKEN
        if failing and not self._failing:
            log.warning("hook.fails", app=self._app, outcome=str(outcome))
        elif self._failing and not failing:
            log.info("hook.works", app=self._app)
        self._failing = failing

    def _count(self, outcome: str) -> None:
        self._recorder.hooked(self._app, outcome)
