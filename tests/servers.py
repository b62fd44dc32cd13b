"""Private servers of Debian's packages: on free ports, with folders of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

import pytest

_START_S = 60.0
_KILL_S = 30.0
# How long a server that is well may take to answer: on a busy disk, a sync takes seconds.
_ANSWER_S = 30.0
ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"
# Below those that connections are given.
_FIRST_PORT, _LAST_PORT, _BLOCK = 10_000, 32_000, 800
_given: deque[int] = deque(maxlen=_BLOCK // 2)
_claims: list[socket.socket] = []
_choosing = threading.Lock()


def free_port() -> int:
    """A port that nothing uses now, and that no connection is given while its server is dead."""
    # Nodes are started by threads, together: no two of them may look at one port at a time.
    with _choosing:
        ports = _ports()
        for _ in range(1_000):
            port = SystemRandom().choice(ports)
            if port not in _given and _free(port):
                _given.append(port)
                return port
    raise AssertionError("all ports are in use")


@cache
def _ports() -> range:
    """Ports of this process alone, whoever else runs tests on this machine, until it ends.

    Between the choice of a port and its use, and while its server is dead, nobody else takes it.
    """
    blocks = list(range(_FIRST_PORT, _LAST_PORT, _BLOCK))
    SystemRandom().shuffle(blocks)
    for first in blocks:
        # A name that one process at a time may have, and that is free again when it ends.
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0chappe-tests-{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return range(first, first + _BLOCK)
    raise AssertionError("all ports are other runs'")


def _free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind is socket.SOCK_STREAM:
                # As servers do: connections that ended a minute ago are in nobody's way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


class Server:
    """A server process that can be stopped, started again on its port, and held."""

    package: str

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = self.command()
        if shutil.which(command[0]) is None:
            raise missing(self.package)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # A group of its own: a script may have started the server proper.
                start_new_session=True,
            )
        with ExitStack() as failed:
            failed.callback(self.kill)
            deadline = time.monotonic() + _START_S
            while not self.ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{command[0]} did not start:\n{self.log()}")
                time.sleep(0.02)
            failed.pop_all()

    def log(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Kill it, and wait until its port is free."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.package} cannot be killed:\n{self.log()}") from None
        self._process = None

    def hold(self) -> None:
        """Let it hang: its connections stay, its answers do not come."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)


Kind = TypeVar("Kind", bound=Server)


def missing(package: str) -> AssertionError:
    """What to raise where something is not there that `make packages` installs."""
    return AssertionError(f"please install Debian's {package}, or run `make packages` as root")


def _talk(port: int, said: bytes, limit_s: float = 1.0) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as connection:
            connection.sendall(said)
            return connection.recv(4096)
    except OSError:
        return b""


class RedisServer(Server):
    """A Redis that keeps what it is told, unless it is forgotten or told otherwise."""

    package = "redis-server"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.settings = settings or {}
        super().__init__(folder)

    def command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            **self.settings,
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return ["redis-server", *flags]

    def ready(self) -> bool:
        return _talk(self.port, b"PING\r\n").startswith(b"+PONG")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def restart(self, *, empty: bool = False) -> None:
        """Kill it and start it again, with its data or without."""
        self.kill()
        if empty:
            shutil.rmtree(self.folder / "appendonlydir")
        self.start()

    def tell(self, *words: str) -> None:
        """Give it a command, which must succeed."""
        answer = self.ask(*words)
        assert answer[:1] in (b"+", b":"), f"{words}: {answer!r}\n{self.log()}"

    def ask(self, *words: str) -> bytes:
        """Give it a command, and what it answers."""
        encoded = b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
        return _talk(self.port, b"*%d\r\n" % len(words) + encoded, _ANSWER_S)

    def cut_connections(self) -> None:
        """Break every connection to it."""
        for kind in ("normal", "pubsub"):
            self.tell("CLIENT", "KILL", "TYPE", kind)

    def flush(self) -> None:
        """Let it forget everything while it runs."""
        self.tell("FLUSHALL")


class SentinelServer(Server):
    """A Redis Sentinel that looks after the master of others."""

    package = "redis-server"

    def __init__(self, folder: Path, name: str, master_port: int, down_ms: int) -> None:
        self._name = name
        self._master_port = master_port
        self._down_ms = down_ms
        super().__init__(folder)

    def command(self) -> list[str]:
        config = self.folder / "sentinel.conf"
        if not config.exists():
            config.write_text(
                f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
                f"sentinel monitor {self._name} 127.0.0.1 {self._master_port} 2\n"
                f"sentinel down-after-milliseconds {self._name} {self._down_ms}\n"
                f"sentinel failover-timeout {self._name} 2000\n"
            )
        return ["redis-server", str(config), "--sentinel"]

    def ready(self) -> bool:
        return _talk(self.port, b"PING\r\n").startswith(b"+PONG")


