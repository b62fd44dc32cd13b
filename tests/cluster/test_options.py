"""A cluster's options: what is refused, and how (H6)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chappe.cluster.options import ClusterOptions, ClusterTls, LinkOptions, read_secret
from chappe.errors import ConfigError

TLS = ClusterTls(cert="c", key="k", ca="a")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_links_stay_on_this_machine_unless_told_otherwise(host: str):
    assert ClusterOptions(host=host).host == host


def test_links_over_a_network_need_tls_or_a_word():
    with pytest.raises(ConfigError, match=r"cluster\.host: 10\.0\.0\.7 can be reached"):
        ClusterOptions(host="10.0.0.7")
    assert ClusterOptions(host="10.0.0.7", tls=TLS).tls is TLS
    assert ClusterOptions(host="10.0.0.7", allow_plaintext=True).allow_plaintext


def test_who_listens_everywhere_says_where_it_is_dialled():
    with pytest.raises(ConfigError, match=r"cluster\.advertise: 0\.0\.0\.0"):
        ClusterOptions(host="0.0.0.0", allow_plaintext=True)
    ClusterOptions(host="0.0.0.0", allow_plaintext=True, advertise="10.0.0.7")


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_is_a_port(port: int):
    with pytest.raises(ConfigError, match=r"cluster\.port"):
        ClusterOptions(port=port)


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_cluster_has_a_name(name: str):
    with pytest.raises(ConfigError, match=r"cluster\.cluster"):
        ClusterOptions(cluster=name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat_s", 0),
        ("heartbeat_s", float("nan")),
        ("handshake_timeout_s", float("inf")),
        ("backoff_first_s", -1),
        ("backoff_max_s", 0),
        ("close_timeout_s", 0),
        ("beats_missed_max", 0),
        ("strangers_max", 0),
        ("frame_bytes_max", 10),
        ("write_bytes_max", 10),
    ],
)
def test_a_bound_that_makes_no_sense_is_named(name: str, value: float):
    with pytest.raises(ConfigError, match=rf"cluster\.link\.{name}"):
        LinkOptions(**{name: value})


def test_options_come_from_a_file_whole():
    options = msgspec.convert(
        {"host": "10.0.0.7", "tls": {"cert": "c", "key": "k", "ca": "a", "mutual": True},
         "link": {"heartbeat_s": 1}},
        ClusterOptions,
    )  # fmt: skip
    assert options.tls is not None
    assert options.tls.mutual
    assert options.link.silence_s == 3


def test_a_secret_is_read_from_a_file_without_the_white_space_around_it(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_bytes(b"  " + b"s" * 32 + b"\n")
    assert read_secret(str(file)) == b"s" * 32


def test_a_short_secret_is_refused_and_not_quoted(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_bytes(b"tooshort\n")
    with pytest.raises(ConfigError, match=r"cluster\.secret: .*32 to") as caught:
        read_secret(str(file))
    assert "tooshort" not in str(caught.value)


def test_a_secret_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cluster\.secret: .*nothing-here"):
        read_secret(str(tmp_path / "nothing-here"))
