"""Copying: the process that turns sealed segments into Parquet, started, fed and replaced.

    a segment is sealed --> the oldest that waits is ordered --> copied: it may go
                                  |          ^
                                  v          | after a while, growing
                            it failed, or the process died

One segment is ordered at a time. The process lives while there is something to copy; what was not
copied when the node ended is found in the journal at the next start.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chappe.errors import ConfigError, StorageError
from chappe.log.journal import Journal
from chappe.node.options import ParquetOptions
from chappe.queues.parquet.copies import Copies
from chappe.queues.parquet.order import Copied, Order, decode_copied, encode_line

log = structlog.get_logger()

FOLDER = "parquet"
# Told the folder, and then orders.
COMMAND = (sys.executable, "-P", "-m", "chappe.queues.parquet")
# Far more than a segment takes, on a machine that is busy.
_COPY_S = 600.0
# How long the process is kept with nothing to do: it holds much memory, and starts in a second.
_IDLE_S = 30.0
_END_S = 5.0
_RETRY_S = 1.0
_RETRY_MAX_S = 60.0
# What is sealed is committed a moment later, which nobody tells.
_LOOK_S = 1.0
# A segment that the process died of so often would end the next one too.
_DEATHS_MAX = 5


class _Died(Exception):
    """The process ended before it answered."""


class _Broker:
    """What is to be copied of one broker, and when to try again."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.due = 0.0
        self.failures = 0
        self.deaths = 0


class Copying:
    """Copies the journals that this node serves."""

    def __init__(
        self, options: ParquetOptions, data: Path, command: Sequence[str] = COMMAND
    ) -> None:
        self._options = options
        self._command = command
        self._folder = Path(options.folder) if options.folder else data / FOLDER
        self._loop = asyncio.get_running_loop()
        self._brokers: dict[str, _Broker] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.copied = 0
        self.damaged = 0
        self.missed = 0

    def start(self) -> None:
        """Begin, if it is switched on; raises ConfigError when it cannot."""
        if not self._options.enabled:
            return
        if find_spec("pyarrow") is None:
            raise ConfigError("parquet.enabled: needs pyarrow: pip install 'chappe[parquet]'")
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"parquet.folder: {error}") from None
        self._task = self._loop.create_task(self._run())

    def take(self, broker: str, journal: Journal) -> None:
        """Copy a broker's journal from now on, from its oldest segment."""
        known = self._brokers.get(broker)
        if self._task is None or (known is not None and known.copies.journal is journal):
            return
        self.let_go(broker)
        copies = Copies(broker, journal, self._options.waiting_bytes_max)
        self._brokers[broker] = _Broker(copies)
        journal.sealed = self._sealed
        self._wake.set()

    def let_go(self, broker: str) -> None:
        """Copy a broker's journal no more: another node serves it."""
        found = self._brokers.pop(broker, None)
        if found is not None:
            self.missed += found.copies.missed

    async def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._end()

    def metrics(self) -> Iterator[Metric]:
        """What there is to tell of copies; nothing if they are switched off."""
        if self._task is None:
            return
        waiting = GaugeMetricFamily(
            "chappe_parquet_waiting", "Sealed segments that are not copied yet", labels=("broker",)
        )
        for name, broker in self._brokers.items():
            waiting.add_metric((name,), broker.copies.waiting)
        missed = self.missed + sum(each.copies.missed for each in self._brokers.values())
        yield waiting
        yield CounterMetricFamily(
            "chappe_parquet_segments", "Segments that were copied to Parquet", self.copied
        )
        yield CounterMetricFamily(
            "chappe_parquet_missed", "Segments that went, or were given up, uncopied", missed
        )
        yield CounterMetricFamily(
            "chappe_parquet_damaged", "Places in segments that could not be copied", self.damaged
        )

    def _sealed(self, path: str, base: int) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            chosen = self._choose()
            if chosen is None:
                await self._rest()
            else:
                await self._copy(*chosen)

    def _choose(self) -> tuple[_Broker, Order] | None:
        now = self._loop.time()
        for name, broker in self._brokers.items():
            if broker.due <= now and (order := broker.copies.next()) is not None:
                # The next time it is the others' turn.
                self._brokers[name] = self._brokers.pop(name)
                return broker, order
        return None

    async def _rest(self) -> None:
        """Wait for something to do; end the process when that takes long."""
        waiting = [each.due for each in self._brokers.values() if each.copies.waiting]
        left_s = max(_LOOK_S, min(waiting) - self._loop.time()) if waiting else _IDLE_S
        try:
            async with asyncio.timeout(left_s):
                await self._wake.wait()
        except TimeoutError:
            if not waiting:
                await self._end()
                await self._wake.wait()

    async def _copy(self, broker: _Broker, order: Order) -> None:
        died = False
        try:
            copied = await self._ask(order)
        except (_Died, OSError) as error:
            copied, died = Copied(error=str(error)), True
        if self._brokers.get(order.broker) is not broker:
            return
        if copied.error is not None:
            self._failed(broker, order, copied.error, died)
            return
        broker.failures = broker.deaths = 0
        if not copied.before:
            self.copied += 1
            self.damaged += copied.damaged
            if copied.damaged:
                log.warning("parquet.damaged", segment=order.path, places=copied.damaged)
        broker.copies.copied(order)

    def _failed(self, broker: _Broker, order: Order, reason: str, died: bool) -> None:
        wait_s = min(_RETRY_MAX_S, _RETRY_S * 2.0 ** min(broker.failures, 10))
        broker.failures += 1
        broker.due = self._loop.time() + wait_s
        log.error("parquet.failed", segment=order.path, reason=reason, again_s=wait_s)
        broker.deaths = broker.deaths + 1 if died else 0
        if broker.deaths >= _DEATHS_MAX:
            broker.copies.pass_over(order, reason)
            broker.deaths = 0

    async def _ask(self, order: Order) -> Copied:
        """Have a segment copied; raises _Died, and OSError when no process can be started."""
        process = await self._living()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode_line(order) + b"\n")
        try:
            async with asyncio.timeout(_COPY_S):
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self._end()
            raise _Died(f"no answer within {_COPY_S:.0f} s") from None
        except ConnectionError:
            line = b""
        try:
            return decode_copied(line)
        except msgspec.MsgspecError:
            # One that has died says how, if it is left to.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await process.wait()
            status = await self._end()
            raise _Died(f"the process ended with {status}") from None

    async def _living(self) -> asyncio.subprocess.Process:
        """The process, or a new one if it died with nothing to do."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            return process
        await self._end()
        # In a session of its own, so that a Ctrl-C at a terminal is the node's alone.
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            str(self._folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self._process

    async def _end(self) -> int | None:
        """End the process if there is one; its exit status.

        Whoever cancels this leaves a process that is still known, and can be ended again.
        """
        process = self._process
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        for end in (process.terminate, process.kill):
            with suppress(ProcessLookupError):
                end()
            try:
                async with asyncio.timeout(_END_S):
                    status = await process.wait()
            except TimeoutError:
                continue
            self._process = None
            return status
        self._process = None
        raise StorageError("the process that copies to Parquet cannot be ended")
