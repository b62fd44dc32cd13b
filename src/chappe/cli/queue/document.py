"""An export as one JSON document that a person can read, and as the lines it is made of.

The node speaks lines: `{"message": {...}}`. The document has the same under five names, with one
message on a line of its own:

    {
    "queue": {...},
    "groups": [
    {...}
    ],
    "messages": [...], "delayed": [...], "dead": [...],
    "end": {"messages": 1, ...}
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from chappe.errors import ChappeError, ConfigError

# What a line is called, and the name of all of its kind in a document.
_LISTS = {"group": "groups", "message": "messages", "delayed": "delayed", "dead": "dead"}
_KINDS = ("queue", *_LISTS, "end")
# What opens and closes in JSON, and strings and ends of lines between.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]|\n', re.DOTALL)


def document_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The text of a document, piece by piece; raises ChappeError when the lines break off."""
    yield "{\n"
    waiting = list(_LISTS)
    current = ""
    for line in lines:
        kind, value = _read(line)
        if kind == "end":
            yield from _headings(waiting, current)
            yield f'"end": {value}\n}}\n'
            return
        if kind == "queue":
            yield f'"queue": {value}'
        elif kind == current:
            yield f",\n{value}"
        elif kind not in waiting:
            raise ChappeError("what the node sent is no export")
        else:
            until = waiting.index(kind) + 1
            yield from _headings(waiting[:until], current, closed=False)
            del waiting[:until]
            yield value
            current = kind
    raise ChappeError("the export broke off: its end did not come")


def lines_of(text: str, name: str) -> tuple[str, list[str]]:
    """The queue of a document, and its lines; raises ConfigError naming what is wrong."""
    try:
        return _lines_of(text, name)
    except RecursionError:
        raise ConfigError(f"{name}: line {_deepest(text)}: nested too deeply") from None


def _lines_of(text: str, name: str) -> tuple[str, list[str]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: neither JSON lines nor a JSON document: {error}") from None
    if not isinstance(document, dict) or "queue" not in document:
        raise ConfigError(f"{name}: no export: it has no 'queue'")
    if unknown := set(document) - {"queue", "end", *_LISTS.values()}:
        raise ConfigError(f"{name}: an export has no {min(unknown)!r}")
    lines = [json.dumps({"queue": document["queue"]})]
    for kind, heading in _LISTS.items():
        listed = document.get(heading, [])
        if not isinstance(listed, list):
            raise ConfigError(f"{name}: {heading}: not a list")
        lines += [json.dumps({kind: value}) for value in listed]
    return queue_of(document["queue"], name), lines


def kind_of(line: bytes) -> str | None:
    """What a line of an export is about; None for a line of anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kinds = [kind for kind in _KINDS if isinstance(value, dict) and kind in value]
    return kinds[0] if len(kinds) == 1 and len(value) == 1 else None


def queue_of(value: Any, name: str) -> str:
    """The address that a queue had; raises ConfigError."""
    queue = value.get("queue") if isinstance(value, dict) else None
    if not isinstance(queue, str):
        raise ConfigError(f"{name}: queue: it does not say which; say so with --to")
    return queue


def _read(line: bytes) -> tuple[str, str]:
    """A line's kind, and its value as text on one line."""
    try:
        ((kind, value),) = json.loads(line).items()
        if kind not in _KINDS:
            raise ValueError(kind)
        return kind, json.dumps(value, ensure_ascii=False)
    except (ValueError, AttributeError):
        raise ChappeError("what the node sent is no export") from None
    except RecursionError:
        raise ChappeError("a message is nested too deeply for a document; use --lines") from None


def _deepest(text: str) -> int:
    """The line on which a text is nested most deeply."""
    line, depth, found, most = 1, 0, 1, 0
    for token in _TOKENS.findall(text):
        if token in ("[", "{"):
            depth += 1
            if depth > most:
                most, found = depth, line
        elif token in ("]", "}"):
            depth -= 1
        else:
            line += token.count("\n")
    return found


def _headings(kinds: list[str], current: str, *, closed: bool = True) -> Iterator[str]:
    """End a list, and begin these; the last of them is left open unless all are closed."""
    yield "\n],\n" if current else ",\n"
    for at, kind in enumerate(kinds):
        last = at == len(kinds) - 1
        yield f'"{_LISTS[kind]}": [' + ("\n" if last and not closed else "],\n")
