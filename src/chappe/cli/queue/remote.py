"""One queue of a node, as the commands speak of it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from chappe.cli.api import NodeApi
from chappe.errors import ConfigError

Name = Annotated[str, typer.Argument(help="The queue's name, with or without queue: before it.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")]
Headers = Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; may be repeated.")]
Count = Annotated[int, typer.Option("--n", "-n", help="So many.")]
After = Annotated[int | None, typer.Option(help="Go on from there.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="The newest first.")]
Group = Annotated[str | None, typer.Option(help="Share with the others of this group.")]

# A node shows no more at once.
_PAGE_MAX = 1000


class RemoteQueue:
    """Says who asks, and about which queue, with each request."""

    def __init__(self, node: NodeApi, name: str, as_: str) -> None:
        self.node = node
        self.name = name.removeprefix("queue:")
        if not self.name:
            raise ConfigError("NAME: a queue's name is not empty")
        self._as = {"as": as_} if as_ else {}

    @property
    def address(self) -> str:
        """What messages to it are addressed to."""
        return f"queue:{self.name}"

    def figures(self) -> dict[str, Any]:
        """How it is doing."""
        return self.get()

    def get(self, *path: str, **query: Any) -> dict[str, Any]:
        """Ask; raises as NodeApi.get does."""
        return self.node.get(self.path(*path), **self._as, **query)

    def page(
        self, of: str, n: int, after: int | None, *, reverse: bool, lane: int | None = None
    ) -> dict[str, Any]:
        """Look at so many messages of a kind; raises ConfigError as well."""
        if not 1 <= n <= _PAGE_MAX:
            raise ConfigError(f"--n: must be between 1 and {_PAGE_MAX}")
        return self.get(of, n=n, after=after, reverse="true" if reverse else None, lane=lane)

    def post(self, path: str, wait_s: float = 0.0, **body: Any) -> dict[str, Any]:
        """Tell; what is None is left out. Raises as NodeApi.post does."""
        return self.node.post(self.path(*path.split("/")), self._body(body), wait_s=wait_s)

    def settle(self, path: str, session: str, **body: Any) -> dict[str, Any]:
        """Answer for what a session was given; who that is, the session says."""
        return self.node.post(self.path(path), {"session": session, **body})

    def put(self, **body: Any) -> dict[str, Any]:
        """Make it; what is None is left out."""
        return self.node.put(self.path(), self._body(body))

    def delete(self, *path: str, **query: Any) -> dict[str, Any]:
        """Remove it, or what belongs to it."""
        return self.node.delete(self.path(*path), **self._as, **query)

    def path(self, *parts: str) -> str:
        """Where a request about it goes."""
        names = (quote(part, safe="") for part in parts)
        return "/".join((f"/v1/queues/{quote(self.name, safe='/')}", *names))

    def query(self, **query: Any) -> dict[str, Any]:
        """A request's query, with who asks."""
        return self._as | query

    def _body(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._as | {name: value for name, value in body.items() if value is not None}


def parse_headers(given: list[str] | None) -> dict[str, str] | None:
    """Headers from the command line; raises ConfigError naming one that is none."""
    if not given:
        return None
    pairs = [text.partition("=") for text in given]
    for text, (name, equals, _) in zip(given, pairs, strict=True):
        if not name or not equals:
            raise ConfigError(f"--header: {text!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}
