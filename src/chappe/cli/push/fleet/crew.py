"""A crew: fleets of several processes, which say each second what they have seen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from chappe.cli.push.fleet.tally import Tally
from chappe.errors import ChappeError

_END_S = 30.0
_decoder = msgspec.json.Decoder(Tally)


class Crew:
    """Processes of this program; each ends when what it reads from ends, so with this one."""

    def __init__(self, count: int, processes: int) -> None:
        # As even as can be.
        self._shares = [count // processes + (k < count % processes) for k in range(processes)]
        self._tallies = [Tally(devices=share) for share in self._shares]
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._stopping = False
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self, arguments: Sequence[str]) -> None:
        """Start them, each with its share of devices."""
        first = 0
        for at, share in enumerate(self._shares):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from chappe.cli.main import main; main()",
                *arguments,
                *("--count", str(share), "--first", str(first), "--feed"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # Ctrl-C is for this process, which ends them.
                start_new_session=True,
            )
            first += share
            self._processes.append(process)
            self._readers.append(asyncio.create_task(self._read(at, process)))

    def tally(self) -> Tally:
        """What all of them have seen."""
        total = Tally()
        for tally in self._tallies:
            total.merge(tally)
        return total

    async def stop(self) -> None:
        """End them, and hear the last of what they have seen."""
        self._stopping = True
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        if self._readers:
            await asyncio.wait(self._readers, timeout=_END_S)
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _read(self, at: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._tallies[at] = _decoder.decode(line)
        code = await process.wait()
        if not self._stopping and not self.failure.done():
            self.failure.set_exception(ChappeError(f"process {at + 1} ended with code {code}"))
