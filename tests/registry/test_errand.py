from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from chappe.registry import errand
from chappe.rooms.role import Source
from chappe.wire.rooms import RoleKind
from tests.rooms.world import ALL, World


async def broken(*_: Any) -> None:
    raise RuntimeError("a mistake")


class Ending:
    """A registry whose watches end."""

    async def watch(self, path: str) -> AsyncIterator[None]:
        for nothing in ():
            yield nothing


PARTS = [
    "writing",
    "registering",
    "comparing",
    "withdrawing",
    "opening the port",
    "watching and broken",
    "watching and ended",
]


def told() -> list[dict[str, Any]]:
    """What the loop is told from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


def breaks(node: Any, part: str) -> None:
    process = node.process
    if part == "writing":
        process.writer._store.change = broken
        process.writer.add({"a": b""}, [])
    elif part == "registering":
        enrolment = process.crew.stations[RoleKind.PROXY, 0]._enrolment
        enrolment._tell = broken
        enrolment.tell(msgspec.structs.replace(enrolment.place, modulus=9))
    elif part == "comparing":
        process.dispatch.routers[0].audit.begin = None
    elif part == "withdrawing":
        crew = process.crew
        crew.stations[RoleKind.BROKER, 0].stop = broken
        crew.see(replace(crew._roll, wanted=0))
    elif part == "opening the port":
        process.port.open = broken
        process.port._transport.abort()
    elif part == "watching and broken":
        process.lookout._watches.value("/weights", broken)
    else:
        process.lookout._watches._coordination = Ending()
        process.lookout._watches.value("/weights", broken)


@pytest.mark.parametrize("part", PARTS)
def test_a_process_that_cannot_go_on_says_so_once_and_is_not_ready(part: str):
    async def story() -> None:
        world, found = World(), told()
        node = await world.start("one", ALL, alone="port" not in part, audit_s=0.05)
        await world.settled()
        assert node.process.ready
        failed: list[str] = []
        node.process.on_failed = lambda: failed.extend(node.process.dead)
        breaks(node, part)
        await asyncio.sleep(0.1)
        word = part.split(" and ", maxsplit=1)[0]
        assert word in found[0]["message"]
        assert [word in what for what in node.process.dead] == [True]
        assert not node.process.ready
        await asyncio.sleep(3 * node.process.options.beat_s)
        assert failed == node.process.dead
        # It ends in good order all the same.
        await node.process.stop()

    asyncio.run(story())


def test_what_has_an_end_may_come_to_it_and_what_is_cancelled_is_not_dead():
    async def ends() -> None:
        await asyncio.sleep(0)

    async def story() -> None:
        found = told()
        tasks = [errand.run(ends(), "short", ends=True), errand.run(ends(), "never begun")]
        await errand.end(tasks[1])
        await asyncio.sleep(0.01)
        assert errand.dead(tasks) == found == []

    asyncio.run(story())


def test_a_role_that_fails_leaves_the_turn_to_the_others():
    async def story() -> None:
        world = World()
        node = await world.start("one", ALL)
        await world.settled()
        process = node.process
        process._turn_handle = None
        process.post.take = lambda *_: [(object(), Source(("", 0), ""))]
        with pytest.raises(KeyError):
            process._receive(b"", ("", 0))
        assert process._turn_handle is not None
        del process.post.take
        await world.stop()

    asyncio.run(story())
