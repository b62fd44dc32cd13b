"""Where the states of push are, as the command line says it: an address, or a file of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chappe.errors import ConfigError
from chappe.push.state.sqlite.records import in_use
from chappe.push.state.url import FILE, NAMES
from chappe.store.redis_url import parse_redis_url

_SQLITE = "sqlite:"
_READERS = {".toml": tomllib.loads, ".json": json.loads}


def read_urls(text: str, option: str) -> dict[str, str]:
    """The address of each state: one for all, or each from a file; raises ConfigError.

    A file has them by name, at its top or, as that of a node, under `push.states`: one that is not
    named there is in the node's `store`.
    """
    path = Path(text)
    if path.suffix not in _READERS:
        return dict.fromkeys(NAMES, _checked(text, option))
    try:
        told: Any = _READERS[path.suffix](path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: {path}: {error}") from None
    named = _named(told)
    if not isinstance(named, dict) or not all(isinstance(url, str) for url in named.values()):
        raise ConfigError(f"{option}: {path}: must say by name where each state is")
    for name in NAMES:
        if name not in named:
            raise ConfigError(f"{option}: {path}: {name} is missing")
    for name in named.keys() - set(NAMES):
        raise ConfigError(f"{option}: {path}: {name!r} is none of {', '.join(NAMES)}")
    return {name: _checked(named[name], f"{option}: {name}") for name in NAMES}


def _named(told: Any) -> Any:
    if not isinstance(told, dict) or not told.keys() & {"push", "store"}:
        return told
    push = told.get("push", {})
    states = push.get("states", {}) if isinstance(push, dict) else None
    if not isinstance(states, dict):
        return None
    return {**_elsewhere(told), **states}


def _elsewhere(told: dict[str, Any]) -> dict[str, Any]:
    """Where a node keeps states that are not named, as far as its file says so."""
    store = told.get("store", _SQLITE)
    # A file that `store` names is the store's own.
    if not isinstance(store, str) or not store.startswith(_SQLITE):
        return dict.fromkeys(NAMES, store)
    data = told.get("data")
    return dict.fromkeys(NAMES, f"{_SQLITE}{Path(data) / FILE}") if isinstance(data, str) else {}


def _checked(url: str, option: str) -> str:
    if url == "memory":
        raise ConfigError(f"{option}: memory is of one process")
    if url == _SQLITE:
        raise ConfigError(f"{option}: say which file: sqlite:/path/push.db")
    return url


def shown(url: str, option: str) -> str:
    """What an address may be called: without a password."""
    if url.startswith(_SQLITE):
        return f"{_SQLITE}{_file(url).resolve()}"
    if url.startswith("redis"):
        address = parse_redis_url(url, option, frozenset({"buckets"}))
        return f"{address.shown}?prefix={address.prefix}"
    return url.partition(":")[0]


def check_source(urls: Mapping[str, str], *, force: bool) -> None:
    """See that files to be read are there, and that nobody has them; raises ConfigError."""
    for url in {url for url in urls.values() if url.startswith(_SQLITE)}:
        file = _file(url)
        if not file.is_file():
            raise ConfigError(f"--from: {file}: there is no such file")
        if in_use(file) and not force:
            raise ConfigError(f"--from: {file}: a process has it open: stop push first, or --force")


def _file(url: str) -> Path:
    return Path(url.removeprefix(_SQLITE).removeprefix("//"))
