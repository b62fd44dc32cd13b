"""The supervisor: the parent of a crew, each of which is replaced when it dies.

It has no event loop, no threads and no messages: it waits for signals and for its children, and
that is all, so that there is little in it that could fail. What the children need (ports, the
keeper's socket, the data folder's lock, a secret that only they know) their crew makes once, and
they inherit it.

    starting --all are ready--> minding --SIGTERM, SIGINT--> stopping
        a child that dies here      a child that dies here      the last stage drains
        ends the start: why         is replaced, the sooner     first: workers before
        is raised                   the longer it lived         their keeper
"""

from __future__ import annotations

import gc
import math
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import structlog

from chappe.errors import ClusterError
from chappe.node.child import SIGNALS, fork
from chappe.node.crew import Crew
from chappe.node.post import Death, Post

log = structlog.get_logger()

# How long a child may take to be ready: a store to open, a registry to reach, links to come up.
_START_S = 60.0
# Beyond what workers are given to drain, before what does not end is killed.
_END_S = 20.0


class Supervisor:
    """Runs a crew."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._selector = selectors.DefaultSelector()
        self._told = False
        # Whose places are there no more, until they have ended.
        self._leaving: list[Post] = []
        self._patience_s = crew.drain_s + _END_S

    def run(self, ready: Callable[[dict[str, object]], None]) -> None:
        """Run until told to stop, and tell once when all places are filled.

        Raises ConfigError or ClusterError when that cannot be, after everything is stopped.
        """
        with ExitStack() as stack:
            stack.callback(self._selector.close)
            self._crew.prepare(stack)
            stack.enter_context(self._signals())
            stack.callback(self._stop)
            # What is here now is in all children, shared for as long as nobody writes to it.
            gc.collect()
            gc.freeze()
            for stage in self._crew.stages:
                self._fill(stage)
            if not self._told:
                ready(self._crew.ready())
            while not self._told:
                self._mind()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals wake the selector; afterwards they are ignored, since the end has begun."""
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
        self._wakes = here
        self._wake_ends = (here, there)
        self._selector.register(here, selectors.EVENT_READ)
        before = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._heard)
        try:
            yield
        finally:
            for number in SIGNALS - {signal.SIGCHLD}:
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.set_wakeup_fd(before)
            here.close()
            there.close()

    def _heard(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self._told = True

    def _fill(self, posts: list[Post]) -> None:
        """Begin a child in each post and wait until all are ready, or this was told to stop."""
        if self._told:
            return
        deadline = time.monotonic() + _START_S
        for post in posts:
            self._begin(post)
        while not self._told and (waiting := self._starting()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ClusterError(f"{waiting[0].name}: not ready within {_START_S:.0f} s")
            self._wait(left_s)
            for post in posts:
                if post.child and post.child.report and post.child.report.failure is not None:
                    raise post.child.report.error()
            for death in self._bury(posts):
                raise ClusterError(f"{death.name}: ended with {death.end} before it was ready")

    def _mind(self) -> None:
        """Wait for something to happen; replace who has died and who does not get ready."""
        posts = self._posts()
        self._wait(self._time_left_s())
        now = time.monotonic()
        for post in self._starting():
            if post.child is not None and now >= post.child.born + _START_S:
                post.child.kill()
        self._see_off(now)
        for death in self._bury(posts):
            log.error("child.died", child=death.name, end=death.end, reason=death.reason)
        for post in self._posts():
            if post.child is None and not self._told and post.due <= time.monotonic():
                self._begin(post)

    def _dismiss(self, post: Post) -> None:
        """Let a child end whose place is there no more."""
        if post.child is not None:
            post.child.let_go()
            post.until = time.monotonic() + self._patience_s
            self._leaving.append(post)

    def _see_off(self, now: float) -> None:
        """Take note of who has left, and kill who does not."""
        for death in self._bury(self._leaving):
            log.info("child.left", child=death.name, end=death.end)
        self._leaving = [post for post in self._leaving if post.child is not None]
        for post in self._leaving:
            if post.child is not None and now >= post.until:
                log.error("child.killed", child=post.name, reason="it did not end by itself")
                post.child.kill()
                post.until = math.inf

    def _time_left_s(self) -> float | None:
        """How long there is nothing to do but to wait; None: for ever."""
        times = [post.due for post in self._posts() if post.child is None]
        times += [post.child.born + _START_S for post in self._starting() if post.child]
        times += [post.until for post in self._leaving if post.until < math.inf]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop(self) -> None:
        """Let the children of each stage drain, the last stage first; kill what does not end."""
        self._end(self._leaving, self._patience_s)
        for stage in reversed(self._crew.stages):
            self._end(stage, self._patience_s)

    def _end(self, posts: list[Post], patience_s: float) -> None:
        for post in posts:
            if post.child is not None:
                post.child.let_go()
        deadline = time.monotonic() + patience_s
        while living := [post for post in posts if post.child is not None]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                for post in living:
                    log.error("child.killed", child=post.name, reason="it did not end by itself")
                    if post.child is not None:
                        post.child.kill()
                deadline = math.inf
            self._wait(min(left_s, _END_S) if left_s > 0 else None)
            self._bury(living)

    def _begin(self, post: Post) -> None:
        now = time.monotonic()
        others = (*self._posts(), *self._leaving)
        ends = [other.child.end for other in others if other.child is not None]
        post.child = fork(post.life, post.filled, now, [*ends, *self._wake_ends, *post.foreign])
        post.filled += 1
        self._selector.register(post.child.end, selectors.EVENT_READ, post)
        log.info("child.begun", child=post.name, pid=post.child.pid)

    def _bury(self, posts: list[Post]) -> list[Death]:
        """Take note of who has died."""
        deaths = []
        for post in posts:
            if post.child is None or (status := post.child.ended()) is None:
                continue
            child = post.vacate(time.monotonic())
            # Its last words may still be on their way.
            while child.hear():
                pass
            with suppress(KeyError):
                self._selector.unregister(child.end)
            child.end.close()
            deaths.append(Death(post.name, status, child.report.failure if child.report else None))
        return deaths

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for a signal or a child, and take what the children say."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._wakes.recv(4096)
            else:
                self._hear(key.data)

    def _hear(self, post: Post) -> None:
        child = post.child
        assert child is not None
        before = child.report
        if not child.hear():
            # It can say no more; how it ended is for a signal to tell.
            self._selector.unregister(child.end)
        elif child.report is not None and child.report.failure is None:
            if before is None:
                filled = sum(1 for one in self._posts() if one.child and one.child.report)
                log.info("child.ready", child=post.name, pid=child.pid, ready=filled)
            for leaving in self._crew.heard(post):
                self._dismiss(leaving)

    def _posts(self) -> list[Post]:
        return [post for stage in self._crew.stages for post in stage]

    def _starting(self) -> list[Post]:
        return [post for post in self._posts() if post.child and not post.child.report]
