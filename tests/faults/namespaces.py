"""Machines of their own for processes: namespaces of the network, joined by a bridge, that lose.

Nothing of it is seen outside: bridge and cables are in namespaces as well, and a namespace has no
name. It is there while somebody has it open or runs in it, so it goes when a test process ends,
however that does. Only root makes one; for others the tests of them are skipped.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.servers import free_port, missing

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_TOOLS = {"ip": "iproute2", "iptables": "iptables"}
# Not on the path of everybody who is root.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
_HOSTS_MAX = 250


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _here() -> int:
    """The namespace of the thread that asks."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _made() -> int:
    """A new namespace, in which nobody is; raises OSError."""
    found: list[int | OSError] = []

    def make() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNET))
            found.append(_here())
        except OSError as error:
            found.append(error)

    # A thread that ends with it: so nobody has to go back.
    thread = Thread(target=make, name="unshare")
    thread.start()
    thread.join()
    (namespace,) = found
    if isinstance(namespace, OSError):
        raise namespace
    return namespace


def run(*words: str, told: str = "") -> str:
    """Run a tool of the network where this thread is; raises OSError."""
    tool = shutil.which(words[0], path=_PATH)
    if tool is None:
        raise missing(_TOOLS[words[0]])
    done = subprocess.run(
        (tool, *words[1:]), input=told, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Machine:
    """A namespace with an address on the segment."""

    def __init__(self, namespace: int, address: str = "") -> None:
        self._namespace = namespace
        self.address = address

    @property
    def path(self) -> str:
        """What tools call it by, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._namespace}"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be there for a while, as are processes and threads that are started meanwhile.

        Only this thread is: nothing may be awaited meanwhile.
        """
        before = _here()
        try:
            _check(_libc.setns(self._namespace, _CLONE_NEWNET))
            try:
                yield
            finally:
                _check(_libc.setns(before, _CLONE_NEWNET))
        finally:
            os.close(before)

    def lose(self, share: float) -> None:
        """Lose that share of the datagrams that come here, each by itself; 0: none any more."""
        with self.inside():
            run("iptables", "-w", "-F", "INPUT")
            if share:
                match = ("statistic", "--mode", "random", "--probability", f"{share:.4f}")
                rule = ("-i", "eth0", "-p", "udp", "-m", *match, "-j", "DROP")
                run("iptables", "-w", "-A", "INPUT", *rule)

    def lost(self) -> tuple[int, int]:
        """How many datagrams were lost since then, and how many bytes."""
        with self.inside():
            listed = run("iptables", "-w", "-L", "INPUT", "-v", "-x", "-n").splitlines()
        drops = [line.split() for line in listed if " DROP " in line]
        return sum(int(line[0]) for line in drops), sum(int(line[1]) for line in drops)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._namespace)


def datagrams_overrun(machine: Machine) -> int:
    """How many came faster than processes took them, so that the kernel let them go."""
    with machine.inside():
        lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


class Segment:
    """Machines that reach each other, and nobody else."""

    def __init__(self, network: str = "10.77.0.") -> None:
        # What is claimed by a name is claimed by whoever is in one namespace: not in one of these.
        free_port()
        self._network = network
        self._closing = ExitStack()
        self.machines: list[Machine] = []
        try:
            self._switch = self._machine()
        except PermissionError:
            pytest.skip("only root may make namespaces of the network")
        with ExitStack() as failed:
            failed.callback(self.close)
            with self._switch.inside():
                told = "link add bridge type bridge\nlink set bridge up\nlink set lo up\n"
                run("ip", "-batch", "-", told=told)
            failed.pop_all()

    def _machine(self, address: str = "") -> Machine:
        machine = Machine(_made(), address)
        self._closing.callback(machine.close)
        return machine

    def machine(self, address: str | None = None) -> Machine:
        """One more, at the next address or at that one."""
        number = len(self.machines) + 1
        assert number < _HOSTS_MAX
        machine = self._machine(address or f"{self._network}{number}")
        self.machines.append(machine)
        cable = f"cable{number}"
        with self._switch.inside():
            told = (
                f"link add {cable} type veth peer name eth0 netns {machine.path}\n"
                f"link set {cable} master bridge up\n"
            )
            run("ip", "-batch", "-", told=told)
        with machine.inside():
            told = f"addr add {machine.address}/24 dev eth0\nlink set eth0 up\nlink set lo up\n"
            run("ip", "-batch", "-", told=told)
        return machine

    def lose(self, share: float) -> None:
        """Lose that share of all datagrams that come to any of them."""
        for machine in self.machines:
            machine.lose(share)

    def close(self) -> None:
        """Let go of all of it."""
        self._closing.close()
