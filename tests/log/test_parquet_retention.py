"""Old copies go, and those of others stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from chappe.log.parquet.retention import Retention, let_go

NOW = datetime(2026, 5, 3, 12, 30, tzinfo=UTC)
HOURS = ("date=2026-05-01/hour=23", "date=2026-05-03/hour=10", "date=2026-05-03/hour=12")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for hour in HOURS:
        for owner in ("node", "node-a"):
            path = tmp_path / hour / f"{owner}-{16 * '0'}-9c1f03aa.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 100)
    return tmp_path


def left(folder: Path, owner: str) -> list[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    return sorted(str(one.parent) for one in found if one.name.rsplit("-", 2)[0] == owner)


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), 3),
        (Retention(seconds=86_400.0), 2),
        (Retention(seconds=3_600.0), 1),
        (Retention(bytes=300), 3),
        (Retention(bytes=299), 2),
        (Retention(bytes=1), 0),
        (Retention(seconds=86_400.0, bytes=100), 1),
    ],
)
def test_what_is_too_old_or_too_much_goes_oldest_first(
    folder: Path, retention: Retention, kept: int
) -> None:
    gone = let_go(folder, "node", retention, NOW)
    assert len(gone) == 3 - kept
    assert left(folder, "node") == list(HOURS[3 - kept :])
    assert left(folder, "node-a") == list(HOURS), "another's"
    assert let_go(folder, "node", retention, NOW) == []


def test_an_hour_that_is_empty_goes_too_and_what_is_no_copy_stays(folder: Path) -> None:
    (folder / HOURS[1] / "notes.txt").write_text("mine")
    (folder / "date=soon" / "hour=1").mkdir(parents=True)
    odd = folder / "date=soon" / "hour=1" / "node-0-0.parquet"
    odd.write_bytes(b"")
    for owner in ("node", "node-a"):
        let_go(folder, owner, Retention(seconds=1.0, bytes=1), NOW)
    assert not (folder / "date=2026-05-01").exists()
    assert (folder / HOURS[1] / "notes.txt").exists()
    assert odd.exists()
