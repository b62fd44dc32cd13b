"""Visits: requests about sessions on another node, answered there part by part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from chappe.cluster import visits as module
from chappe.edge.http.relay import Relayed, RelayedPart
from chappe.errors import Overload, Unreachable
from chappe.wire.node import Visit, VisitOver, VisitPart
from tests.cluster.hamlet import Hamlet
from tests.loop import on_loop

ASKED = Relayed("POST", "/v1/poll", b"wait=1", {"authorization": "x"}, b"body", "1.2.3.4")
_TURNS_MAX = 200


class Desk:
    """Answers what it is told to, a part at a time."""

    def __init__(self) -> None:
        self.asked: list[Relayed] = []
        self.parts: asyncio.Queue[RelayedPart | None] = asyncio.Queue()
        self.ended = 0

    async def serve(self, request: Relayed) -> AsyncGenerator[RelayedPart, None]:
        self.asked.append(request)
        try:
            while (part := await self.parts.get()) is not None:
                yield part
        finally:
            self.ended += 1


async def until(hamlet: Hamlet, condition: Callable[[], bool]) -> None:
    """Let tasks and nodes go on until it is so."""
    for _ in range(_TURNS_MAX):
        hamlet.settle()
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not become so")


async def visit(hamlet: Hamlet, got: list[RelayedPart], node: str = "b") -> None:
    async with aclosing(hamlet["a"].cluster.visits.relay(node, ASKED)) as parts:
        async for part in parts:
            got.append(part)  # noqa: PERF401, whoever waits looks at it meanwhile


def desk_of(hamlet: Hamlet, name: str) -> Desk:
    desk = Desk()
    hamlet[name].cluster.visits.serve = desk.serve
    return desk


@on_loop
async def test_a_request_is_answered_in_parts_by_the_node_it_names() -> None:
    hamlet = Hamlet("a", "b", "c")
    desk, other = desk_of(hamlet, "b"), desk_of(hamlet, "c")
    assert hamlet["a"].cluster.visits.named("b") == "b"
    assert hamlet["a"].cluster.visits.named("x") is None
    got: list[RelayedPart] = []
    asking = asyncio.create_task(visit(hamlet, got))
    parts = [RelayedPart(200, {"a": "b"}, b"1"), RelayedPart(body=b"2"), RelayedPart(body=b"")]
    for n, part in enumerate(parts):
        desk.parts.put_nowait(part)
        await until(hamlet, lambda n=n: len(got) == n + 1)
    assert not asking.done()
    desk.parts.put_nowait(None)
    await until(hamlet, asking.done)
    await asking
    assert got == parts
    assert desk.asked == [ASKED]
    assert (desk.ended, other.asked) == (1, [])


@on_loop
async def test_two_at_once_are_kept_apart_and_a_word_about_neither_is_ignored() -> None:
    hamlet = Hamlet("a", "b")
    desk = desk_of(hamlet, "b")
    got: list[list[RelayedPart]] = [[], []]
    tasks = [asyncio.create_task(visit(hamlet, one)) for one in got]
    await until(hamlet, lambda: len(desk.asked) == 2)
    hamlet.forge("b", "a", VisitPart(2, b"", True), VisitPart(99, b"", True))
    await until(hamlet, tasks[1].done)
    assert not tasks[0].done()
    hamlet.forge("b", "a", VisitPart(1, b"", True))
    await until(hamlet, tasks[0].done)
    assert got == [[], []]


@on_loop
async def test_who_waits_no_longer_ends_the_request_there() -> None:
    hamlet = Hamlet("a", "b")
    desk = desk_of(hamlet, "b")
    asking = asyncio.create_task(visit(hamlet, []))
    await until(hamlet, lambda: len(desk.asked) == 1)
    asking.cancel()
    await until(hamlet, lambda: desk.ended == 1)
    assert asking.cancelled()
    # One whose answer was whole says nothing more.
    again = asyncio.create_task(visit(hamlet, []))
    await until(hamlet, lambda: len(desk.asked) == 2)
    hamlet.hold("a", "b")
    desk.parts.put_nowait(None)
    await until(hamlet, again.done)
    await again
    hamlet.tick()
    assert [op for op in hamlet.said("a", "b") if isinstance(op, VisitOver)] == []
    hamlet.forge("a", "b", VisitOver(77))


@on_loop
async def test_when_a_node_goes_both_ends_of_a_visit_do() -> None:
    hamlet = Hamlet("a", "b", "c")
    desk, other = desk_of(hamlet, "b"), desk_of(hamlet, "c")
    lost, kept = (asyncio.create_task(visit(hamlet, [], node)) for node in "bc")
    await until(hamlet, lambda: bool(desk.asked and other.asked))
    hamlet.cut("a", "b")
    await until(hamlet, lambda: lost.done() and desk.ended == 1)
    with pytest.raises(Unreachable, match="gone"):
        await lost
    assert not kept.done()
    assert other.ended == 0
    kept.cancel()
    with pytest.raises(Unreachable, match="gone"):
        await visit(hamlet, [])


@on_loop
async def test_a_node_that_resets_while_it_is_asked_leaves_nobody_waiting() -> None:
    hamlet = Hamlet("a", "b")
    peer = hamlet["a"].peer("b")
    hamlet.pause("a", "b")
    while peer.up and peer.waiting_bytes < 15 * 1024 * 1024:
        peer.tell(VisitOver(0), 1024 * 1024)
    large = Relayed("POST", "/", b"", {}, b"x" * (4 * 1024 * 1024), "")
    parts = hamlet["a"].cluster.visits.relay("b", large)
    asking = asyncio.ensure_future(anext(parts))
    await until(hamlet, asking.done)
    with pytest.raises(Unreachable):
        await asking


@on_loop
async def test_visits_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_VISITS_MAX", 2)
    hamlet = Hamlet("a", "b")
    desk = desk_of(hamlet, "b")
    tasks = [asyncio.create_task(visit(hamlet, [])) for _ in range(2)]
    await until(hamlet, lambda: len(desk.asked) == 2)
    with pytest.raises(Overload, match="too many"):
        await visit(hamlet, [])
    # One too many from elsewhere is refused as a server would.
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", Visit(50, module._encode(ASKED)))
    hamlet.tick()
    (op,) = (op for op in hamlet.said("b", "a") if isinstance(op, VisitPart))
    assert (op.number, op.last, module._read_part(op.part).status) == (50, True, 503)
    for task in tasks:
        task.cancel()
    hamlet.release("b", "a")
    await until(hamlet, lambda: desk.ended == 2)
    again = asyncio.create_task(visit(hamlet, []))
    await until(hamlet, lambda: len(desk.asked) == 3)
    again.cancel()
    await until(hamlet, lambda: desk.ended == 3)


@on_loop
async def test_an_answer_that_nobody_reads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PARTS_MAX", 3)
    hamlet = Hamlet("a", "b")
    desk = desk_of(hamlet, "b")
    parts = hamlet["a"].cluster.visits.relay("b", ASKED)
    first = asyncio.ensure_future(anext(parts))
    await until(hamlet, lambda: len(desk.asked) == 1)
    part = module._encode(RelayedPart(body=b"x"))
    hamlet.forge("b", "a", *[VisitPart(1, part)] * 10)
    await first
    for _ in range(2):
        await anext(parts)
    with pytest.raises(Overload, match="faster"):
        await anext(parts)
    await until(hamlet, lambda: desk.ended == 1)


def test_a_node_that_serves_nobody_says_so_and_garbage_resets_the_link() -> None:
    hamlet = Hamlet("a", "b")
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", Visit(3, module._encode(ASKED)))
    hamlet.tick()
    (op,) = (op for op in hamlet.said("b", "a") if isinstance(op, VisitPart))
    assert (op.number, op.last, module._read_part(op.part).status) == (3, True, 503)
    hamlet.forge("a", "b", Visit(4, b"\xc1"))
    assert "Visit" in hamlet.end("b", "a").reason
