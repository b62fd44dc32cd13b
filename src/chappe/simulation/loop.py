"""A seeded event loop with virtual time.

Which orders may vary is decided by what asyncio promises. Callbacks given to `call_soon` run in the
order they were given, so that order is kept. Timers due at the same instant have no promised order,
and what the network brings arrives as timers: among those the seed decides. Each callback also
takes a small, seeded time, as callbacks do; that moves chains of callbacks against timers, and so
gives every interleaving that a real, busy loop may show and none that it may not.

Nothing outside is waited for: when nothing is ready, time jumps to the next timer. Tasks and
futures hash by their number, not by their place in memory, because asyncio itself goes through sets
of them (a task group cancels its tasks in such an order).

This relies on private parts of `asyncio.BaseEventLoop` as CPython 3.11 has them.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from chappe.errors import ChappeError
from chappe.simulation.process import Process, process_of

if TYPE_CHECKING:
    from chappe.simulation.network import Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Enough for hours of a small cluster; a run that needs more is going round in circles.
STEPS_MAX = 20_000_000
_CALLBACK_S_MAX = 20e-6
_PURGE_MIN = 1024
_TASKS_SHOWN_MAX = 20


class SimulationError(ChappeError):
    """A simulated run cannot go on."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and the run is not over."""


class Livelock(SimulationError):
    """The run took more steps than it may."""


class CallbackFailed(SimulationError):
    """A callback, a protocol or a task that nobody awaits raised; its error is the cause."""


class NotSimulated(SimulationError):
    """Something was asked for that would reach outside the simulation."""


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in an order, and at times, that follow from a seed alone."""

    network: Network
    # What BaseEventLoop has and its type stubs do not show.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _thread_id: int | None

    def __init__(self, random: Random, *, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._purge_at = _PURGE_MIN
        self._number = 0
        self._steps_max = steps_max
        self._failure: dict[str, Any] | None = None
        self._stopped: dict[Process, None] = {}
        # Whether a run has failed, and only its tasks have to come to an end.
        self.winding_up = False
        self.steps = 0

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time; the seed orders those of one instant."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if len(self._timers) >= self._purge_at:
            self._purge()
        heapq.heappush(self._timers, (when, self._random.random(), self._next_number(), timer))
        return timer

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As `call_soon`; refuses other threads, whose timing no seed decides."""
        if self._thread_id not in (None, threading.get_ident()):
            raise NotSimulated("call_soon_threadsafe: a simulation has no other threads")
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return SimulatedFuture(self._next_number(), self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task; unnamed ones are numbered from the start of this loop."""
        self._check_closed()  # type: ignore[attr-defined]
        number = self._next_number()
        return SimulatedTask(
            number,
            coro,
            loop=self,
            name=f"task-{number}" if name is None else str(name),
            context=context,
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run: whatever a production loop would only log."""
        if self._failure is None:
            self._failure = context

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: object = None,
        local_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect over the simulated network, from the host whose task this is."""
        if ssl or options.get("sock"):
            raise NotSimulated("create_connection: neither TLS nor real sockets are simulated")
        return await self.network.connect(protocol_factory, host, port, local_addr)

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.DatagramProtocol],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """Open a datagram endpoint on the simulated network."""
        if options.get("sock"):
            raise NotSimulated("create_datagram_endpoint: real sockets are not simulated")
        return await self.network.open_datagram(protocol_factory, local_addr, remote_addr)

    def fail_if_failed(self) -> None:
        """Raise CallbackFailed when a callback, or a task that nobody awaited, has failed."""
        if self._failure is not None and not self.winding_up:
            failure, self._failure = self._failure, None
            error = failure.get("exception")
            raise CallbackFailed(f"{failure.get('message')}: {error!r}") from error

    def _run_once(self) -> None:
        ready = self._ready
        self._gather_due()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = process_of(handle._context)  # type: ignore[attr-defined]
            if process is not None and process.stopped:
                process.held.append(handle)
                continue
            self._count_step(handle)
            handle._run()
            self.fail_if_failed()

    def stop_process(self, process: Process) -> None:
        """Let a process do nothing until it is resumed, if ever."""
        process.stopped = True
        self._stopped[process] = None

    def resume_process(self, process: Process) -> None:
        """Let a process go on, beginning with what it should have done meanwhile."""
        process.stopped = False
        self._stopped.pop(process, None)
        self._ready.extend(process.held)
        process.held.clear()

    def wind_up(self) -> None:
        """Go on after a failure, with steps for it, and fail no more."""
        self.winding_up = True
        self.steps = 0

    def resume_all(self) -> None:
        """Let every process go on, crashed ones as well: for the end of a run."""
        for process in list(self._stopped):
            self.resume_process(process)

    def _count_step(self, handle: asyncio.Handle) -> None:
        self._now += self._random.random() * _CALLBACK_S_MAX
        self.steps += 1
        if self.steps > self._steps_max:
            raise Livelock(f"more than {self._steps_max} steps; the last one was {handle!r}")

    def _gather_due(self) -> None:
        """Move due timers behind what is ready; if nothing is, jump to the first one."""
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
        if not self._ready and not self._stopping:
            if not timers:
                raise Deadlock(self._describe_waiting())
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[3])

    def _purge(self) -> None:
        self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
        heapq.heapify(self._timers)
        self._purge_at = max(_PURGE_MIN, 2 * len(self._timers))

    def _describe_waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        shown = [f"\n  {task!r}" for task in tasks[:_TASKS_SHOWN_MAX]]
        return f"at {self._now:.6f} s {len(tasks)} tasks wait for nothing:" + "".join(shown)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so there is nobody to wake."""

    def _process_events(self, event_list: object) -> None:
        """There is no selector that could have events."""


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: SimulatedLoop, *args: Any, **options: Any) -> Any:
        raise NotSimulated(f"{name}: a simulated loop has no threads, sockets, pipes or signals")

    refuse.__name__ = name
    return refuse


for _name in (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "run_in_executor",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_sendall",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(SimulatedLoop, _name, _refusal(_name))
