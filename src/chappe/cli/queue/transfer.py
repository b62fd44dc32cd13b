"""`chappe queue export` and `import`: queues and consumers as JSON (Q12)."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from chappe.cli.api import NodeUnreachable
from chappe.cli.interrupt import Interrupted
from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.document import document_of, kind_of, lines_of, queue_of
from chappe.cli.queue.progress import Advance, progress
from chappe.cli.queue.remote import Name, RemoteQueue
from chappe.errors import ChappeError, ConfigError, RequestError

# What goes in with one request.
_CHUNK_LINES = 500
_CHUNK_BYTES = 512 * 1024
_TAIL_BYTES = 4096
_SENT = ("groups", "messages", "delayed", "dead")
_COUNTED = (*_SENT, "skipped")


@asking
def export(
    asker: Asker,
    name: Name,
    out: Annotated[Path | None, typer.Option(help="Where to write; else standard output.")] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="JSON lines instead of one document.")
    ] = False,
) -> None:
    """Write a queue as JSON: its options, groups, messages, delayed ones and dead letters."""
    queue = asker.queue(name)
    figures = queue.figures()
    total = figures["depth"] + figures["delayed"] + figures["dead"] + len(figures["groups"])
    with _writing(out) as file, progress("exporting", total, shown=out is not None) as advance:
        exported = _Exported(queue.node.lines(queue.path("export"), **queue.query()), advance)
        for piece in _whole(exported) if lines else document_of(exported):
            file.write(piece)
    # What goes to standard output is JSON itself, and nothing is said after it.
    if out is not None:
        answer = {"ok": True, "queue": queue.address, "out": str(out), **exported.counts()}
        asker.tell(answer, f"[green]wrote[/] {out}")


@asking
def import_(
    asker: Asker,
    file: Annotated[str, typer.Argument(help="What `chappe queue export` wrote; - reads input.")],
    to: Annotated[str, typer.Option(help="Another queue than the one that was exported.")] = "",
    dead: Annotated[
        bool, typer.Option("--dead", help="Send dead letters again; else they are passed over.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Also without its end.")] = False,
    resume: Annotated[str, typer.Option(help="Go on, as an import that failed said.")] = "",
) -> None:
    """Read what an export wrote: make the queue and its groups, then send, in order."""
    producer, first = _resumed(resume)
    with _reading(file) as source:
        name, lines, total = _opened(source, file, partial=partial)
        queue = asker.queue(to or name)
        importing = _Importing(queue, producer, dead)
        with progress("importing", total) as advance:
            advance(first - 1)
            importing.run(islice(lines, first - 1, None), first, advance)
    answer = {"ok": True, "queue": queue.address, **importing.counts}
    asker.tell(answer, f"[green]ok[/] {queue.address}: {importing.told()}")


class _Exported:
    """The lines of an export as they come; its last one says how many of each there were."""

    def __init__(self, lines: Iterable[bytes], advance: Advance) -> None:
        self._lines = lines
        self._advance = advance
        self._last = b""

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self._last = line
            self._advance(1)
            yield line

    def counts(self) -> dict[str, int]:
        """How much was exported, once all of it came."""
        counts: dict[str, int] = json.loads(self._last)["end"]
        return counts


class _Importing:
    """Sends lines to a node, some at a time, and says how far it came."""

    def __init__(self, queue: RemoteQueue, producer: str, dead: bool) -> None:
        self._queue = queue
        self._producer = producer
        self._dead = dead
        self._done = 0
        self.counts = dict.fromkeys(_COUNTED, 0)

    def run(self, lines: Iterable[bytes], first: int, advance: Advance) -> None:
        """Send all of them; raises ChappeError, or Interrupted, that says what went in."""
        self._done = first - 1
        try:
            self._send(lines, advance)
        except KeyboardInterrupt:
            raise Interrupted(str(self._failed("interrupted", self._done))) from None

    def _send(self, lines: Iterable[bytes], advance: Advance) -> None:
        for chunk in _chunks(lines):
            try:
                answer = self._post(b"".join(chunk), self._done + 1)
            except (RequestError, NodeUnreachable) as error:
                raise self._failed(str(error), self._done) from None
            for name in _COUNTED:
                self.counts[name] += answer[name]
            if not answer["ok"]:
                raise self._failed(f"{answer['error']}: {answer['reason']}", answer["done"])
            advance(len(chunk))
            self._done += len(chunk)

    def told(self) -> str:
        """What went in, in words."""
        went = ", ".join(f"{self.counts[name]:,} {name}" for name in _SENT if self.counts[name])
        skipped = self.counts["skipped"]
        passed = f"; dead letters passed over: {skipped:,}" if skipped else ""
        return f"{went or 'nothing'} went in{passed}"

    def _post(self, lines: bytes, line: int) -> dict[str, Any]:
        query = self._queue.query(
            line=line, producer=self._producer, dead="true" if self._dead else None
        )
        return self._queue.node.post_lines(self._queue.path("import"), lines, **query)

    def _failed(self, reason: str, done: int) -> ChappeError:
        again = f"--resume {self._producer}:{done + 1}"
        return ChappeError(f"{reason}; {self.told()}; when it is mended, go on with {again}")


@contextmanager
def _writing(out: Path | None) -> Iterator[IO[str]]:
    """A file that is there when it is whole, and not before."""
    if out is None:
        yield sys.stdout
        return
    aside = out.with_name(out.name + ".part")
    try:
        with aside.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(out)
    except OSError as error:
        raise ConfigError(f"--out: {error}") from None
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def _reading(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as source:
            yield source
    except OSError as error:
        raise ConfigError(f"FILE: {error}") from None


def _opened(
    source: IO[bytes], name: str, *, partial: bool
) -> tuple[str, Iterable[bytes], int | None]:
    """The queue in an export, its lines, and how many there are if that is known."""
    head = source.readline()
    if kind_of(head) is None:
        try:
            text = (head + source.read()).decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{name}: not UTF-8") from None
        queue, lines = lines_of(text, name)
        return queue, (line.encode() + b"\n" for line in lines), len(lines)
    if kind_of(head) != "queue":
        raise ConfigError(f"{name}: line 1: an export begins with its queue")
    total = _check_end(source, name, partial=partial) if source.seekable() else None
    return queue_of(json.loads(head)["queue"], name), _chain(head, source), total


def _check_end(source: IO[bytes], name: str, *, partial: bool) -> int | None:
    """How many lines an export has, from its end; raises ConfigError when it has none."""
    here = source.tell()
    size = source.seek(0, os.SEEK_END)
    source.seek(max(here, size - _TAIL_BYTES))
    last = source.read().rstrip().rpartition(b"\n")[2]
    source.seek(here)
    if kind_of(last) != "end":
        if partial:
            return None
        raise ConfigError(f"{name}: it breaks off before its end; --partial takes what is there")
    counts = json.loads(last)["end"]
    return 2 + sum(n for n in counts.values() if isinstance(n, int))


def _chain(head: bytes, source: IO[bytes]) -> Iterator[bytes]:
    yield head
    yield from source


def _chunks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and (len(chunk) >= _CHUNK_LINES or size + len(line) > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def _whole(lines: Iterable[bytes]) -> Iterator[str]:
    last = b""
    for line in lines:
        last = line
        yield line.decode()
    if kind_of(last) != "end":
        raise ChappeError("the export broke off: its end did not come")


def _resumed(resume: str) -> tuple[str, int]:
    """Who sends, and the line to begin with; raises ConfigError."""
    if not resume:
        return f"import-{secrets.token_hex(8)}", 1
    producer, _, line = resume.rpartition(":")
    if not producer or not line.isdecimal() or int(line) < 1:
        raise ConfigError(f"--resume: {resume!r} is not what an import said")
    return producer, int(line)
