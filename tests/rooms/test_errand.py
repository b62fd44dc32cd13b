from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from chappe.rooms.role import Source
from chappe.wire.rooms import RoleKind
from tests.rooms.world import ALL, World


async def broken(*_: Any) -> None:
    raise RuntimeError("a mistake")


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
    else:
        process.lookout._watches.value("/weights", broken)


@pytest.mark.parametrize("part", ["writing", "registering", "watching"])
def test_a_process_that_cannot_go_on_says_so_and_is_not_ready(part: str):
    async def story() -> None:
        world, found = World(), told()
        node = await world.start("one", ALL, alone=True)
        assert node.process.ready
        breaks(node, part)
        await asyncio.sleep(0.1)
        assert part in found[0]["message"]
        assert node.process.failed
        assert not node.process.ready
        # It ends in good order all the same.
        await node.process.stop()

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
