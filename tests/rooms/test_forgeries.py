"""Datagrams that fail their MAC: most often a process has another secret."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from chappe.rooms import forgeries
from chappe.rooms.forgeries import Forgeries

ME, OTHER = ("10.0.0.1", 7404), ("10.0.0.2", 7404)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Any:
    with capture_logs() as lines:
        monkeypatch.setattr(forgeries, "log", structlog.get_logger())
        yield lines


def test_who_sends_nothing_but_forgeries_is_named_once_in_a_while(logged: Any) -> None:
    forged = Forgeries(ME)
    for second in range(1, 1000):
        forged.came(OTHER, float(second))
    assert [line["event"] for line in logged] == ["rooms.secret"] * 2
    assert "from 10.0.0.2:7404 fail their MAC" in logged[0]["reason"]
    assert "same cluster.secret" in logged[0]["reason"]


def test_one_that_is_believed_meanwhile_is_not(logged: Any) -> None:
    forged = Forgeries(ME)
    for second in range(100):
        forged.came(OTHER, float(second))
        forged.came(OTHER, float(second))
        forged.believe(OTHER)
    assert logged == []
    assert not forged


def test_many_who_forge_fill_neither_memory_nor_log(logged: Any) -> None:
    forged = Forgeries(ME)
    for number in range(1, 50_000):
        for _ in range(3):
            forged.came(("10.0.0.3", number), number / 1000)
    assert len(logged) == 5
    assert len(forged._of) <= 64
