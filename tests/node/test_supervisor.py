"""A supervisor's parts: how soon a place is filled again, whose a port is, what a worker is told.

What it does with processes is seen from outside, in `tests/faults/test_workers.py`.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from chappe.cluster.options import ClusterOptions
from chappe.errors import ClusterError, ConfigError
from chappe.node.child import Child, Report
from chappe.node.parts import kept_parts
from chappe.node.post import Post
from chappe.node.reservation import Reservation
from chappe.node.worker import worker_options
from tests.node.running import options_of


def dies(post: Post, born: float, died: float) -> float:
    """Let a child of this place live and die; give how long the place then stays empty."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        post.child = Child(0, ours, born)
        post.vacate(died)
    return post.due - died


def test_who_dies_at_once_again_and_again_is_replaced_ever_later_up_to_a_bound() -> None:
    post = Post("worker-1", lambda *_: None)
    pauses = [dies(post, born, born) for born in range(10)]
    assert pauses[0] == 0.0
    assert all(later >= sooner for later, sooner in zip(pauses[1:], pauses, strict=False))
    assert 0 < pauses[1] < pauses[2] < pauses[-1] == pauses[-2] <= 10


def test_who_lived_long_is_replaced_at_once() -> None:
    post = Post("worker-1", lambda *_: None)
    for born in range(5):
        dies(post, born, born)
    assert dies(post, 100.0, 1000.0) == 0.0
    assert 0 < dies(post, 1000.0, 1000.0) < 1


def test_a_reserved_port_is_open_to_those_who_share_it_and_to_nobody_else() -> None:
    reservation = Reservation("127.0.0.1", 0)
    address = ("127.0.0.1", reservation.port)
    for _ in range(2):
        with socket.socket() as one, socket.socket() as other, socket.socket() as stranger:
            for sharing in (one, other):
                sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                sharing.bind(address)
                sharing.listen()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                stranger.bind(address)
    # Also while none of them listens, between the death of the last and the birth of the next.
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            stranger.bind(address)
    reservation.close()
    Reservation("127.0.0.1", address[1]).close()


def test_nobody_is_connected_to_a_port_that_is_only_reserved() -> None:
    reservation = Reservation("127.0.0.1", 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reservation.port))
    reservation.close()


@pytest.mark.parametrize("shares", [False, True])
def test_a_port_that_others_listen_on_cannot_be_reserved(shares: bool) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: "):
            Reservation("127.0.0.1", port)


def test_each_worker_has_a_name_a_number_and_a_folder_of_its_own(tmp_path: Path) -> None:
    shared = options_of(tmp_path, number=7)
    workers = [worker_options(shared, n, tmp_path / f"worker-{n}") for n in (1, 2, 3)]
    assert [worker.number for worker in workers] == [7, 8, 9]
    assert [worker.name for worker in workers] == ["worker-1", "worker-2", "worker-3"]
    assert len({worker.data for worker in workers}) == 3


def test_links_of_workers_with_a_registry_of_their_own_stay_on_the_machine(tmp_path: Path) -> None:
    cluster = ClusterOptions(host="0.0.0.0", advertise="here", allow_plaintext=True)
    worker = worker_options(options_of(tmp_path, cluster=cluster), 2, tmp_path)
    assert (worker.cluster.host, worker.cluster.port) == ("127.0.0.1", 0)


def test_workers_of_a_larger_cluster_are_nodes_like_any(tmp_path: Path) -> None:
    cluster = ClusterOptions(secret="file", port=7500)
    shared = options_of(tmp_path, registry="redis://there", cluster=cluster, name="box")
    workers = [worker_options(shared, n, tmp_path / str(n)) for n in (1, 2)]
    assert [worker.name for worker in workers] == ["box-1", "box-2"]
    assert [worker.cluster.port for worker in workers] == [7500, 7501]
    # Names and numbers that nobody gave are for the folder and for the registry to give.
    unnamed = worker_options(
        options_of(tmp_path, registry="redis://", cluster=cluster), 1, tmp_path
    )
    assert (unnamed.name, unnamed.number) == ("", None)


@pytest.mark.parametrize(
    ("registry", "store", "kept"),
    [
        ("memory", "sqlite:", {"registry", "store"}),
        ("memory", "memory", {"registry", "store"}),
        ("memory", "redis://there", {"registry"}),
        ("redis://there", "sqlite:/a/file", {"store"}),
        ("redis://there", "redis://there", set()),
    ],
)
def test_a_keeper_keeps_what_is_embedded(
    tmp_path: Path, registry: str, store: str, kept: set[str]
) -> None:
    cluster = ClusterOptions(secret="file")
    assert kept_parts(options_of(tmp_path, registry=registry, store=store, cluster=cluster)) == kept


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_a_number_of_workers_that_makes_no_sense_is_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match="workers: must be between 1 and 256"):
        options_of(tmp_path, workers=workers)


def test_there_is_a_node_number_for_each_worker(tmp_path: Path) -> None:
    options_of(tmp_path, number=1020, workers=4)
    with pytest.raises(ConfigError, match="number: each worker needs one of its own"):
        options_of(tmp_path, number=1021, workers=4)


def test_what_kept_a_child_from_starting_is_raised_as_it_was_there() -> None:
    assert isinstance(Report(failure="port: no", config=True).error(), ConfigError)
    assert isinstance(Report(failure="registry: away").error(), ClusterError)
    assert str(Report(failure="port: no", config=True).error()) == "port: no"
