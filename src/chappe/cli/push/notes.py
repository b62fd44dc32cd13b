"""`chappe push send`, `cancel` and `replace`."""

from __future__ import annotations

import sys
from base64 import b64encode
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from chappe.cli.push.asker import AppAsker, asking
from chappe.cli.push.tables import unmarked
from chappe.errors import ConfigError

# Of a long list, so many are named.
_NAMED_MAX = 10
Data = Annotated[
    str | None, typer.Option(help="What devices get, as these very bytes; - reads input.")
]
File = Annotated[Path | None, typer.Option(help="What devices get, from a file, whatever it is.")]
Type = Annotated[
    int | None, typer.Option("--type", help="What it means to devices, 0 to 239, or nothing: 0.")
]
Ttl = Annotated[int | None, typer.Option(help="Seconds until it is forgotten; else a day.")]
NoteId = Annotated[str, typer.Argument(help="The note's id; or its job's.")]
Listed = Annotated[list[str] | None, typer.Option(help="May be repeated.")]


class Priority(StrEnum):
    """How much it hurries."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


@asking
def send(
    asker: AppAsker,
    client: Listed = None,
    device: Listed = None,
    user: Listed = None,
    topic: Annotated[str | None, typer.Option(help="All who subscribe to it.")] = None,
    data: Data = None,
    file: File = None,
    type_: Type = None,
    ttl: Ttl = None,
    priority: Priority = Priority.NORMAL,
    collapse: Annotated[
        str | None, typer.Option(help="Takes the place of what waits with the same word.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Seen on one device of a user, gone from the others.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="What the job is called.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="What is sent again with the same one is sent once.")
    ] = None,
) -> None:
    """Push a note to clients, devices, users or a topic; prints the job that counts it."""
    if not (client or device or user or topic):
        raise ConfigError("say whom it is for: --client, --device, --user or --topic")
    _check_ttl(ttl)
    answer = asker.node().post(
        "/v1/push/send",
        _said(
            client=client or None,
            device=device or None,
            user=user or None,
            topic=topic,
            data64=_content(data, file),
            type=type_,
            ttl_s=ttl,
            priority=priority.value,
            collapse=collapse,
            once=once or None,
            name=name,
            idempotency_key=idempotency_key,
        ),
    )
    asker.tell(answer, _told(answer))


@asking
def cancel(asker: AppAsker, note: NoteId) -> None:
    """Take a note back from all who have not acknowledged it."""
    kind = "jobs" if note.startswith("j") else "notes"
    answer = asker.node().post(f"/v1/push/{kind}/{quote(note, safe='')}/cancel", None)
    count = answer["withdrawn"]
    told = (
        f"is taken back; it waited for {count:,}" if count else "has arrived: nobody waited for it"
    )
    asker.tell(answer, f"[green]ok[/] {unmarked(note)} {told}")


@asking
def replace(
    asker: AppAsker,
    note: Annotated[str, typer.Argument(help="The note's id.")],
    data: Data = None,
    file: File = None,
    type_: Type = None,
    ttl: Ttl = None,
) -> None:
    """Send another in a note's place, to those who have not acknowledged it."""
    _check_ttl(ttl)
    body = _said(data64=_content(data, file), type=type_, ttl_s=ttl)
    answer = asker.node().post(f"/v1/push/notes/{quote(note, safe='')}/replace", body)
    asker.tell(answer, _told(answer))


def _check_ttl(ttl: int | None) -> None:
    if ttl is not None and ttl < 1:
        raise ConfigError("--ttl: must be at least 1")


def _content(data: str | None, file: Path | None) -> str:
    """The content in base64: nothing reads it on the way, so that each byte arrives as it was."""
    if (data is None) == (file is None):
        raise ConfigError("say either --data or --file")
    if file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise ConfigError(f"--file: {error}") from None
    else:
        content = sys.stdin.buffer.read() if data == "-" else (data or "").encode()
    return b64encode(content).decode()


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _told(answer: dict[str, Any]) -> str:
    """What became of it so far, and how to hear more."""
    lines = [
        f"[green]ok[/] job {answer['job']} note {answer['note']}: aimed at {answer['aimed']:,}, "
        f"sent to {answer['sent']:,}, offline {answer['offline']:,}"
    ]
    for kind, names in answer["missing"].items():
        if names:
            lines.append(f"[yellow]nobody is[/] {kind} {_listed(names)}")
    if answer["limited"]:
        lines.append(f"[yellow]had their notes for this hour:[/] {_listed(answer['limited'])}")
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    shown = ", ".join(map(unmarked, names[:_NAMED_MAX]))
    return f"{shown} and {more:,} more" if more > 0 else shown
