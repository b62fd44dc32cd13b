"""The supervisor: the parent of a keeper and of workers, each replaced when it dies.

It has no event loop, no threads and no messages: it waits for signals and for its children, and
that is all, so that there is little in it that could fail. What the children need (ports, the
keeper's socket, the data folder's lock, a secret that only they know) it makes once, and they
inherit it.

    starting --all are ready--> minding --SIGTERM, SIGINT--> stopping
        a child that dies here      a child that dies here      workers drain, then the
        ends the start: why         is replaced, the sooner     keeper ends
        is raised                   the longer it lived
"""

from __future__ import annotations

import gc
import math
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import structlog

from chappe.errors import ClusterError, ConfigError
from chappe.node.child import SIGNALS, Life, fork
from chappe.node.folder import DataFolder
from chappe.node.keeper.keeper import SOCKET, keep
from chappe.node.options import JOURNALS, NodeOptions
from chappe.node.post import Death, Post
from chappe.node.reservation import Reservation
from chappe.node.unix import listen
from chappe.node.worker import kept_parts, work, worker_options

log = structlog.get_logger()

# How long a child may take to be ready: a store to open, a registry to reach, links to come up.
_START_S = 60.0
# Beyond what workers are given to drain, before what does not end is killed.
_END_S = 20.0


class Supervisor:
    """Runs a node's options as several workers on one machine."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._told = False
        self._keeper: Post | None = None
        self._workers: list[Post] = []

    def run(self, ready: Callable[[dict[str, object]], None]) -> None:
        """Run until told to stop, and tell once when all workers take traffic.

        Raises ConfigError or ClusterError when that cannot be, after everything is stopped.
        """
        with ExitStack() as stack:
            stack.callback(self._selector.close)
            self._prepare(stack)
            stack.enter_context(self._signals())
            stack.callback(self._stop)
            # What is here now is in all children, shared for as long as nobody writes to it.
            gc.collect()
            gc.freeze()
            self._fill([self._keeper] if self._keeper else [])
            self._fill(self._workers)
            if not self._told:
                ready(self._addresses() | {"workers": len(self._workers)})
            while not self._told:
                self._mind()

    def _prepare(self, stack: ExitStack) -> None:
        """Make what the children share; raises ConfigError."""
        options = self._options
        data = DataFolder(Path(options.data))
        stack.callback(data.release)
        reserved = {}
        for name in ("port", "http_port", "tcp_port"):
            reserved[name] = Reservation(options.host, getattr(options, name))
            stack.callback(reserved[name].close)
        ports = {name: reservation.port for name, reservation in reserved.items()}
        foreign = [reservation.socket for reservation in reserved.values()]
        shared = msgspec.structs.replace(options, workers=1, **ports)
        path = data.path / SOCKET
        kept = kept_parts(options)
        if kept:
            listening = listen(path)
            stack.callback(path.unlink, missing_ok=True)
            stack.callback(listening.close)
            life: Life = partial(
                keep,
                listening=listening,
                store=options.store,
                data=data.path,
                options=options.leases,
            )
            self._keeper = Post("keeper", life, foreign)
            foreign = [*foreign, listening]
        names = [f"worker-{number}" for number in range(1, options.workers + 1)]
        folders = {name: data.path / name for name in names}
        _take_along(data.path, folders[names[0]])
        secret = secrets.token_bytes(32)
        for number, name in enumerate(names, 1):
            life = partial(
                work,
                name=name,
                folders=folders,
                options=worker_options(shared, number, folders[name]),
                keeper=path,
                kept=kept,
                secret=secret,
            )
            self._workers.append(Post(name, life, foreign))

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
        for post in self._starting():
            if post.child is not None and time.monotonic() >= post.child.born + _START_S:
                post.child.kill()
        for death in self._bury(posts):
            log.error("child.died", child=death.name, end=death.end, reason=death.reason)
        for post in posts:
            if post.child is None and not self._told and post.due <= time.monotonic():
                self._begin(post)

    def _time_left_s(self) -> float | None:
        """How long there is nothing to do but to wait; None: for ever."""
        times = [post.due for post in self._posts() if post.child is None]
        times += [post.child.born + _START_S for post in self._starting() if post.child]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop(self) -> None:
        """Let the workers drain, then the keeper end; kill what does not, each in its time."""
        self._end(self._workers, self._options.drain_s + _END_S)
        self._end([self._keeper] if self._keeper else [], _END_S)

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
        ends = [other.child.end for other in self._posts() if other.child is not None]
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
        if not child.hear():
            # It can say no more; how it ended is for a signal to tell.
            self._selector.unregister(child.end)
        elif child.report is not None and child.report.failure is None:
            log.info("child.ready", child=post.name, pid=child.pid)

    def _posts(self) -> list[Post]:
        return [*([self._keeper] if self._keeper else []), *self._workers]

    def _starting(self) -> list[Post]:
        return [post for post in self._posts() if post.child and not post.child.report]

    def _addresses(self) -> dict[str, object]:
        child = self._workers[0].child
        assert child is not None
        assert child.report is not None
        return dict(child.report.addresses)


def _take_along(data: Path, first: Path) -> None:
    """What a node had in its journal before there were workers, the first of them goes on with."""
    lone, mine = data / JOURNALS, first / JOURNALS
    try:
        if lone.is_dir() and not mine.exists():
            first.mkdir(mode=0o700, exist_ok=True)
            lone.rename(mine)
    except OSError as error:
        raise ConfigError(f"data: {error}") from None
