"""`chappe queue dead`: what could not be delivered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chappe.cli.options import console, print_json
from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.messages import show_page
from chappe.cli.queue.progress import progress
from chappe.cli.queue.remote import After, Count, Name, RemoteQueue, Reverse
from chappe.cli.queue.tables import message_view
from chappe.errors import ConfigError

app = typer.Typer(help="Dead letters: list, show, replay, purge.", no_args_is_help=True)

# Replayed by one request, so that each ends well before its time limit.
_BATCH = 500
Messages = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
@asking
def list_(
    asker: Asker,
    name: Name,
    count: Count = 20,
    after: After = None,
    reverse: Reverse = False,
) -> None:
    """List dead letters, and why each is one."""
    page = asker.queue(name).page("dead", count, after, reverse=reverse)
    show_page(page, as_json=asker.as_json)


@app.command("show")
@asking
def show(
    asker: Asker,
    name: Name,
    message: Annotated[str, typer.Argument(help="The dead letter's id.")],
) -> None:
    """Show all of one dead letter."""
    answer = asker.queue(name).get("dead", message)
    if asker.as_json:
        print_json(answer)
    else:
        console.print(message_view(answer["message"]), soft_wrap=True)


@app.command("replay")
@asking
def replay(
    asker: Asker,
    name: Name,
    message: Messages = None,
    every: All = False,
) -> None:
    """Send dead letters again, to those who did not take them."""
    queue = asker.queue(name)
    ids = _chosen(message, every)
    done = 0
    total = len(ids) if ids is not None else queue.figures()["dead"]
    with progress("replaying", total) as advance:
        for batch in _batches(queue, ids, total):
            replayed = queue.post("dead/replay", messages=batch)["n"]
            done += replayed
            advance(replayed)
    _tell(asker, done, "sent again")


@app.command("purge")
@asking
def purge(
    asker: Asker,
    name: Name,
    message: Messages = None,
    every: All = False,
    yes: Annotated[bool, typer.Option("--yes", help="Needed for --all.")] = False,
) -> None:
    """Throw dead letters away."""
    queue = asker.queue(name)
    ids = _chosen(message, every)
    if ids is None and not yes:
        raise ConfigError(f"--yes: missing; all dead letters of {queue.address} would be lost")
    done = queue.post("dead/purge", messages=ids)["n"]
    _tell(asker, done, "thrown away")


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


def _tell(asker: Asker, n: int, what: str) -> None:
    letters = "dead letter" if n == 1 else "dead letters"
    asker.tell({"ok": True, "n": n}, f"[green]ok[/] {n} {letters} {what}")
