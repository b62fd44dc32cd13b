"""What a node does for rooms, as its options say it; what makes no sense is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chappe.cluster.options import ClusterOptions
from chappe.errors import ConfigError
from chappe.node.options import load_options
from chappe.node.roles import ALL, check_alone, kinds_of, played
from chappe.node.rooming import reached_at
from chappe.node.worker import worker_options
from chappe.rooms.options import RoomsOptions
from chappe.wire.rooms import RoleKind
from tests.node.running import options_of

DEV = {"dev": True}
SHARED = DEV | {"registry": "redis://there", "cluster": {"secret": "file"}}


@pytest.mark.parametrize(
    ("file", "environment", "flags", "roles"),
    [
        ("", {}, {}, ALL),
        ('roles = ["proxy", "broker"]', {}, {}, ("proxy", "broker")),
        ('roles = ["proxy"]', {"CHAPPE_ROLES": "hub, gateway"}, {}, ("hub", "gateway")),
        ("", {"CHAPPE_ROLES": "hub"}, {"roles": "router,"}, ("router",)),
    ],
)
def test_roles_are_a_list_in_a_file_and_text_with_commas_elsewhere(
    tmp_path: Path, file: str, environment: dict[str, str], flags: dict[str, str], roles: Any
) -> None:
    path = tmp_path / "chappe.toml"
    path.write_text(f"dev = true\n{file}\n")
    assert played(load_options(path, environment, flags).roles) == set(roles)


def test_rooms_have_a_section_and_variables_of_the_environment() -> None:
    environment = {"CHAPPE_ROOMS_PORT": "7500", "CHAPPE_ROOMS_PARTITION": "3"}
    rooms = load_options(None, environment, DEV | {"rooms.beat_s": 0.5}).rooms
    assert (rooms.port, rooms.partition, rooms.beat_s) == (7500, 3, 0.5)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (DEV | {"roles": "hub,king"}, "roles: 'king' is none of hub, proxy"),
        (DEV | {"roles": "gateway,broker"}, "roles: a gateway has clients"),
        (DEV | {"rooms": {"host": "10.0.0.1"}}, "rooms.host: 10.0.0.1 can be reached"),
        (DEV | {"rooms": {"host": "0.0.0.0"}}, "rooms.advertise"),
        (DEV | {"rooms": {"colour": 1}}, "colour"),
        (DEV | {"roles": "hub", "rooms": {"partition": 0}}, "rooms.partition: is a broker's"),
        (DEV | {"rooms": {"router_partition": 0}}, "rooms.router_partition: only independent"),
        (
            DEV | {"roles": "broker", "rooms": {"router_partition": 0}},
            "rooms.router_partition: is a router's",
        ),
        (DEV | {"roles": "broker", "workers": 2}, "workers: share the ports of clients"),
        (
            SHARED | {"registry": "kubernetes://a.b.svc", "roles": "hub,gateway"},
            "roles: kubernetes:// knows members only",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_the_name_of_its_option(
    values: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_options(None, {}, values)
    assert named in str(refused.value)


def test_a_node_without_clients_needs_no_key_for_their_tokens() -> None:
    shared = {name: value for name, value in SHARED.items() if name != "dev"}
    assert not load_options(None, {}, shared | {"roles": "broker"}).has_hub
    with pytest.raises(ConfigError, match=r"access\.keys"):
        load_options(None, {}, shared | {"roles": "hub,broker"})


def test_under_kubernetes_a_node_of_no_given_roles_is_taken() -> None:
    assert load_options(None, {}, SHARED | {"registry": "kubernetes://a.b.svc"}).has_hub


@pytest.mark.parametrize("roles", [{"proxy"}, {"hub", "gateway"}, set(ALL) - {"router"}])
def test_who_is_alone_has_all_roles_or_a_hub_only(roles: set[str]) -> None:
    with pytest.raises(ConfigError, match="roles: without a registry"):
        check_alone(frozenset(roles))
    check_alone(frozenset(ALL))
    check_alone(frozenset({"hub"}))


def test_a_hub_publishes_whatever_else_it_does() -> None:
    assert kinds_of({"hub"}) == {RoleKind.PUBLISHER}
    assert kinds_of({"broker"}) == {RoleKind.BROKER}
    assert kinds_of(ALL) == set(RoleKind)


def test_datagrams_of_workers_with_a_registry_of_their_own_stay_on_the_machine(
    tmp_path: Path,
) -> None:
    rooms = RoomsOptions(host="10.0.0.1", allow_plaintext=True, advertise="here", port=7600)
    worker = worker_options(options_of(tmp_path, rooms=rooms), 2, tmp_path)
    assert (worker.rooms.host, worker.rooms.port, worker.rooms.advertise) == ("127.0.0.1", 0, "")


def test_workers_of_a_larger_cluster_take_datagrams_at_ports_of_their_own(tmp_path: Path) -> None:
    cluster = ClusterOptions(secret="file")
    for port, ports in ((None, [7404, 7405]), (7600, [7600, 7601]), (0, [0, 0])):
        rooms = RoomsOptions(port=port)
        shared = options_of(tmp_path, registry="redis://there", cluster=cluster, rooms=rooms)
        workers = [worker_options(shared, n, tmp_path / str(n)) for n in (1, 2)]
        assert [reached_at(worker).port for worker in workers] == ports


def test_datagrams_go_where_links_do_if_nothing_is_said(tmp_path: Path) -> None:
    def reached(cluster: ClusterOptions, **rooms: Any) -> tuple[str, int | None, str]:
        found = reached_at(options_of(tmp_path, cluster=cluster, rooms=RoomsOptions(**rooms)))
        return found.host, found.port, found.advertise

    outside = ClusterOptions(host="10.0.0.1", port=7503, advertise="box", allow_plaintext=True)
    assert reached(outside) == ("10.0.0.1", 7504, "box")
    assert reached(outside, advertise="other", port=0) == ("10.0.0.1", 0, "other")
    given = {"host": "10.0.0.2", "allow_plaintext": True}
    assert reached(outside, **given) == ("10.0.0.2", 7504, "")
    assert reached(ClusterOptions(port=0)) == ("127.0.0.1", 0, "")
