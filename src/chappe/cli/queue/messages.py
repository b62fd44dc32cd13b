"""`chappe queue send`, `browse`, `cancel`."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any

import typer

from chappe.backoff import Backoff
from chappe.cli.api import NodeUnreachable
from chappe.cli.options import console, json_or_text, parse_data, print_json
from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.progress import progress
from chappe.cli.queue.remote import (
    After,
    Count,
    Headers,
    Name,
    RemoteQueue,
    Reverse,
    Tags,
    parse_headers,
)
from chappe.cli.queue.tables import message_line
from chappe.errors import ChappeError, ConfigError, Overload

# As a producer does (Q5), within a minute or two.
_RETRIES = 16
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MAX_S = 10.0


@asking
def send(
    asker: Asker,
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
) -> None:
    """Send messages, each once the one before is stored; prints `<num> ACK` for each.

    A send that may or may not have been stored is tried again, and stored once.
    """
    queue = asker.queue(name)
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
            acked = answer["message"] if number is None else number
            asker.tell(answer, f"{acked} [green]ACK[/]")
            advance(1)


@asking
def browse(
    asker: Asker,
    name: Name,
    lane: Annotated[int | None, typer.Option(help="One of its lanes; else all.")] = None,
    count: Count = 20,
    after: After = None,
    reverse: Reverse = False,
    delayed: Annotated[bool, typer.Option("--delayed", help="What is not due yet.")] = False,
) -> None:
    """Look at messages without taking them: of one lane, or of all, one after the other."""
    queue = asker.queue(name)
    if after is not None and lane is None and not delayed:
        raise ConfigError("--after: a place in a lane; say which with --lane")
    if delayed:
        page = queue.page("delayed", count, after, reverse=reverse)
        show_page(page, as_json=asker.as_json)
        return
    lanes = [lane] if lane is not None else [each["lane"] for each in queue.figures()["lanes"]]
    for each in lanes:
        page = queue.page("messages", count, after, reverse=reverse, lane=each)
        show_page(page, as_json=asker.as_json, where=f"--lane {each} ")
        count -= len(page["messages"])
        if count <= 0:
            return


@asking
def cancel(
    asker: Asker,
    name: Name,
    message: Annotated[str, typer.Argument(help="The message's id.")],
) -> None:
    """Take back a delayed message that is not due yet."""
    answer = asker.queue(name).post("cancel", message=message)
    asker.tell(answer, f"[green]ok[/] {message} is cancelled")


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
            for number, line in enumerate(lines, 1):
                text = line.rstrip("\r\n")
                if text:
                    yield json_or_text(text, f"--file: line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file: {error}") from None
