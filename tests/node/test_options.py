"""Options: file, environment and flags, in that order; what makes no sense is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chappe.errors import ConfigError
from chappe.node.options import NodeOptions, load_options

FILE = """
dev = true
port = 1
http_port = 2
tcp_port = 3

[hub]
heartbeat_s = 7.5
topic_policy = "drop_newest"
[hub.quotas.shop]
connections = 9

[limits]
message_bytes_max = 4096

[access]
origins = ["https://a.example"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chappe.toml"
    path.write_text(FILE)
    return path


def test_flags_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    environment = {"CHAPPE_HTTP_PORT": "20", "CHAPPE_TCP_PORT": "30", "CHAPPE_DRAIN_S": "0.5"}
    options = load_options(file, environment, {"tcp_port": 300, "host": None})
    assert (options.port, options.http_port, options.tcp_port) == (1, 20, 300)
    assert (options.drain_s, options.host) == (0.5, "127.0.0.1")
    assert options.hub.heartbeat_s == 7.5
    assert options.hub.topic_policy == "drop_newest"
    assert options.hub.quota_of("shop").connections == 9
    assert options.hub.quota_of("other").connections == 0
    assert options.limits.message_bytes_max == 4096
    assert options.access.origins == ["https://a.example"]


@pytest.mark.parametrize(("text", "dev"), [("true", True), ("1", True), ("false", False)])
def test_the_environment_is_text_whatever_it_stands_for(text: str, dev: bool) -> None:
    flags = {} if dev else {"access": {"keys": [{"id": "k", "file": "f"}]}}
    assert load_options(None, {"CHAPPE_DEV": text}, flags).dev is dev


def test_the_environment_says_where_a_node_is_in_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "chappe.toml"
    file.write_text(
        'dev = true\n[cluster]\nhost = "127.0.0.1"\nport = 1\n[cluster.link]\nheartbeat_s = 2.0'
    )
    environment = {
        "CHAPPE_CLUSTER_ADVERTISE": "10.0.0.7",
        "CHAPPE_CLUSTER_PORT": "2",
        "CHAPPE_CLUSTER_SECRET": "file",
        "CHAPPE_CLUSTER_LINK": "x",
    }
    cluster = load_options(file, environment, {"cluster.secret": "flag"}).cluster
    assert (cluster.advertise, cluster.host, cluster.port) == ("10.0.0.7", "127.0.0.1", 2)
    assert (cluster.secret, cluster.link.heartbeat_s) == ("flag", 2.0)


def test_a_pod_is_one_node() -> None:
    cluster = {"secret": "file"}
    flags = {"dev": True, "registry": "kubernetes://chappe.shop.svc", "cluster": cluster}
    with pytest.raises(ConfigError, match="workers: under kubernetes://"):
        load_options(None, {}, flags | {"workers": 2})


def test_other_variables_of_the_environment_are_no_options() -> None:
    environment = {"CHAPPE_TOKEN": "secret", "CHAPPE_HUB": "x", "PORT": "9", "HOST": "h"}
    assert load_options(None, environment, {"dev": True}) == NodeOptions(dev=True)


DEV = {"dev": True}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (DEV | {"port": -1}, "port"),
        (DEV | {"http_port": 65_536}, "http_port"),
        (DEV | {"tcp_port": "many"}, "tcp_port"),
        (DEV | {"number": -1}, "number"),
        (DEV | {"number": 1024}, "number"),
        (DEV | {"drain_s": -1}, "drain_s"),
        (DEV | {"drain_s": "nan"}, "drain_s"),
        (DEV | {"handshake_timeout_s": 0}, "handshake_timeout_s"),
        (DEV | {"dev": "perhaps"}, "dev"),
        (DEV | {"deflate": 7}, "deflate"),
        (DEV | {"prot": 7400}, "prot"),
        (DEV | {"hub": {"heartbeats": 5}}, "heartbeats"),
        (DEV | {"hub": {"heartbeat_s": 0}}, "hub.heartbeat_s"),
        (DEV | {"hub": {"topic_policy": "drop_all"}}, "topic_policy"),
        (DEV | {"hub": {"rate": {"messages_per_s": -1}}}, "rate.messages_per_s"),
        (DEV | {"hub": {"rate": {"messages": 1}}}, "messages"),
        (DEV | {"hub": {"quotas": {"shop": {"connections": -1}}}}, "quota.connections"),
        (DEV | {"hub": {"quota": {"colour": 1}}}, "colour"),
        (DEV | {"hub": {"outbox_bytes_max": 1000}}, "hub.outbox_bytes_max"),
        (DEV | {"http": {"keep_alive_s": 0}}, "http.keep_alive_s"),
        (DEV | {"http": {"nonsense": 0}}, "nonsense"),
        (DEV | {"limits": {"message_bytes_max": 0}}, "limits.message_bytes_max"),
        (DEV | {"limits": {"colour": 1}}, "colour"),
        (DEV | {"access": {"connects_per_s": -1}}, "access.connects_per_s"),
        (DEV | {"access": {"connects_per_s": 0.5}}, "access.connects_per_s"),
        (DEV | {"access": {"connects_per_s": "nan"}}, "access.connects_per_s"),
        (DEV | {"access": {"keys": [{"id": "k"}]}}, "access.keys"),
        (DEV | {"access": {"keys": [{"id": "k", "file": "f", "algorithm": "RS256"}]}}, "algorithm"),
        (DEV | {"tls": {"cert": "c"}}, "tls"),
        (DEV | {"traffic": {"waiting_bytes_max": 1000}}, "traffic.waiting_bytes_max"),
        (DEV | {"cluster": {"link": {"frame_bytes_max": 1 << 20}}}, "cluster.link.frame_bytes_max"),
        (DEV | {"host": "0.0.0.0"}, "host"),  # dev stays on loopback
        (DEV | {"host": "10.0.0.1", "allow_plaintext": True}, "host"),
        (DEV | {"host": "10.0.0.1", "tls": {"cert": "c", "key": "k"}}, "host"),
        ({"access": {"keys": [{"id": "k", "file": "f"}]}, "host": "10.0.0.1"}, "host"),
        ({"access": {"keys": [{"id": "k", "file": "f"}]}, "host": "::"}, "host"),
        ({}, "access.keys"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(
    values: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")) as refused:
        load_options(None, {}, values)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "more", [{"tls": {"cert": "c", "key": "k"}}, {"allow_plaintext": True}], ids=str
)
def test_beyond_loopback_needs_tls_or_a_word_that_it_is_done_elsewhere(
    more: dict[str, Any],
) -> None:
    values = {"host": "10.0.0.1", "access": {"keys": [{"id": "k", "file": "f"}]}, **more}
    assert load_options(None, {}, values).host == "10.0.0.1"


def test_a_bad_value_in_the_environment_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="port"):
        load_options(None, {"CHAPPE_PORT": "http"}, {"dev": True})


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port = 1\nport = 2", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "chappe.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="--config"):
        load_options(path, {}, {})
