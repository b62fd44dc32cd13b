"""A crowd of devices: known to the states of push, and connected by processes of the load."""

from __future__ import annotations

import asyncio
import base64
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.load import LoadError
from benchmarks.pushload import Opened, Order, Spec, Taken
from benchmarks.pushservers import PushLayout
from chappe.ids import PrefixedIds
from chappe.push.state.states import States
from chappe.push.state.url import open_states
from chappe.push.state.user import TokenHolder
from chappe.push.token import token_digest

T = TypeVar("T")

_AT_ONCE = 200
_SPARE_DESCRIPTORS = 500
_WEEK_MS = 7 * 24 * 3600 * 1000
# No node of the layout has this number.
_SERVER = 1200


def write_grants(layout: PushLayout, count: int, topic: str, path: Path) -> list[str]:
    """Write clients, tokens and subscriptions straight into the states; their clients. Those, with
    tokens, go into a file, a line each."""

    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    ids = PrefixedIds(_SERVER, wall_ms)
    clients = [ids.next("c") for _ in range(count)]
    tokens = [_token(number) for number in range(count)]
    until_ms = wall_ms() + _WEEK_MS

    async def write(states: States, number: int) -> None:
        client = clients[number]
        await states.user.claim_client(layout.app, f"device-{number}", client)
        holder = TokenHolder(client, until_ms)
        await states.user.put_token(token_digest(tokens[number]), holder)
        await states.topic.subscribe(layout.app, client, [topic], -1, wall_ms(), 100)

    async def write_all() -> None:
        states = open_states(layout.url, path.parent, wall_ms)
        numbers = iter(range(count))

        async def some() -> None:
            for number in numbers:
                await write(states, number)

        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))
        await states.close()

    asyncio.run(write_all())
    pairs = zip(clients, tokens, strict=True)
    path.write_text("\n".join(f"{client} {token}" for client, token in pairs))
    return clients


def _token(number: int) -> str:
    return base64.urlsafe_b64encode(sha256(b"device %d" % number).digest()).decode().rstrip("=")


class Crowd:
    """Processes of the load, and the connections that they hold."""

    def __init__(self, processes: list[subprocess.Popen[str]], opened: list[Opened]) -> None:
        self._processes = processes
        # All at once: as long as the slowest took.
        self.seconds = max(one.seconds for one in opened)
        self.logins_ms = sorted(ms for one in opened for ms in one.logins_ms)
        self.checked = 0

    @property
    def pids(self) -> list[int]:
        """The processes of the load."""
        return [process.pid for process in self._processes]

    def expect(self, shares: list[int], *, acknowledge: bool) -> None:
        """Tell the processes how much each is to take from now on, and how."""
        for process, share in zip(self._processes, shares, strict=True):
            assert process.stdin is not None
            order = Order(share, acknowledge)
            process.stdin.write(msgspec.json.encode(order).decode() + "\n")
            process.stdin.flush()

    def taken(self) -> int:
        """Wait until they have; how many deliveries they had in all. Raises LoadError."""
        found = [_read(process, Taken) for process in self._processes]
        self.checked = sum(one.checked for one in found)
        return sum(one.deliveries for one in found)


@contextmanager
def crowd(
    count: int, processes: int, spec: Spec, advance: Callable[[], None] = lambda: None
) -> Iterator[tuple[Crowd, list[int]]]:
    """Hold connections open while the block runs; with it, how many each process has."""
    shares = [count // processes + (at < count % processes) for at in range(processes)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max(shares) + _SPARE_DESCRIPTORS > soft:
        raise LoadError(f"{max(shares)} connections of a process, and {soft} descriptors")
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryFile("w+") as errors:
        try:
            first = 0
            for share in shares:
                mine = msgspec.structs.replace(spec, first=first, count=share)
                running.append(_start(mine, errors.fileno()))
                first += share
            opened = []
            for process in running:
                opened.append(_read(process, Opened))
                advance()
            yield Crowd(running, opened), shares
        except LoadError as error:
            errors.seek(0)
            raise LoadError(f"{error}: {errors.read()[-500:]}") from None
        finally:
            for process in running:
                process.terminate()
                process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()


def _start(spec: Spec, errors: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "benchmarks.pushload"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=errors, text=True)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec).decode() + "\n")
    process.stdin.flush()
    return process


def _read(process: subprocess.Popen[str], kind: type[T]) -> T:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise LoadError("push: a process of the load has ended")
    return msgspec.json.decode(line, type=kind)