class RedisTrio:
    """A master, a replica of it, and three Sentinels that put it in the master's place.

    They do it after `down_ms` of silence: short where the master is killed, and so long where it
    is not that a busy machine is no reason.
    """

    name = "queues"

    def __init__(self, folder: Path, down_ms: int = 60_000) -> None:
        self._started: list[Server] = []
        with ExitStack() as failed:
            failed.callback(self.kill)
            self.master = self._start(RedisServer(folder / "a"))
            of = {"replicaof": f"127.0.0.1 {self.master.port}", "repl-diskless-sync-delay": "0"}
            self.replica = self._start(RedisServer(folder / "b", of))
            self._sentinels = [
                self._start(SentinelServer(folder / f"s{at}", self.name, self.master.port, down_ms))
                for at in range(3)
            ]
            _await(self._agreed, "the Sentinels do not know each other", self._started)
            failed.pop_all()

    def _start(self, server: Kind) -> Kind:
        self._started.append(server)
        return server

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self._sentinels)
        return f"redis+sentinel://{hosts}/{self.name}"

    def kill(self) -> None:
        """Kill all of them."""
        for server in reversed(self._started):
            server.kill()

    def _agreed(self) -> bool:
        if b"master_link_status:up" not in self.replica.ask("INFO", "replication"):
            return False
        for sentinel in self._sentinels:
            told = _talk(sentinel.port, b"SENTINEL MASTER %b\r\n" % self.name.encode())
            words = told.split(b"\r\n")
            known = {"num-slaves": b"1", "num-other-sentinels": b"2"}
            # One that is busy has said nothing yet.
            if any(_after(words, what.encode()) != count for what, count in known.items()):
                return False
        return True


def _after(words: list[bytes], name: bytes) -> bytes | None:
    """What a list of names and values, each behind its length, has for a name."""
    at = words.index(name) + 2 if name in words else len(words)
    return words[at] if at < len(words) else None


class RedisCluster:
    """Three servers that share the keys among them."""

    def __init__(self, folder: Path) -> None:
        self.servers: list[RedisServer] = []
        with ExitStack() as failed:
            failed.callback(self.kill)
            for name in "abc":
                settings = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
                self.servers.append(RedisServer(folder / name, settings))
            self._join()
            _await(self._agreed, "the cluster does not come up", self.servers)
            failed.pop_all()

    def _join(self) -> None:
        first, *others = self.servers
        slots = (("0", "5460"), ("5461", "10922"), ("10923", "16383"))
        for server, (least, most) in zip(self.servers, slots, strict=True):
            server.tell("CLUSTER", "ADDSLOTSRANGE", least, most)
        for server in others:
            port = server.settings["cluster-port"]
            first.tell("CLUSTER", "MEET", "127.0.0.1", str(server.port), port)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{hosts}"

    def kill(self) -> None:
        """Kill all of them."""
        for server in self.servers:
            server.kill()

    def _agreed(self) -> bool:
        told = [server.ask("CLUSTER", "INFO") for server in self.servers]
        wanted = (b"cluster_state:ok", b"cluster_known_nodes:3", b"cluster_size:3")
        return all(word in one for one in told for word in wanted)


def _await(agreed: Callable[[], bool], otherwise: str, servers: Sequence[Server]) -> None:
    deadline = time.monotonic() + _START_S
    while not agreed():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{server.folder}:\n{server.log()}" for server in servers)
            raise AssertionError(f"{otherwise}:\n{logs}")
        time.sleep(0.05)


class ZooKeeperServer(Server):
    """A ZooKeeper alone, with short ticks: so that sessions can be short too."""

    package = "zookeeper"
    tick_ms = 200

    def command(self) -> list[str]:
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={self.tick_ms}\ndataDir={self.folder}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=ruok\nmaxSessionTimeout=60000\n"
        )
        (self.folder / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
        )
        if not Path(ZOOKEEPER_JAR).exists():
            raise missing(self.package)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        small = ["-Xmx128m", "-XX:TieredStopAtLevel=1"]
        return ["java", *small, "-cp", f"{self.folder}:{ZOOKEEPER_JAR}", main, str(config)]

    def ready(self) -> bool:
        return _talk(self.port, b"ruok") == b"imok"

    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Kill it and start it again, with its data."""
        self.kill()
        self.start()


class DnsServer(Server):
    """A DNS server that knows what it is told."""

    package = "dnsmasq-base"

    def __init__(self, folder: Path) -> None:
        self._hosts = folder / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        self._hosts.write_text("")
        super().__init__(folder)

    def command(self) -> list[str]:
        dnsmasq = shutil.which("dnsmasq") or "/usr/sbin/dnsmasq"
        return [
            dnsmasq,
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file",
            "--user=",
            "--group=",
            f"--port={self.port}",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--no-resolv",
            "--no-hosts",
            f"--addn-hosts={self._hosts}",
            "--local=/svc/",
        ]

    def ready(self) -> bool:
        return self._ask("ready.svc") is not None

    def tell(self, name: str, addresses: list[str]) -> None:
        """Let a name have these addresses, and no others, from when it answers so."""
        aside = self._hosts.with_suffix(".new")
        aside.write_text("".join(f"{address} {name}\n" for address in addresses))
        aside.rename(self._hosts)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _ask(self, name: str) -> bytes | None:
        labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
        question = b"\0\7\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0.2)
            try:
                asking.connect(("127.0.0.1", self.port))
                asking.send(question)
                return asking.recv(512)
            except OSError:
                return None


Fixture = TypeVar("Fixture", RedisServer, ZooKeeperServer, DnsServer, RedisTrio, RedisCluster)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for many tests: each takes a prefix or a database of its own."""
    yield from _serving(RedisServer(tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="session")
def redis_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisTrio]:
    """A Redis with a replica under Sentinels for many tests: each takes a prefix of its own."""
    yield from _serving(RedisTrio(tmp_path_factory.mktemp("trio")))


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A Redis Cluster for many tests: each takes a prefix of its own."""
    yield from _serving(RedisCluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for many tests: each takes a path of its own."""
    yield from _serving(ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")))


@pytest.fixture(scope="session")
def dns_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DnsServer]:
    """A DNS server for many tests: each takes a name of its own."""
    yield from _serving(DnsServer(tmp_path_factory.mktemp("dns")))


def _serving(server: Fixture) -> Iterator[Fixture]:
    yield server
    server.kill()
