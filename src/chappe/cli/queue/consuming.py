"""`chappe queue consume`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from chappe.cli.options import console, print_json
from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.progress import Advance, progress
from chappe.cli.queue.remote import (
    Group,
    Headers,
    Name,
    RemoteQueue,
    Tags,
    parse_headers,
)
from chappe.cli.queue.tables import message_line
from chappe.errors import ChappeError, ConfigError

# A node bounds a single wait; longer ones are made of several.
_WAIT_S_MAX = 20.0
_FETCH = 100


@asking
def consume(
    asker: Asker,
    name: Name,
    count: Annotated[int, typer.Option("--n", "-n", help="So many; 0: all there are.")] = 1,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for the next one; inf waits for ever.")
    ] = 0.0,
    group: Group = None,
    consumer: Annotated[str | None, typer.Option("--name", help="Be known by a name.")] = None,
    tag: Tags = None,
    header: Headers = None,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Without: they are handed back.")
    ] = True,
) -> None:
    """Take messages, print them, and acknowledge what is printed."""
    if count < 0:
        raise ConfigError("--n: must not be below 0")
    if not wait >= 0:
        raise ConfigError("--wait: must not be below 0")
    if not ack and count == 0:
        raise ConfigError("--no-ack: what is handed back comes again; say how many with --n")
    queue = asker.queue(name)
    taking = _Taking(
        queue,
        ack,
        {"group": group, "name": consumer, "tags": tag, "headers": parse_headers(header)},
    )
    shown: Callable[[Any], None] = (
        print_json
        if asker.as_json
        else lambda message: console.print(message_line(message), soft_wrap=True)
    )
    with progress("consuming", count or None, shown=not sys.stdout.isatty()) as advance:
        try:
            taking.run(count or math.inf, wait, shown, advance)
        finally:
            taking.leave()


class _Taking:
    """Takes messages in one session, and lets go of it."""

    def __init__(self, queue: RemoteQueue, ack: bool, wants: dict[str, Any]) -> None:
        self._queue = queue
        self._ack = ack
        self._wants = wants
        self._session: str | None = None

    def run(
        self,
        count: float,
        wait_s: float,
        shown: Callable[[Any], None],
        advance: Advance,
    ) -> None:
        """Take so many, or until none came for so long."""
        until = time.monotonic() + wait_s
        while count > 0:
            messages = self._fetch(int(min(count, _FETCH)), until - time.monotonic())
            for message in messages:
                shown(message)
            if messages:
                self._settle([message["message"] for message in messages])
                count -= len(messages)
                advance(len(messages))
                until = time.monotonic() + wait_s
            elif time.monotonic() >= until:
                return

    def leave(self) -> None:
        """End the session: what it still has goes to others at once."""
        if self._session is not None:
            with suppress(ChappeError):
                self._queue.settle("ack", self._session, message=[], leave=True)

    def _fetch(self, n: int, wait_s: float) -> list[dict[str, Any]]:
        wait_s = min(max(wait_s, 0.0), _WAIT_S_MAX)
        answer = self._queue.post(
            "fetch",
            wait_s,
            n=n,
            wait_ms=int(wait_s * 1000),
            session=self._session,
            **self._wants,
        )
        self._session = answer["session"]
        return [each for each in answer["messages"] if each.get("op") == "message"]

    def _settle(self, ids: list[str]) -> None:
        assert self._session is not None, "what was fetched was given to a session"
        self._queue.settle("ack" if self._ack else "nack", self._session, message=ids)
