"""The crew of `chappe rooms up`: gateways, proxies, brokers and routers, a process each.

    keeper -> watch -> brokers, routers -> proxies -> gateways     (filled from left to right)

Brokers of new partitions come when the registry says that more are wanted, and go when it says so
no more.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import structlog

from chappe.errors import ConfigError
from chappe.node.folder import DataFolder
from chappe.node.gathering import SOCKET as COUNTS
from chappe.node.keeper.keeper import SOCKET
from chappe.node.layout import Layout
from chappe.node.options import NodeOptions
from chappe.node.parts import kept_parts
from chappe.node.post import Post
from chappe.node.reservation import Reservation
from chappe.node.roomswatch import watch
from chappe.node.worker import work, worker_options
from chappe.node.workers import addresses_of, keeper_post

log = structlog.get_logger()

_PORTS = ("port", "http_port", "tcp_port")
# Of who is only watched over HTTP.
_ANY_PORT: Mapping[str, int] = {"http_port": 0}
_NO_PARTITION: Mapping[str, int] = {}


class RoomsCrew:
    """A layout of rooms as processes of one machine."""

    def __init__(self, options: NodeOptions, layout: Layout) -> None:
        rooms = msgspec.structs.replace(options.rooms, independent_routers=layout.independent)
        if options.rooms.partition is not None or options.rooms.router_partition is not None:
            raise ConfigError("rooms.partition: each broker is given its own here")
        if options.roles:
            raise ConfigError("roles: each process is given its own here")
        if options.workers > 1:
            raise ConfigError("workers: say --gateways here")
        if options.registry.startswith("kubernetes:"):
            raise ConfigError("registry: kubernetes:// knows members only, and rooms need more")
        self._options = msgspec.structs.replace(options, rooms=rooms)
        self._layout = layout
        self._kept = kept_parts(options)
        self._secret = secrets.token_bytes(32)
        self.drain_s = options.drain_s
        # Sockets of the parent that no child has a use for.
        self._foreign: list[socket.socket] = []
        # By name: the how manieth that came, which it stays when it comes again.
        self._places: dict[str, int] = {}
        self._watch: Post | None = None
        # Brokers, and routers if they are independent: by partition.
        self._brokers: dict[int, list[Post]] = {}
        self._routers: dict[int, list[Post]] = {}
        # The most of each that there were.
        self._numbers: dict[str, int] = {}
        self._inner: list[Post] = []
        self._proxies: list[Post] = []
        self._gateways: list[Post] = []
        self.stages: list[list[Post]] = []

    def prepare(self, stack: ExitStack) -> None:
        """Make what the processes share; raises ConfigError."""
        options, layout = self._options, self._layout
        data = DataFolder(Path(options.data))
        stack.callback(data.release)
        self._stack = stack
        self._data = data.path
        self._prefix = "" if "registry" in self._kept else f"{options.name or data.name()}-"
        for stale in self._data.glob(f"*/{COUNTS}"):
            stale.unlink(missing_ok=True)
        keeper = keeper_post(options, self._data, self._foreign, stack) if self._kept else None
        life = partial(
            watch, options=options, layout=layout, keeper=self._data / SOCKET, kept=self._kept
        )
        self._watch = Post("watch", life, self._foreign)
        self._gateways = [self._gateway(n) for n in range(1, layout.gateways + 1)]
        self._proxies = [
            self._member(f"proxy-{n}", n, ("proxy",)) for n in range(1, layout.proxies + 1)
        ]
        self._inner = []
        if not layout.independent:
            self._inner += [
                self._member(f"router-{n}", n, ("router",)) for n in range(1, layout.routers + 1)
            ]
        first = [keeper] if keeper is not None else []
        self.stages = [first, [self._watch], self._inner, self._proxies, self._gateways]

    def heard(self, post: Post) -> list[Post]:
        """Have brokers of all partitions that there are to be, and of no others."""
        if post is not self._watch or post.child is None or post.child.report is None:
            return []
        figures = post.child.report.figures
        leaving = self._divide(self._brokers, self._count(figures, ""), "broker")
        if self._layout.independent:
            leaving += self._divide(self._routers, self._count(figures, "router_"), "router")
        for other in leaving:
            self._inner.remove(other)
        return leaving

    def _count(self, figures: Mapping[str, int], prefix: str) -> int:
        """How many partitions there are to be: there are never fewer than there were, though a
        registry that comes back empty may say so for a moment."""
        number = max(self._numbers.get(prefix, 0), figures[f"{prefix}partitions"])
        self._numbers[prefix] = number
        return max(number, figures[f"{prefix}wanted"])

    def _divide(self, divided: dict[int, list[Post]], partitions: int, role: str) -> list[Post]:
        option = "partition" if role == "broker" else "router_partition"
        replicas = self._layout.replicas if role == "broker" else self._layout.routers
        for partition in range(partitions):
            if partition not in divided:
                posts = divided[partition] = [
                    self._member(
                        f"{role}-{partition}-{n}", n, (role,), partition={option: partition}
                    )
                    for n in range(1, replicas + 1)
                ]
                self._inner += posts
        gone = [partition for partition in divided if partition >= partitions]
        return [post for partition in gone for post in divided.pop(partition)]

    def _gateway(self, number: int) -> Post:
        """The place of a gateway, with ports that are its own also while it is being replaced; the
        first one is where a node would be. Raises ConfigError."""
        ports = {}
        for option in _PORTS:
            wanted = getattr(self._options, option) if number == 1 else 0
            reservation = Reservation(self._options.host, wanted)
            self._stack.callback(reservation.close)
            self._foreign.append(reservation.socket)
            ports[option] = reservation.port
        return self._member(f"gateway-{number}", number, ("hub", "gateway"), ports=ports)

    def _member(
        self,
        name: str,
        number: int,
        roles: tuple[str, ...],
        partition: Mapping[str, int] = _NO_PARTITION,
        ports: Mapping[str, int] = _ANY_PORT,
    ) -> Post:
        """The place of a node with these roles."""
        folder = self._data / name
        place = self._places.setdefault(name, len(self._places))
        options = worker_options(self._options, number, folder, f"{self._prefix}{name}")
        rooms = msgspec.structs.replace(options.rooms, **partition)
        if port := self._options.rooms.port:
            rooms = msgspec.structs.replace(rooms, port=port + place)
        options = msgspec.structs.replace(options, roles=roles, rooms=rooms, **ports)
        life = partial(
            work,
            name=name,
            folders=Siblings(self._data, name),
            options=options,
            keeper=self._data / SOCKET,
            kept=self._kept,
            secret=self._secret,
        )
        return Post(name, life, self._foreign)

    def ready(self) -> dict[str, object]:
        """Where the first gateway is reached, then where all are, and who else there is."""
        gateways = [addresses_of(post) for post in self._gateways]
        others = (*self._proxies, *self._inner)
        processes = {post.name: addresses_of(post) for post in others}
        return gateways[0] | {"gateways": gateways, "processes": processes}


class Siblings(Mapping[str, Path]):
    """The folders of all processes that tell what they count, those that came later too."""

    def __init__(self, data: Path, name: str) -> None:
        self._data = data
        self._name = name

    def __getitem__(self, name: str) -> Path:
        return self._data / name

    def __iter__(self) -> Iterator[str]:
        found = {path.parent.name for path in self._data.glob(f"*/{COUNTS}")}
        return iter(sorted(found | {self._name}))

    def __len__(self) -> int:
        return sum(1 for _ in self)
