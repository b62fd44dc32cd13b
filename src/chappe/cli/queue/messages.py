"""`chappe queue send`, `browse`, `cancel`."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any

import typer

from chappe.cli.api import NodeUnreachable
from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, console, parse_data, print_json
from chappe.cli.queue.progress import progress
from chappe.cli.queue.remote import (
    Headers,
    Name,
    RemoteQueue,
    Tags,
    open_queue,
    parse_headers,
)
from chappe.cli.queue.tables import message_line
from chappe.client.backoff import Backoff
from chappe.errors import ChappeError, ConfigError, Overload

# As a producer does (Q5), within a minute or two.
_RETRIES = 16
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MAX_S = 10.0


def send(
    name: Name,
    data: Annotated[
        list[str] | None, typer.Argument(help="JSON, or any text: a message each.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A message from each line of a file; - reads input.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="What has the same key keeps its order.")] = None,
    header: Headers = None,
    tag: Tags = None,
    num: Annotated[
        int | None, typer.Option(help="The first message's number; the others count on.")
    ] = None,
    delay_ms: Annotated[int | None, typer.Option(help="Not to be taken before.")] = None,
    type_: Annotated[
        int | None, typer.Option("--type", help="0 one way, 1 reply expected.")
    ] = None,
    consumer: Annotated[
        list[str] | None, typer.Option(help="Only for this one; may be repeated.")
    ] = None,
    retries: Annotated[int, typer.Option(help="How often a send that failed is tried again.")] = (
        _RETRIES
    ),
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Send messages, each once the one before is stored; prints `<num> ACK` for each.

    A send that may or may not have been stored is tried again, and stored once.
    """
    queue = open_queue(name, as_, http, token_file, ca)
    fields = {
        "key": key,
        "headers": parse_headers(header),
        "tags": tag,
        "delay_ms": delay_ms,
        "type": type_,
        "consumers": consumer,
        "producer": f"cli-{secrets.token_hex(8)}",
    }
    sending = _Sending(queue, retries)
    given = len(data or ()) or None
    with progress("sending", given, shown=not sys.stdout.isatty()) as advance:
        for index, payload in enumerate(_payloads(data, file)):
            number = None if num is None else num + index
            try:
                answer = sending.send(data=payload, num=number, seq=index + 1, **fields)
            except ChappeError as error:
                if index == 0:
                    raise
                raise ChappeError(f"message {index + 1}: {error}; {index} were sent") from None
            if as_json:
                print_json(answer)
            else:
                acked = answer["message"] if number is None else number
                console.print(f"{acked} [green]ACK[/]", highlight=False)
            advance(1)


def browse(
    name: Name,
    lane: Annotated[int | None, typer.Option(help="One of its lanes; else all.")] = None,
    count: Annotated[int, typer.Option("--n", "-n", help="So many.")] = 20,
    after: Annotated[int | None, typer.Option(help="Go on from there.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest first.")] = False,
    delayed: Annotated[bool, typer.Option("--delayed", help="What is not due yet.")] = False,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Look at messages without taking them: of one lane, or of all, one after the other."""
    queue = open_queue(name, as_, http, token_file, ca)
    if after is not None and lane is None and not delayed:
        raise ConfigError("--after: a place in a lane; say which with --lane")
    query = {"after": after, "reverse": "true" if reverse else None}
    if delayed:
        show_page(queue.get("delayed", n=count, **query), as_json=as_json)
        return
    lanes = [lane] if lane is not None else [each["lane"] for each in queue.figures()["lanes"]]
    for each in lanes:
        page = queue.get("messages", lane=each, n=count, **query)
        show_page(page, as_json=as_json, where=f"--lane {each} ")
        count -= len(page["messages"])
        if count <= 0:
            return


def cancel(
    name: Name,
    message: Annotated[str, typer.Argument(help="The message's id.")],
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Take back a delayed message that is not due yet."""
    answer = open_queue(name, as_, http, token_file, ca).post("cancel", message=message)
    if as_json:
        print_json(answer)
    else:
        console.print(f"[green]ok[/] {message} is cancelled", highlight=False)


def show_page(page: dict[str, Any], *, as_json: bool, where: str = "") -> None:
    """Print a page of messages, and how to go on."""
    if as_json:
        print_json(page)
        return
    for message in page["messages"]:
        console.print(message_line(message), soft_wrap=True)
    if page["next"] is not None:
        console.print(f"[dim]more with {where}--after {page['next']}[/]", highlight=False)


class _Sending:
    """Sends one message after the other, and again what failed."""

    def __init__(self, queue: RemoteQueue, retries: int) -> None:
        self._queue = queue
        self._retries = retries
        self._reached = False

    def send(self, **fields: Any) -> dict[str, Any]:
        """Send until it is acknowledged; raises the last error."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S, SystemRandom())
        for left in range(max(self._retries, 0), -1, -1):
            try:
                answer = self._queue.post("send", **fields)
            except (Overload, NodeUnreachable) as error:
                # A node that was never there is a wrong address more often than a restart.
                if not left or (isinstance(error, NodeUnreachable) and not self._reached):
                    raise
            else:
                self._reached = True
                return answer
            time.sleep(backoff.next_s())
        raise AssertionError("the last attempt returns or raises")


def _payloads(data: list[str] | None, file: Path | None) -> Iterator[Any]:
    if not data and file is None:
        raise ConfigError("DATA: missing; give messages, or lines with --file")
    for text in data or ():
        yield parse_data(text)
    if file is not None:
        yield from _lines_of(file)


def _lines_of(file: Path) -> Iterator[Any]:
    try:
        with nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8") as lines:
            for line in lines:
                text = line.rstrip("\r\n")
                if text:
                    yield _json_or_text(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file: {error}") from None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
