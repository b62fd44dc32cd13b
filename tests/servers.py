"""Private servers of Debian's packages: on free ports, with folders of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

import pytest

_START_S = 30.0
ZOOKEEPER_JAR = "/usr/share/java/zookeeper.jar"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port that nothing uses now, and that no connection is given while its server is dead."""
    for _ in range(1_000):
        port = SystemRandom().randrange(10_000, 32_000)
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are in use")


class Server:
    """A server process that can be stopped, started again on its port, and held."""

    package: str

    def __init__(self, folder: Path, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = port or free_port()
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
            raise _missing(self.package)
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
        deadline = time.monotonic() + _START_S
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                told = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"{command[0]} did not start:\n{told}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, and wait until its port is free."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
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


def _missing(package: str) -> AssertionError:
    return AssertionError(f"please install Debian's {package}, or run `make packages` as root")


def _talk(port: int, said: bytes) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
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
        assert answer[:1] in (b"+", b":"), answer

    def ask(self, *words: str) -> bytes:
        """Give it a command, and what it answers."""
        encoded = b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
        return _talk(self.port, b"*%d\r\n" % len(words) + encoded)

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

    def __init__(self, folder: Path, name: str, master_port: int) -> None:
        self._name = name
        self._master_port = master_port
        super().__init__(folder)

    def command(self) -> list[str]:
        config = self.folder / "sentinel.conf"
        if not config.exists():
            config.write_text(
                f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
                f"sentinel monitor {self._name} 127.0.0.1 {self._master_port} 2\n"
                f"sentinel down-after-milliseconds {self._name} 500\n"
                f"sentinel failover-timeout {self._name} 2000\n"
            )
        return ["redis-server", str(config), "--sentinel"]

    def ready(self) -> bool:
        return _talk(self.port, b"PING\r\n").startswith(b"+PONG")


class RedisTrio:
    """A master, a replica of it, and three Sentinels that put it in the master's place."""

    name = "queues"

    def __init__(self, folder: Path) -> None:
        self.master = RedisServer(folder / "a")
        of_master = {"replicaof": f"127.0.0.1 {self.master.port}", "repl-diskless-sync-delay": "0"}
        self.replica = RedisServer(folder / "b", of_master)
        self._sentinels = [
            SentinelServer(folder / f"s{at}", self.name, self.master.port) for at in range(3)
        ]
        _await(self._agreed, "the Sentinels do not know each other")

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self._sentinels)
        return f"redis+sentinel://{hosts}/{self.name}"

    def kill(self) -> None:
        """Kill all of them."""
        for server in (*self._sentinels, self.replica, self.master):
            server.kill()

    def _agreed(self) -> bool:
        if b"master_link_status:up" not in self.replica.ask("INFO", "replication"):
            return False
        for sentinel in self._sentinels:
            told = _talk(sentinel.port, b"SENTINEL MASTER %b\r\n" % self.name.encode())
            words = told.split(b"\r\n")
            known = {"num-slaves": b"1", "num-other-sentinels": b"2"}
            for what, count in known.items():
                if words[words.index(what.encode()) + 2] != count:
                    return False
        return True


class RedisCluster:
    """Three servers that share the keys among them."""

    def __init__(self, folder: Path) -> None:
        self.servers = [
            RedisServer(folder / name, {"cluster-enabled": "yes", "cluster-port": str(free_port())})
            for name in "abc"
        ]
        first, *others = self.servers
        slots = (("0", "5460"), ("5461", "10922"), ("10923", "16383"))
        for server, (least, most) in zip(self.servers, slots, strict=True):
            server.tell("CLUSTER", "ADDSLOTSRANGE", least, most)
        for server in others:
            port = server.settings["cluster-port"]
            first.tell("CLUSTER", "MEET", "127.0.0.1", str(server.port), port)
        _await(self._agreed, "the cluster does not come up")

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


def _await(agreed: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _START_S
    while not agreed():
        assert time.monotonic() < deadline, otherwise
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
            raise _missing(self.package)
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
        super().__init__(folder, free_port(socket.SOCK_DGRAM))

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


Kind = TypeVar("Kind", Server, RedisServer, ZooKeeperServer, DnsServer, RedisTrio, RedisCluster)


def _serving(server: Kind) -> Iterator[Kind]:
    yield server
    server.kill()
