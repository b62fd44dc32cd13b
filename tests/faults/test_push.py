"""Push by real processes: whatever dies, nothing that was answered is lost, or shown twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import push_deaths
from .figures import FULL
from .push_layout import LIMIT_S, PushLayout
from .trio import story

pytestmark = pytest.mark.timeout(3000 if FULL else 300)

SEEDS = range(1, 6) if FULL else (1,)
# One of the comets has users beside its devices.
ROLES = {"c1": "comet", "c2": "hub,comet", "w1": "web", "a1": "admin"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushLayout]:
    layout = PushLayout(tmp_path_factory.mktemp("push"), ROLES)
    yield layout
    layout.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_dies(layout: PushLayout, tmp_path: Path, seed: int) -> None:  # P7
    faults, groups, each = (40, 4, 10) if FULL else (8, 2, 3)
    story(push_deaths.anything_dies, layout, tmp_path, seed, faults, groups, each, limit_s=LIMIT_S)
