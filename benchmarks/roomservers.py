"""Servers for rooms: Chappe's roles as processes of their own, and Redis in the same shape.

Chappe: publisher (a gateway) -> proxy -> broker -> 4 gateways -> members
Redis:  publisher             -> master          -> 4 replicas -> subscribers
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.server import (
    Server,
    ServerError,
    family,
    start_chappe,
    start_redis,
    start_replica,
)

_FOLLOW_S = 20.0
_PAUSE_S = 0.05
# Processes find each other, and links come up, after the first of them is ready.
_SETTLE_S = 1.0


class RoomLayout:
    """The processes of `chappe rooms up`: one target to the load, whose receivers take turns."""

    name = "chappe"

    def __init__(self, chappe: str, gateways: int, *, more: str = "") -> None:
        command = chappe.split(maxsplit=1)[0]
        layout = f"--gateways {gateways} --proxies 1 --routers 1 --replicas 1"
        self._server = server = start_chappe(f"{command} rooms up --dev {layout} {more}")
        said = server.addresses["gateways"]
        self.tcp_ports = [_port(one["tcp"]) for one in said]
        ports = {"packed-room": self.tcp_ports, "json-room": [_port(g["websocket"]) for g in said]}
        self.ports: Mapping[str, str] = {name: _spread(each) for name, each in ports.items()}
        for each in ports.values():
            server.greet(*each)
        time.sleep(_SETTLE_S)
        server.rest()
        self._roles = _roles(server)

    def pids(self) -> list[int]:
        """Every process, those too that keep the registry and the store."""
        return self._server.pids()

    def roles(self) -> Mapping[str, list[int]]:
        """The processes of each role; who keeps registry and store is `others`."""
        return self._roles

    def settle(self) -> None:
        """Wait until all connections of the load are let go."""
        self._server.settle()

    def stop(self) -> None:
        """Stop them all."""
        self._server.stop()


class RedisTree:
    """A Redis and so many that follow it, which have the subscribers; none: it has them itself."""

    name = "redis"

    def __init__(self, replicas: int) -> None:
        with ExitStack() as stack:
            self._servers = [start_redis()]
            stack.callback(self._servers[0].stop)
            for _ in range(replicas):
                self._servers.append(start_replica(self._servers[0]))
                stack.callback(self._servers[-1].stop)
            self._await(replicas)
            self._stack = stack.pop_all()
        ports = [int(server.ports["redis"]) for server in self._servers]
        self.ports: Mapping[str, str] = {"redis": _spread(ports[1:] or ports, ports[0])}

    def pids(self) -> list[int]:
        """All of them."""
        return [pid for server in self._servers for pid in server.pids()]

    def settle(self) -> None:
        """Wait until each has let go of the load's connections."""
        for server in self._servers:
            server.settle()

    def stop(self) -> None:
        """Stop them all."""
        self._stack.close()

    def _await(self, replicas: int) -> None:
        """See that all follow, and know what they hold at rest from then on."""
        end = time.monotonic() + _FOLLOW_S
        while _followers(int(self._servers[0].ports["redis"])) < replicas:
            if time.monotonic() > end:
                raise ServerError("redis: replicas do not follow")
            time.sleep(_PAUSE_S)
        for server in self._servers:
            server.rest()


def _followers(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), _FOLLOW_S) as asking:
        asking.sendall(b"INFO replication\r\n")
        return len(re.findall(rb"slave\d+:.*state=online", asking.recv(65_536)))


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _spread(receiving: Sequence[int], sending: int | None = None) -> str:
    return f"{'+'.join(map(str, receiving))},{sending or receiving[0]}"


def _roles(server: Server) -> Mapping[str, list[int]]:
    """Who does what, by the port for datagrams that each process has."""
    said: Mapping[str, Any] = server.addresses
    role_of = {_port(one["rooms"]): "gateway" for one in said["gateways"]}
    role_of |= {
        _port(one["rooms"]): name.partition("-")[0] for name, one in said["processes"].items()
    }
    bound = _bound()
    roles: dict[str, list[int]] = {role: [] for role in (*role_of.values(), "others")}
    for pid in family(server.process.pid):
        held = {bound[inode] for inode in _sockets(pid) if inode in bound}
        roles[next((role_of[port] for port in held if port in role_of), "others")].append(pid)
    return roles


def _bound() -> dict[str, int]:
    """The port of each socket for datagrams, by its number as a file."""
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {each[9]: int(each[1].rpartition(":")[2], 16) for each in fields}


def _sockets(pid: int) -> list[str]:
    links = (str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
    return [link[len("socket:[") : -1] for link in links if link.startswith("socket:[")]
