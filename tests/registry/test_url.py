"""Addresses of registries, and what is said of bad ones."""

from __future__ import annotations

import builtins
import sys

import pytest

from chappe.errors import ConfigError
from chappe.registry.options import RegistryOptions
from chappe.registry.url import Host, open_registry, parse


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "must be memory, or begin with"),
        ("memory://", "must be memory, or begin with"),
        ("etcd://h", "must be memory, or begin with one of redis://, rediss://"),
        ("redis://", "redis:// needs a host"),
        ("redis://h:", "needs a host, and maybe a port"),
        ("redis://h:x", "'x' is not a port"),
        ("redis://h:0", "'0' is not a port"),
        ("redis://h:65536", "'65536' is not a port"),
        ("redis://[::1", "needs a host"),
        ("redis://h/one", "the database 'one' is not a number"),
        ("redis://h,i", "takes one host"),
        ("redis://h?prefix=", "prefix must not be empty"),
        ("redis://h?prefix={a}", "nor have braces"),
        ("redis://h?db=1", "has no option 'db'; it may have prefix"),
        ("redis://h?ca=/f", "has no option 'ca'"),
        ("zookeeper://h?x=1", "zookeeper:// has no option 'x'"),
        ("zookeeper://h,", "needs a host"),
        ("zookeeper://h//a", "is not a path"),
        ("zookeeper://h/a/../b", "is not a path"),
        ("kubernetes://a,b", "takes one service"),
        ("kubernetes://a/b", "neither path nor user"),
        ("kubernetes://a?tls=yes", "tls must be true or false, not 'yes'"),
        ("kubernetes://a?dns=h:x", "'x' is not a port"),
    ],
)
def test_a_bad_address_is_refused_with_what_is_wrong(url: str, reason: str):
    with pytest.raises(ConfigError) as refused:
        open_registry(url)
    assert str(refused.value).startswith("registry: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:canary@h:x",
        "redis://me:canary@",
        "redis://:canary@h/one",
        "rediss://me:canary@h?x=1",
        "zookeeper://me:canary@h//a",
        "zookeeper://:canary@h",
        "kubernetes://me:canary@a",
        "etcd://me:canary@h",
        "redis:/me:canary@h",
    ],
)
def test_a_password_is_in_no_error(url: str):
    with pytest.raises(ConfigError) as refused:
        open_registry(url)
    assert "canary" not in str(refused.value)


def test_an_address_is_taken_apart():
    place = parse("zookeeper", "a%40b:p%3Aw@h,[::1]:99/x/y?q=1", 2181, frozenset({"q"}))
    assert place.user == "a@b"
    assert place.password == "p:w"
    assert place.hosts == (Host("h", 2181), Host("::1", 99))
    assert place.path == "/x/y"
    assert place.query == {"q": "1"}
    assert repr(place) == str(place) == "zookeeper://h:2181,::1:99"


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("redis://h", "redis", "redis"),
        ("zookeeper://h", "kazoo", "zookeeper"),
        ("kubernetes://h", "dns", "kubernetes"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
):
    imported = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=module)
        return imported(name, *rest, **more)  # type: ignore[arg-type]

    for loaded in [name for name in sys.modules if name.startswith("chappe.registry.")]:
        if loaded.rpartition(".")[2] in ("redis", "zookeeper", "kazoo_client", "kubernetes"):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=rf"needs the package {module}: pip .*chappe\[{extra}\]"):
        open_registry(url)


@pytest.mark.parametrize("field", ["lease_s", "poll_s", "timeout_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_times_that_make_no_sense_are_refused(field: str, value: float):
    with pytest.raises(ConfigError, match=rf"leases\.{field}"):
        RegistryOptions(**{field: value})
