"""Logs of nodes that were killed are sealed by somebody else, who gets in nobody's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.log.fs import OsFs
from chappe.log.writer import LOCK
from chappe.node.sealing import Sealed, Sealer
from tests.events.tables import of, rows, until_told
from tests.faults.process import NodeProcess


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    node = NodeProcess(tmp_path, "[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n")
    yield node
    node.kill()


def test_a_log_is_sealed_once_nobody_has_written_it_from_one_look_to_the_next(
    node: NodeProcess,
) -> None:
    events = node.data / "events"
    sealer = Sealer(events)
    for _ in range(2):
        until_told(events / "_log/node")
        assert sealer.look() == Sealed()
    until_told(events / "_log/node")
    node.kill()
    # It may come back at once.
    assert sealer.look() == Sealed()
    assert not list(events.rglob("*.parquet"))
    assert sealer.look().nodes == ["node"]
    assert len(of(rows(events), "node_gone")) == 1
    for _ in range(3):
        # All of it is sealed: it is not even locked.
        assert sealer.look() == Sealed()
    node.start()
    until_told(events / "_log/node")
    node.kill()
    assert [sealer.look().nodes for _ in range(3)] == [[], ["node"], []]
    assert len(of(rows(events), "node_gone")) == 2


def test_a_log_that_is_silent_and_in_use_is_sealed_when_it_is_free(node: NodeProcess) -> None:
    events = node.data / "events"
    until_told(events / "_log/node")
    node.kill()
    sealer = Sealer(events)
    held = OsFs().lock(str(events / "_log/node" / LOCK))
    assert [sealer.look().alive for _ in range(3)] == [[], ["node"], ["node"]]
    held.close()
    assert sealer.look().nodes == ["node"]


def test_a_folder_without_logs_has_none_to_seal(tmp_path: Path) -> None:
    assert Sealer(tmp_path / "nowhere").look() == Sealed()
    (tmp_path / "_log" / "n1").mkdir(parents=True)
    sealer = Sealer(tmp_path)
    assert [sealer.look().events for _ in range(2)] == [0, 0]
