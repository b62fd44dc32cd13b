"""Time, randomness, files, threads and sockets come from outside, except where they are owned.

Whatever reads the machine's clock, draws its randomness or opens a socket by itself cannot be run
from a seed. This walks the source of every core package and names each place that does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# Whole modules: nothing of them may be called. A trailing dot means all that is inside.
FORBIDDEN = {
    "time.": "time is passed in as a Clock, or is the loop's",
    "secrets.": "randomness is passed in",
    "threading.": "the core has one thread",
    "_thread.": "the core has one thread",
    "multiprocessing.": "processes are the node's",
    "subprocess.": "processes are the node's",
    "concurrent.futures.": "the core has one thread",
    "socket.": "connections come from a Listen or a dial",
    "select.": "the loop waits",
    "selectors.": "the loop waits",
    "os.urandom": "randomness is passed in",
    "os.getrandom": "randomness is passed in",
    "os.open": "files belong to stores and logs",
    "io.open": "files belong to stores and logs",
    "open": "files belong to stores and logs",
    "uuid.uuid1": "randomness is passed in",
    "uuid.uuid4": "randomness is passed in",
    "datetime.datetime.now": "time is passed in as a Clock",
    "datetime.datetime.utcnow": "time is passed in as a Clock",
    "datetime.datetime.today": "time is passed in as a Clock",
    "datetime.date.today": "time is passed in as a Clock",
    "asyncio.open_connection": "connections come from a Listen or a dial",
    "asyncio.open_unix_connection": "connections come from a Listen or a dial",
    "asyncio.start_server": "connections come from a Listen or a dial",
    "asyncio.start_unix_server": "connections come from a Listen or a dial",
    "asyncio.to_thread": "the core has one thread",
    "asyncio.get_event_loop": "the loop is passed in or running",
    "asyncio.new_event_loop": "the loop is passed in or running",
    "asyncio.run": "the loop is passed in or running",
}
# Methods, whatever they are called on.
FORBIDDEN_METHODS = {
    "run_in_executor": "the core has one thread",
    "create_server": "connections come from a Listen",
    "read_bytes": "files belong to stores and logs",
    "read_text": "files belong to stores and logs",
    "write_bytes": "files belong to stores and logs",
    "write_text": "files belong to stores and logs",
}
# `random.Random` is a generator that was seeded by somebody; the module's functions are not.
RANDOM_ALLOWED = {"random.Random"}
# The files that own the real thing, each with what it owns.
OWNERS = {
    "chappe/clock.py": {"time."},
    "chappe/edge/acceptor.py": {"socket."},
    # Polls what an acceptor has accepted; who is simulated has transports.
    "chappe/edge/device/polled.py": {"socket.", "select."},
    # Reads key files once, when it is made.
    "chappe/access/token.py": {"read_bytes"},
    # Reads the cluster's secret once, for whoever wires a mesh.
    "chappe/cluster/options.py": {"read_bytes"},
    # Reads secret files once, when it is made.
    "chappe/endpoints/callback.py": {"read_bytes"},
    # Chooses the machine's own randomness where its caller gives none.
    "chappe/client/connecting.py": {"random.SystemRandom"},
    "chappe/device/device.py": {"random.SystemRandom"},
    # A device's own small files.
    "chappe/device/cache.py": {"os.open", "read_bytes"},
    # Knows its own thread, to refuse others.
    "chappe/simulation/loop.py": {"threading.get_ident"},
    # Kazoo has threads, and waits for them when it stops.
    "chappe/registry/kazoo_client.py": {"run_in_executor"},
    # The threads that give other threads a loop to call.
    "chappe/blocking/background.py": {"threading.", "concurrent.futures.", "asyncio.run"},
    "chappe/blocking/client.py": {"threading."},
    # The threads in which a service's handlers may block.
    "chappe/blocking/handler.py": {"concurrent.futures.", "run_in_executor"},
    # The one thread that waits for the disk.
    "chappe/store/database.py": {"threading."},
    # The threads that wait for a journal's disk, and its files.
    "chappe/log/disk.py": {"threading."},
    "chappe/log/fs.py": {"os.open"},
    # Waits, in a process of its own, for others that copy the same journal.
    "chappe/log/parquet/lock.py": {"os.open"},
    # Asks the machine for its Java, and reads what one says that was started, in another thread.
    "chappe/pipeline/java.py": {"subprocess.", "threading.", "open"},
    # Which steps of a run are done; which options the tables beside them were made with.
    "chappe/pipeline/notes.py": {"read_text"},
    "chappe/pipeline/options.py": {"read_bytes"},
    # Files that are not whole yet have names that are nobody else's.
    "chappe/pipeline/parts.py": {"uuid.uuid4"},
    # What was written is on the disk before what says that it counts.
    "chappe/pipeline/syncing.py": {"os.open"},
    # Asks whether a Spark answers; stops one from another thread than the one that is in the midst
    # of talking to it.
    "chappe/pipeline/session.py": {"socket.", "threading."},
    # Hears of batches in a thread of Spark's.
    "chappe/pipeline/stream.py": {"threading."},
    # Holds a lock that goes with its process, by a name that is nobody else's.
    "chappe/pipeline/tether.py": {"os.open", "uuid.uuid4", "write_text", "read_bytes"},
}
# The layers above the core: they wire the real machine to it.
OUTSIDE = ("chappe/node/", "chappe/cli/")


class Calls(ast.NodeVisitor):
    """Finds every use of an imported name, under its full name, and every method call."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.found: list[tuple[int, str, str]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self._names[name.asname or name.name.split(".")[0]] = (
                name.name if name.asname else name.name.split(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name in node.names:
            self._names[name.asname or name.name] = f"{node.module}.{name.name}"

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
            attribute = node.func.attr
            self.found.append((node.lineno, attribute, FORBIDDEN_METHODS[attribute]))
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            self.found.append((node.lineno, "open", FORBIDDEN["open"]))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._judge(node.lineno, self._full_name(node))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        full = self._names.get(node.id)
        if full is not None and "." in full:
            self._judge(node.lineno, full)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation calls nothing."""

    def _full_name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        return self._names.get(node.id, "") if isinstance(node, ast.Name) else ""

    def _judge(self, line: int, name: str) -> None:
        if name.startswith("random.") and name not in RANDOM_ALLOWED:
            self.found.append((line, name, "randomness is passed in"))
        for forbidden, reason in FORBIDDEN.items():
            inside = forbidden.endswith(".") and name.startswith(forbidden)
            # Constants (`errno`-like, all capitals) and exceptions do nothing by themselves.
            if (inside and not name.rsplit(".", 1)[1].isupper()) or name == forbidden:
                self.found.append((line, name, reason))


def forbidden_calls(source: str, owned: set[str] = frozenset()) -> Iterator[str]:  # type: ignore[assignment]
    """Name each forbidden call in a module's source, except what it owns."""
    calls = Calls()
    calls.visit(ast.parse(source))
    for line, name, reason in calls.found:
        if not any(name == own or (own.endswith(".") and name.startswith(own)) for own in owned):
            yield f"line {line}: {name}: {reason}"


def core_files() -> list[str]:
    names = [str(path.relative_to(SOURCE)) for path in sorted(SOURCE.glob("chappe/**/*.py"))]
    return [name for name in names if not name.startswith(OUTSIDE)]


@pytest.mark.parametrize("name", core_files())
def test_the_core_gets_time_chance_and_connections_from_outside(name: str):
    found = list(forbidden_calls((SOURCE / name).read_text(), OWNERS.get(name, set())))
    assert not found, f"{name}\n" + "\n".join(found)


def test_every_owner_exists_and_needs_what_it_owns():
    for name, owned in OWNERS.items():
        if not (SOURCE / name).exists():
            continue
        found = "\n".join(forbidden_calls((SOURCE / name).read_text()))
        unused = [own for own in owned if own not in found]
        assert not unused, f"{name} does not need {unused}"


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as clock\nclock.monotonic()",
        "from time import time_ns\ntime_ns()",
        "import time\nnow = time.monotonic",
        "import random\nrandom.random()",
        "from random import choice\nchoice([1])",
        "import os\nos.urandom(8)",
        "from os import urandom\nself.entropy = urandom",
        "import uuid\nuuid.uuid4()",
        "import secrets\nsecrets.token_hex()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "from datetime import date\ndate.today()",
        "open('x')",
        "with open('x') as f: pass",
        "from pathlib import Path\nPath('x').read_text()",
        "import threading\nthreading.Thread(target=f)",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()",
        "import asyncio\nasyncio.open_connection('h', 1)",
        "import asyncio\nasyncio.start_server(f, 'h', 1)",
        "import asyncio\nasyncio.get_event_loop()",
        "import asyncio\nasyncio.to_thread(f)",
        "loop.run_in_executor(None, f)",
        "loop.create_server(f)",
        "import socket\nsocket.socket()",
    ],
)
def test_a_forbidden_call_is_found(source: str):
    assert list(forbidden_calls(source))


@pytest.mark.parametrize(
    "source",
    [
        "from random import Random\nRandom(7)",
        "import random\ndef f(rng: random.Random): rng.random()",
        "clock.monotonic()",
        "import asyncio\nasyncio.get_running_loop().time()",
        "import asyncio\nasyncio.sleep(1)",
        "sessions.open('x')",
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
        "import socket\nsocket.TCP_NODELAY",
        "time = 3\ntime + 1",
    ],
)
def test_a_harmless_call_is_not(source: str):
    assert not list(forbidden_calls(source))
