"""`chappe queue register` and `unregister`."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, console, print_json
from chappe.cli.queue.remote import Group, Headers, Name, Tags, open_queue, parse_headers
from chappe.errors import ConfigError


def register(
    name: Name,
    consumer: Annotated[str, typer.Argument(help="The consumer's name.")],
    group: Group = None,
    tag: Tags = None,
    header: Headers = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin with what is sent from now on.")
    ] = False,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Register a consumer: from now on the queue keeps messages for it, or for its group."""
    queue = open_queue(name, as_, http, token_file, ca)
    headers = parse_headers(header)
    answer = queue.post(
        "consumers", name=consumer, group=group, tags=tag, headers=headers, new=new or None
    )
    if as_json:
        print_json(answer)
    else:
        console.print(f"[green]ok[/] {consumer} consumes {queue.address}", highlight=False)


def unregister(
    name: Name,
    consumer: Annotated[
        str | None, typer.Argument(help="The consumer; without it, the whole --group.")
    ] = None,
    group: Group = None,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Unregister a consumer; or give up a group, and what only it still waits for."""
    queue = open_queue(name, as_, http, token_file, ca)
    if consumer:
        answer = queue.delete("consumers", consumer, group=group)
    elif group:
        answer = queue.delete("groups", group)
    else:
        raise ConfigError("CONSUMER: missing; name a consumer, or a group with --group")
    if as_json:
        print_json(answer)
    else:
        gone = consumer or f"group {group}"
        console.print(f"[green]ok[/] {gone} left {queue.address}", highlight=False)
