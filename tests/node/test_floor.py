"""The floor of message ids: durable, whole, and refused when it is garbage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.ids import EPOCH_MS, TIME_MAX, Snowflake
from chappe.node.floor import FileFloor


def test_a_new_folder_has_no_floor_and_a_stored_one_is_found_again(tmp_path: Path) -> None:
    floor = FileFloor(tmp_path / "ids.floor")
    assert floor.load() == 0
    for value in (1, 12_345_678, TIME_MAX):
        floor.store(value)
        assert FileFloor(tmp_path / "ids.floor").load() == value
    assert os.listdir(tmp_path) == ["ids.floor"]


def test_the_file_and_its_name_are_flushed_before_store_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def watched_rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    FileFloor(tmp_path / "ids.floor").store(7)
    assert steps == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"12.5", b"\xff\xfe", b"1 2", b"-1", b"%d" % (TIME_MAX + 1), b"9" * 40]
)
def test_garbage_is_refused_rather_than_begun_anew(tmp_path: Path, content: bytes) -> None:
    """To begin at nought would give ids a second time."""
    path = tmp_path / "ids.floor"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"data: .*ids\.floor"):
        FileFloor(path).load()


def test_a_process_started_again_with_its_clock_set_back_gives_new_ids(tmp_path: Path) -> None:
    floor, now = FileFloor(tmp_path / "ids.floor"), EPOCH_MS + 1_000_000_000
    first = Snowflake(0, lambda: now, floor)
    given = {first.next() for _ in range(10_000)}
    second = Snowflake(0, lambda: now - 3_600_000, FileFloor(tmp_path / "ids.floor"))
    again = [second.next() for _ in range(10_000)]
    assert not given & set(again)
    assert min(again) > max(given)
