"""A keeper in a process of its own, which can be killed and replaced on its socket."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from chappe.node.child import Child, Cord
from chappe.node.keeper.keeper import SOCKET, keep
from chappe.node.keeper.kept import kept_registry
from chappe.node.keeper.line import Line
from chappe.node.unix import listen
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.store.keeper import KeeperStore
from tests.processes import kill

_STOP_TIMEOUT_S = 30


class KeeperProcess:
    """Keepers, one at a time, of one folder; the socket is the test's as it is a supervisor's."""

    def __init__(self, folder: Path, store: str = "memory", lease_s: float = 15.0) -> None:
        self.path = folder / SOCKET
        # Polls are so seldom that a test which needs one would not end: changes must be told.
        self.options = RegistryOptions(lease_s=lease_s, poll_s=600.0)
        self._arguments = [store, str(folder), str(lease_s)]
        self._listening = listen(self.path)
        self._before = 0
        self.start()

    def start(self) -> None:
        """Begin a keeper, or the next one, and wait until it is ready."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_STOP_TIMEOUT_S)
        descriptors = [self._listening.fileno(), theirs.fileno()]
        numbers = [str(number) for number in (*descriptors, self._before)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.node.keeper_process", *numbers, *self._arguments],
            pass_fds=descriptors,
        )
        theirs.close()
        self._before += 1
        self._child = Child(self._process.pid, ours, 0.0)
        with ExitStack() as failed:
            failed.callback(self.kill)
            assert ours.recv(1, socket.MSG_PEEK), "the keeper did not start"
            self._child.hear()
            assert self._child.report is not None
            assert self._child.report.failure is None, self._child.report.failure
            failed.pop_all()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would."""
        kill(self._process)
        self._child.end.close()

    def stop(self) -> None:
        """Let it end, and see that it ends well."""
        if self._process.poll() is None:
            self._child.end.close()
            try:
                assert self._process.wait(_STOP_TIMEOUT_S) == 0
            finally:
                kill(self._process)
        self._listening.close()

    def store(self, timeout_s: float = 5.0) -> KeeperStore:
        """A store on a line of its own."""
        return KeeperStore(Line(self.path, timeout_s=timeout_s))

    def registry(self) -> Registry:
        """A registry on a line of its own."""
        return kept_registry(self.path, self.options)


def _main(listening: str, cord: str, before: str, store: str, folder: str, lease_s: str) -> None:
    keep(
        Cord(socket.socket(fileno=int(cord))),
        int(before),
        listening=socket.socket(fileno=int(listening)),
        store=store,
        data=Path(folder),
        options=RegistryOptions(lease_s=float(lease_s)),
    )


if __name__ == "__main__":
    _main(*sys.argv[1:])
