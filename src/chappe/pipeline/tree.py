"""A message's way as a tree: each hop below the one that it came from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from chappe.pipeline.kinds import DROPPING, PASSING, PUSH, STAYING
from chappe.pipeline.whereabouts import comings, role_of

Hop = dict[str, Any]

_COLOURS: Final = {
    "acked": "green",
    "answered": "green",
    "cancelled": "yellow",
    "copied": "dim",
    "died": "bold red",
    "purged": "red",
    "push_acked": "green",
    "push_clicked": "green",
    "push_dropped": "yellow",
    "push_retracted": "yellow",
    "returned": "yellow",
    **dict.fromkeys(DROPPING, "bold red"),
}
# With these a node tells which others it handed a message to.
_HANDING: Final = (*PASSING, "asked", "push_sent")
# Of so many clients it is shown what became of a note.
_CLIENTS_MAX: Final = 50
_VERDICTS: Final = {"lost": "bold red", "duplicated": "yellow", "late": "yellow", "unknown": "red"}


def tree_of(path: dict[str, Any], verdicts: list[dict[str, Any]]) -> Tree:
    """The tree of one message."""
    tree = Tree(_head(path), guide_style="dim")
    hops: list[Hop] = path["hops"] or []
    telling = {hop["node"] for hop in hops}
    if path["family"] == "queue":
        _add_travelled(tree, [hop for hop in hops if _group(hop) is None], path["born"], telling)
        _add_groups(tree, [hop for hop in hops if _group(hop) is not None], path["born"])
    elif path["family"] == PUSH:
        counted = [hop for hop in hops if hop["client"] is None]
        _add_travelled(tree, counted, path["born"], telling)
        _add_clients(tree, [hop for hop in hops if hop["client"] is not None], path["born"])
    else:
        _add_travelled(tree, hops, path["born"], telling)
    for verdict in verdicts:
        tree.add(verdict_line(verdict))
    if path["open"]:
        tree.add(Text("not all of it is told yet", "dim"))
    return tree


def _head(path: dict[str, Any]) -> Text:
    name = path["label"] or str(path["message"])
    way = " → ".join(_plain(end) for end in (path["sender"], path["target"]) if end)
    head = Text.assemble((_plain(name), "bold"), "  ", way, (f"  app {path['app']}", "dim"))
    if path["born"] is not None:
        head.append(f"\n{_clock(path['born'])}", "dim")
        if path["ended"] is not None:
            head.append(f"  {_span(path['ended'] - path['born'])} in all", "dim")
    if path["share"] is not None and path["share"] < 1:
        head.append(f"  one of {1 / path['share']:,.0f} that are recorded", "dim")
    return head


def _group(hop: Hop) -> str | None:
    name: str | None = hop["group_name"]
    return name


def _add_groups(tree: Tree, hops: list[Hop], born: int | None) -> None:
    """What happened to each group of a queue by itself."""
    groups: dict[str, Tree] = {}
    for hop in hops:
        name = hop["group_name"]
        if name not in groups:
            groups[name] = tree.add(Text(f"group {_plain(name) or '(none)'}", "bold"))
        groups[name].add(_line(hop, born))


def _add_clients(tree: Tree, hops: list[Hop], born: int | None) -> None:
    """What became of a note at each client by itself, of the first of many."""
    clients: dict[str, list[Hop]] = {}
    for hop in hops:
        clients.setdefault(hop["client"], []).append(hop)
    for name in list(clients)[:_CLIENTS_MAX]:
        branch = tree.add(Text(f"client {_plain(name)}", "bold"))
        for hop in clients[name]:
            branch.add(_line(hop, born))
    if len(clients) > _CLIENTS_MAX:
        tree.add(Text(f"and {len(clients) - _CLIENTS_MAX:,} more clients", "dim"))


def _add_travelled(tree: Tree, hops: list[Hop], born: int | None, telling: set[str]) -> None:
    """Each hop below the one that handed the message to its node; below it, those nodes that it was
    handed to and that are not among those that tell anything.

    Whatever does not follow from another begins at the top, so that every hop is shown once, also
    where a word of a node is missing or two nodes say that each had it from the other.
    """
    children: dict[int | None, list[int]] = {}
    for index in range(len(hops)):
        children.setdefault(_parent(hops, index), []).append(index)
    dropped_at = {hop["node"] for hop in hops if hop["kind"] in DROPPING}
    shown: set[int] = set()

    def add(below: Tree, index: int) -> None:
        shown.add(index)
        hop = hops[index]
        branch = below.add(_line(hop, born))
        for child in children.get(index, ()):
            if child not in shown:
                add(branch, child)
        # A node of rooms may tell of it in another role.
        here = {hops[child]["node"] for child in children.get(index, ())} | dropped_at
        heard = here if role_of(hop) else telling
        for node in [one for one in hop["went_to"] or () if one not in heard]:
            branch.add(Text(f"{_plain(node)}  tells nothing of it", "bold red"))

    for index in [*children.get(None, ()), *range(len(hops))]:
        if index not in shown:
            add(tree, index)


def _parent(hops: list[Hop], index: int) -> int | None:
    hop = hops[index]
    if hop["kind"] == "answered":
        asked = [n for n, before in enumerate(hops) if before["kind"] == "asked"]
        here = [n for n in asked if hops[n]["node"] == hop["node"]]
        return next(iter(here or asked), None)
    handing = [n for n, one in enumerate(hops) if n != index and one["kind"] in _HANDING]
    if hop["came_from"] is not None:
        return _giver(hops, index, handing)
    here = [n for n in handing if hops[n]["node"] == hop["node"]]
    if hop["kind"] not in STAYING:
        return None
    mine = [n for n in here if hop["role"] and hops[n]["role"] == hop["role"]]
    return next(iter(mine or here), None)


def _giver(hops: list[Hop], index: int, handing: list[int]) -> int | None:
    """The hop that handed it to another; of several, that of the role which did. What a node has
    from itself, its broker gave to its gateway."""
    hop = hops[index]
    if hop["came_from"] == hop["node"]:
        brokers = [n for n in handing if hops[n]["node"] == hop["node"]]
        return next((n for n in brokers if hops[n]["role"] == "broker"), None)
    legs = {id(one): role for one, (_giver, _taker, role) in comings(hops)}
    gave = [
        n
        for n in handing
        if hops[n]["node"] == hop["came_from"] and hop["node"] in (hops[n]["went_to"] or ())
    ]
    as_role = [n for n in gave if role_of(hops[n]) == legs.get(id(hop))]
    # Of copies over one way, the last before it came.
    before = [n for n in as_role if n < index and role_of(hops[n])]
    return next(iter(before[-1:] or as_role or gave), None)


def _line(hop: Hop, born: int | None) -> Text:
    at = hop["at"] + (hop["shift"] or 0)
    after = "" if born is None else f"{_signed(at - born):>12}  "
    line = Text.assemble((after, "cyan"), (_plain(hop["node"]), "bold"), "  ")
    line.append(hop["kind"], _COLOURS.get(hop["kind"], ""))
    for word in _words(hop):
        line.append(f"  {word}")
    return line


def _words(hop: Hop) -> list[str]:
    words = []
    if hop["role"]:
        words.append(f"as {_plain(hop['role'])}")
    if hop["kind"] in PASSING and hop["n"]:
        words.append(f"to {hop['n']:,} session{'s' if hop['n'] != 1 else ''}")
    words += _pushed(hop)
    if hop["went_to"]:
        words.append("on to " + ", ".join(map(_plain, hop["went_to"])))
    if hop["attempt"] is not None:
        words.append(f"attempt {hop['attempt']}")
    if hop["session"]:
        words.append(f"session {_plain(hop['session'])}")
    if hop["due"] is not None:
        words.append(f"due {_clock(hop['due'])}")
    if hop["bytes"] is not None:
        words.append(f"{hop['bytes']:,} B")
    if hop["came"] is not None:
        words.append(f"took {_span(hop['at'] - hop['came'])}")
    if hop["reason"]:
        words.append(f"({_plain(hop['reason'])})")
    return words


def _pushed(hop: Hop) -> list[str]:
    """What is told of notes alone."""
    words = []
    if hop["kind"].startswith("push_") and hop["n"] is not None:
        words.append(f"{hop['n']:,} client{'s' if hop['n'] != 1 else ''}")
    if hop["offline"]:
        words.append(f"{hop['offline']:,} offline")
    if hop["expires"] is not None:
        words.append(f"until {_clock(hop['expires'])}")
    return words


def verdict_line(verdict: dict[str, Any]) -> Text:
    """What the audit says of a message."""
    line = Text("audit: ").append(verdict["verdict"], _VERDICTS.get(verdict["verdict"], "red"))
    if verdict["reason"]:
        line.append(f", {_plain(verdict['reason'])}")
    if verdict["node"]:
        line.append(f"; last seen on {_plain(verdict['node'])}")
    if verdict["at"] is not None:
        line.append(f" at {_clock(verdict['at'])}")
    return line


def _clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def _signed(us: int) -> str:
    return f"{'-' if us < 0 else '+'}{_span(abs(us))}"


def _span(us: int) -> str:
    """A time as people say it, to three digits."""
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000)):
        value = us / size
        if value >= 1:
            return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{us} us"


def _plain(text: str) -> str:
    """A text of strangers' without what would command a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)
