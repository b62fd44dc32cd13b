"""The process that copies, from its node's side: it may fail, die, hang and be somebody else's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chappe.node import copying as module
from chappe.node.copying import Copying
from chappe.node.options import ParquetOptions
from tests.log.rig import Rig
from tests.queues.test_parquet_copies import filled

ON = ParquetOptions(enabled=True)
# Each is told the folder, and counts the orders there.
COUNTING = """
import pathlib, sys
orders = pathlib.Path(sys.argv[1], "orders")
for line in sys.stdin:
    with orders.open("a") as file:
        file.write(line)
    n = len(orders.read_text().splitlines())
"""
WORKS = COUNTING + "    print('{}', flush=True)"
FULL_AT_FIRST = COUNTING + """    print('{"error": "disk full"}' if n < 3 else '{}', flush=True)"""
DIES_AT_FIRST = COUNTING + "    sys.exit(3) if n < 3 else print('{}', flush=True)"
DIES = COUNTING + "    sys.exit(3)"
BABBLES = COUNTING + "    print('what?', flush=True)"
HANGS = COUNTING + "    sys.stdin.read()"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_RETRY_S", "_RETRY_MAX_S", "_LOOK_S"):
        monkeypatch.setattr(module, name, 0.001)
    monkeypatch.setattr(module, "_END_S", 0.5)


def run(
    rig: Rig, script: str, true: Callable[[Copying], bool], seals: Callable[[], None] | None = None
) -> Copying:
    """Copy a journal with a process that runs a script, until something is true."""

    async def life() -> Copying:
        copying = Copying(ON, rig.folder, (sys.executable, "-c", script))
        copying.start()
        copying.take("node", rig.journal)
        if seals is not None:
            while copying.copied < 3:
                await asyncio.sleep(0.01)
            seals()
        try:
            async with asyncio.timeout(60):
                while not true(copying):
                    await asyncio.sleep(0.01)
        finally:
            await copying.stop()
        return copying

    return asyncio.run(life())


def orders(rig: Rig) -> int:
    return len((rig.folder / "parquet" / "orders").read_text().splitlines())


def missed(copying: Copying) -> int:
    return sum(each.copies.missed for each in copying._brokers.values())


def test_each_sealed_segment_is_ordered_once(tmp_path: Path):
    rig = filled(tmp_path)

    def seal() -> None:
        while len(rig.journal.bases) < 6:
            rig.put("x" * 100)

    copying = run(rig, WORKS, lambda copying: copying.copied == 5, seal)
    assert (orders(rig), missed(copying)) == (5, 0)


@pytest.mark.parametrize("script", [FULL_AT_FIRST, DIES_AT_FIRST])
def test_what_failed_is_tried_again_and_nothing_is_passed_over(tmp_path: Path, script: str):
    rig = filled(tmp_path)
    copying = run(rig, script, lambda copying: copying.copied == 3)
    assert (orders(rig), missed(copying)) == (5, 0)


@pytest.mark.parametrize("script", [DIES, BABBLES])
def test_a_segment_that_ends_every_process_is_given_up(tmp_path: Path, script: str):
    rig = filled(tmp_path, segments=2)
    copying = run(rig, script, lambda copying: missed(copying) == 1)
    assert (orders(rig), copying.copied) == (5, 0)


def test_a_disk_that_stays_full_is_never_given_up(tmp_path: Path):
    rig = filled(tmp_path)
    script = COUNTING + """    print('{"error": "disk full"}', flush=True)"""
    copying = run(rig, script, lambda copying: orders_of(rig) > 10)
    assert (copying.copied, missed(copying)) == (0, 0)
    assert all(rig.journal.keep(base) for base in rig.journal.bases)  # type: ignore[misc]


def orders_of(rig: Rig) -> int:
    return orders(rig) if (rig.folder / "parquet" / "orders").exists() else 0


def test_a_process_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_COPY_S", 0.5)
    rig = filled(tmp_path, segments=2)
    copying = run(rig, HANGS, lambda copying: orders_of(rig) >= 2)
    assert (copying.copied, missed(copying)) == (0, 0)


def test_it_stops_at_once_while_the_process_is_busy(tmp_path: Path):
    rig = filled(tmp_path, segments=2)
    copying = run(rig, HANGS, lambda copying: orders_of(rig) == 1)
    assert copying._process is None


def test_a_process_whose_end_was_not_waited_for_is_ended_all_the_same(tmp_path: Path):
    rig = filled(tmp_path, segments=2)

    async def life() -> int | None:
        copying = Copying(ON, rig.folder, (sys.executable, "-c", HANGS))
        copying.start()
        copying.take("node", rig.journal)
        async with asyncio.timeout(60):
            while not orders_of(rig):
                await asyncio.sleep(0.01)
        process = copying._process
        assert process is not None
        ending = asyncio.create_task(copying._end())
        await asyncio.sleep(0)
        ending.cancel()
        await copying.stop()
        return process.returncode

    assert asyncio.run(life()) is not None


def test_an_idle_process_ends_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_IDLE_S", 0.01)
    rig = filled(tmp_path)
    run(rig, WORKS, lambda copying: copying.copied == 3 and copying._process is None)

    def seal() -> None:
        while len(rig.journal.bases) < 6:
            rig.put("x" * 100)

    again = run(rig, WORKS, lambda copying: copying.copied == 5, seal)
    assert again.copied == 5


def test_what_another_node_serves_is_copied_no_more(tmp_path: Path):
    rig = filled(tmp_path, segments=2)

    async def life() -> None:
        copying = Copying(ON, rig.folder, (sys.executable, "-c", WORKS))
        copying.start()
        copying.take("node", rig.journal)
        # The same journal again, as when its master was not ready for a while.
        copying.take("node", rig.journal)
        copying.let_go("node")
        await asyncio.sleep(0)
        assert copying._choose() is None
        await copying.stop()

    asyncio.run(life())
    assert orders_of(rig) == 0
