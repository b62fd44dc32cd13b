"""The crew of `--workers`: nodes that share their ports, and a keeper of what they share."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from chappe.errors import ConfigError
from chappe.node.child import Life
from chappe.node.folder import DataFolder
from chappe.node.keeper.keeper import SOCKET, keep
from chappe.node.options import JOURNALS, NodeOptions
from chappe.node.parts import kept_parts
from chappe.node.post import Post
from chappe.node.reservation import Reservation
from chappe.node.roles import COMET, check_alone, played
from chappe.node.unix import listen
from chappe.node.worker import work, worker_options


class Workers:
    """A node's options as several workers on one machine."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self.drain_s = options.drain_s
        self.stages: list[list[Post]] = []
        self._workers: list[Post] = []
        if "registry" in kept_parts(options):
            check_alone(played(options.roles))

    def prepare(self, stack: ExitStack) -> None:
        """Make what the children share; raises ConfigError."""
        options = self._options
        data = DataFolder(Path(options.data))
        stack.callback(data.release)
        reserved = {}
        for name in _ports(options):
            port = options.devices_port if name == "comet_port" else getattr(options, name)
            reserved[name] = Reservation(options.host, port)
            stack.callback(reserved[name].close)
        ports = {name: reservation.port for name, reservation in reserved.items()}
        foreign = [reservation.socket for reservation in reserved.values()]
        shared = msgspec.structs.replace(options, workers=1, **ports)
        kept = kept_parts(options)
        keeper = keeper_post(options, data.path, foreign, stack) if kept else None
        names = [f"worker-{number}" for number in range(1, options.workers + 1)]
        folders = {name: data.path / name for name in names}
        _take_along(data.path, folders[names[0]])
        secret = secrets.token_bytes(32)
        for number, name in enumerate(names, 1):
            life = partial(
                work,
                name=name,
                folders=folders,
                options=worker_options(shared, number, folders[name]),
                keeper=data.path / SOCKET,
                kept=kept,
                secret=secret,
            )
            self._workers.append(Post(name, life, foreign))
        self.stages = [[keeper] if keeper else [], self._workers]

    def heard(self, post: Post) -> list[Post]:
        """Workers say that they are ready, and no more."""
        return []

    def ready(self) -> dict[str, object]:
        """Where all of them are reached; their datagrams go elsewhere for each."""
        told = addresses_of(self._workers[0])
        told.pop("rooms", None)
        return told | {"workers": len(self._workers)}


def _ports(options: NodeOptions) -> Iterator[str]:
    """Those that its workers share."""
    if options.has_hub:
        yield from ("port", "tcp_port")
    if COMET in played(options.roles):
        yield "comet_port"
    yield "http_port"


def keeper_post(
    options: NodeOptions, data: Path, foreign: list[socket.socket], stack: ExitStack
) -> Post:
    """The place of the keeper of a data folder, whose socket is then foreign to all others."""
    path = data / SOCKET
    listening = listen(path)
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(listening.close)
    life: Life = partial(
        keep, listening=listening, store=options.store, data=data, options=options.leases
    )
    keeper = Post("keeper", life, tuple(foreign))
    foreign.append(listening)
    return keeper


def addresses_of(post: Post) -> dict[str, object]:
    """Where a child that is ready is reached."""
    child = post.child
    assert child is not None
    assert child.report is not None
    return dict(child.report.addresses)


def _take_along(data: Path, first: Path) -> None:
    """What a node had in its journal before there were workers, the first of them goes on with."""
    lone, mine = data / JOURNALS, first / JOURNALS
    try:
        if lone.is_dir() and not mine.exists():
            first.mkdir(mode=0o700, exist_ok=True)
            lone.rename(mine)
    except OSError as error:
        raise ConfigError(f"data: {error}") from None
