"""`chappe send`, `chappe publish`, `chappe listen`."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from random import SystemRandom
from typing import Annotated, Any

import typer
from rich.text import Text

from chappe.backoff import Backoff
from chappe.cli.api import NodeApi, NodeUnreachable
from chappe.cli.options import (
    HTTP,
    As,
    Ca,
    Http,
    Json,
    TokenFile,
    api,
    console,
    parse_data,
    print_json,
)
from chappe.errors import Overload

# As a client comes back (see ClientOptions), for as long as a node takes to be replaced.
_BACKOFF_FIRST_S = 0.5
_BACKOFF_MAX_S = 5.0
_PATIENCE_S = 60.0

To = Annotated[str, typer.Argument(help="An address, such as topic:news or room:42.")]
Data = Annotated[str, typer.Argument(help="JSON, or any text; - reads standard input.")]


def send(
    to: Annotated[list[str], typer.Option("--to", help="user:NAME; may be repeated.")],
    data: Data,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Send a message to a user."""
    body = {"to": to[0] if len(to) == 1 else to, "data": parse_data(data)}
    node = api(http, token_file, ca, os.environ.get("CHAPPE_TOKEN"))
    answer = node.post("/v1/send", body | ({"as": as_} if as_ else {}))
    if as_json:
        print_json(answer)
    else:
        console.print(f"[green]ok[/] message {answer['message']}", highlight=False)


def publish(
    to: To,
    data: Data,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
    reliable: Annotated[
        bool, typer.Option("--reliable", help="To a room: by several ways at once.")
    ] = False,
) -> None:
    """Publish a message to a topic or a room."""
    node = api(http, token_file, ca, os.environ.get("CHAPPE_TOKEN"))
    body = {"to": to, "data": parse_data(data)} | ({"reliable": True} if reliable else {})
    answer = node.post("/v1/publish", body | ({"as": as_} if as_ else {}))
    if as_json:
        print_json(answer)
        return
    heard = f", {_heard(answer['nodes'])}" if "nodes" in answer else ""
    console.print(f"[green]ok[/] message {answer['message']}{heard}", highlight=False)


def _heard(nodes: int) -> str:
    return f"{nodes} node(s) took it" if nodes else "no subscriber"


def listen(
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics to subscribe to, and rooms to join.")
    ] = None,
    as_: As = "",
    count: Annotated[int, typer.Option("-n", help="Stop after so many messages; 0 never.")] = 0,
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Print what comes for a user, and what is published to topics and rooms.

    When its node is stopped it waits for it to come back, or for another at the same address.
    """
    node = api(http, token_file, ca, os.environ.get("CHAPPE_TOKEN"))
    left = count
    rooms = [address for address in topics or () if address.startswith("room:")]
    others = [address for address in topics or () if address not in rooms]
    for event in _events(node, **{"subscribe": others, "join": rooms, "as": as_}):
        if as_json:
            print_json(event)
        else:
            console.print(_line(event))
        if event.get("op") == "message":
            left -= 1
            if left == 0:
                return


def _events(node: NodeApi, **query: Any) -> Iterator[dict[str, Any]]:
    """Each event of one stream after the other, for as long as nodes say to come back.

    Raises NodeUnreachable when a node goes without a word, or does not come back in time, and the
    RequestError with which a stream is refused.
    """
    backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S, SystemRandom())
    until = 0.0
    while True:
        try:
            for event in node.events(**query):
                if event.get("op") == "reconnect":
                    until = time.monotonic() + _PATIENCE_S
                yield event
        except (NodeUnreachable, Overload):
            # One that goes away says so before, and refuses new streams until it is gone.
            if time.monotonic() >= until:
                raise
        time.sleep(backoff.next_s())


def _line(event: dict[str, Any]) -> Text:
    """One event for a person; a stranger's text is shown as text, whatever it holds."""
    if event.get("op") != "message":
        return Text(json.dumps(event), style="yellow")
    at = datetime.fromtimestamp(event["ts"] / 1000).strftime("%H:%M:%S.%f")[:-3]
    if "data64" in event:
        size = len(base64.b64decode(event["data64"]))
        shown = f"{size} bytes"
    else:
        shown = json.dumps(event.get("data"), ensure_ascii=True)
    return Text.assemble(
        (at, "dim"),
        " ",
        (ascii(event["from"])[1:-1], "cyan"),
        " -> ",
        (ascii(event["to"])[1:-1], "magenta"),
        "  ",
        shown,
    )
