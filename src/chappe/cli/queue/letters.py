"""`chappe queue dead`: what could not be delivered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, console, print_json
from chappe.cli.queue.messages import show_page
from chappe.cli.queue.progress import progress
from chappe.cli.queue.remote import Name, RemoteQueue, open_queue
from chappe.cli.queue.tables import message_view
from chappe.errors import ConfigError

app = typer.Typer(help="Dead letters: list, show, replay, purge.", no_args_is_help=True)

# Replayed by one request, so that each ends well before its time limit.
_BATCH = 500
Messages = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
def list_(
    name: Name,
    count: Annotated[int, typer.Option("--n", "-n", help="So many.")] = 20,
    after: Annotated[int | None, typer.Option(help="Go on from there.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest first.")] = False,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """List dead letters, and why each is one."""
    queue = open_queue(name, as_, http, token_file, ca)
    page = queue.get("dead", n=count, after=after, reverse="true" if reverse else None)
    show_page(page, as_json=as_json)


@app.command("show")
def show(
    name: Name,
    message: Annotated[str, typer.Argument(help="The dead letter's id.")],
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show all of one dead letter."""
    answer = open_queue(name, as_, http, token_file, ca).get("dead", message)
    if as_json:
        print_json(answer)
    else:
        console.print(message_view(answer["message"]), soft_wrap=True)


@app.command("replay")
def replay(
    name: Name,
    message: Messages = None,
    every: All = False,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Send dead letters again, to those who did not take them."""
    queue = open_queue(name, as_, http, token_file, ca)
    ids = _chosen(message, every)
    done = 0
    total = len(ids) if ids is not None else queue.figures()["dead"]
    with progress("replaying", total) as advance:
        for batch in _batches(queue, ids, total):
            replayed = queue.post("dead/replay", messages=batch)["n"]
            done += replayed
            advance(replayed)
    _tell(done, "sent again", as_json=as_json)


@app.command("purge")
def purge(
    name: Name,
    message: Messages = None,
    every: All = False,
    yes: Annotated[bool, typer.Option("--yes", help="Needed for --all.")] = False,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Throw dead letters away."""
    queue = open_queue(name, as_, http, token_file, ca)
    ids = _chosen(message, every)
    if ids is None and not yes:
        raise ConfigError(f"--yes: missing; all dead letters of {queue.address} would be lost")
    done = queue.post("dead/purge", messages=ids)["n"]
    _tell(done, "thrown away", as_json=as_json)


def _chosen(ids: list[str] | None, every: bool) -> list[str] | None:
    """The ids that were said, or None for all."""
    if bool(ids) == every:
        raise ConfigError("MESSAGE: name dead letters, or say --all")
    return ids or None


def _batches(queue: RemoteQueue, ids: list[str] | None, total: int) -> Any:
    """Ids to replay, some at a time; what dies again meanwhile is not looked at."""
    if ids is not None:
        yield from (ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH))
        return
    after: int | None = None
    while total > 0:
        page = queue.get("dead", n=min(_BATCH, total), after=after)
        batch = [letter["message"] for letter in page["messages"]]
        total -= len(batch)
        if batch:
            yield batch
        if (after := page["next"]) is None:
            return


def _tell(n: int, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "n": n})
    else:
        letters = "dead letter" if n == 1 else "dead letters"
        console.print(f"[green]ok[/] {n} {letters} {what}", highlight=False)
