"""Handlers by path and type (K7): all that match are called, in the order they were given in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.errors import ConfigError

ANY = "*"

Handler = Callable[..., Any]


class Routes:
    """Which handlers take what."""

    def __init__(self) -> None:
        self._text: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
        self._binary: dict[str, list[tuple[int, Handler]]] = {}
        self._plain: dict[str, list[tuple[int, Handler]]] = {}
        self._given = 0
        self._paths: set[str] = set()

    def add_text(self, path: str, kind: str, handler: Handler) -> None:
        """Messages of a type on a path; `*` is any. Raises ConfigError."""
        if not kind:
            raise ConfigError("type: must not be empty; * is any")
        self._text.setdefault((self._checked(path), kind), []).append((self._given, handler))

    def add_binary(self, path: str, handler: Handler) -> None:
        """Binary messages on a path."""
        self._binary.setdefault(self._checked(path), []).append((self._given, handler))

    def add_plain(self, path: str, handler: Handler) -> None:
        """Text on a path that is no message."""
        self._plain.setdefault(self._checked(path), []).append((self._given, handler))

    def of_text(self, path: str, kind: str) -> list[Handler]:
        """Who takes a message of that type on a path."""
        both = ((path, kind), (path, ANY), (ANY, kind), (ANY, ANY))
        return _in_order([one for key in dict.fromkeys(both) for one in self._text.get(key, ())])

    def of_binary(self, path: str) -> list[Handler]:
        """Who takes a binary message on a path."""
        return _in_order([*self._binary.get(path, ()), *self._binary.get(ANY, ())])

    def of_plain(self, path: str) -> list[Handler]:
        """Who takes plain text on a path."""
        return _in_order([*self._plain.get(path, ()), *self._plain.get(ANY, ())])

    def has(self, path: str) -> bool:
        """Whether anybody takes anything on a path."""
        return path in self._paths or ANY in self._paths

    def _checked(self, path: str) -> str:
        path = check_path(path)
        self._given += 1
        self._paths.add(path)
        return path


def check_path(path: str) -> str:
    """A path as it is compared; raises ConfigError."""
    if not isinstance(path, str):
        raise ConfigError(f"path: {path!r} is none; write it in brackets: ('/orders')")
    if path == ANY:
        return path
    if not path.startswith("/") or not {ANY, "{", "}"}.isdisjoint(path):
        raise ConfigError(
            f"path: {path!r} must begin with /, without * and {{}}, or be * for any: what differs "
            "between sessions of one path is in the query, or in what they say"
        )
    return path.rstrip("/") or "/"


def _in_order(found: list[tuple[int, Handler]]) -> list[Handler]:
    return [handler for _, handler in sorted(found, key=lambda one: one[0])]
