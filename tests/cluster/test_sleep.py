"""A node that was stopped in its sleep, and woken too late: both sides make a new link (H6)."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from chappe.registry.membership import Member
from tests.cluster.intruder import Intruder
from tests.cluster.meshes import DROWSY, Board, make_peer, started
from tests.loop import on_loop

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("sleeper", ["a", "c"])
def test_a_process_that_slept_longer_than_the_time_drops_its_links_and_so_do_its_peers(
    sleeper: str,
):
    # Once as the one that dials, once as the one that is dialled.
    @on_loop
    async def run() -> None:
        board = Board()
        b = make_peer("b", board, link=DROWSY)
        async with started(b):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.cluster.sleeper",
                sleeper,
                msgspec.json.encode(b.mesh.me).decode(),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                await _sleep_through(process, sleeper, b, board)
            finally:
                # It ends with its standard input when all is well; nobody waits for more.
                if process.returncode is None:
                    process.kill()
                await process.communicate()

    async def _sleep_through(process, name, b, board) -> None:
        lines = (line.decode().strip() async for line in process.stdout)
        async for line in lines:
            if line.startswith("{"):
                board.put(msgspec.json.decode(line, type=Member))
                break
        await b.linked_to(name)
        old = b.links[name]
        process.send_signal(signal.SIGSTOP)
        await b.witness.until(lambda: b.witness.downs == [(name, "silence")])
        await asyncio.sleep(DROWSY.silence_s)
        process.send_signal(signal.SIGCONT)
        async for line in lines:
            if line.startswith("down"):
                break
        await b.linked_to(name)
        assert b.links[name] is not old
        assert b.links[name].incarnation == old.incarnation

    run()


def test_a_process_that_slept_does_not_believe_what_waited_in_its_kernel():
    async def run() -> None:
        b = make_peer("b", Board(), link=DROWSY)
        async with started(b):
            peer = await Intruder.prove(b.port, "a")
            peer.come_up()
            await b.linked_to("a")
            peer.say_raw(peer.frame_of(b"from before the sleep"))
            # The loop stands still: what came, and what is due, waits. asyncio's own loop then
            # reads before it looks at its timers.
            time.sleep(2 * DROWSY.silence_s)
            await b.witness.until(lambda: bool(b.witness.downs))
            assert b.witness.downs == [("a", "silence")]
            assert not b.witness.bodies
            await peer.hung_up()

    asyncio.run(asyncio.wait_for(run(), 30))
