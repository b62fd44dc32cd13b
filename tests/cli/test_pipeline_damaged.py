"""Tables that are damaged are named, by whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pipeline_tables import hop, path, put, snowflake
from tests.cli.process import run_here

MESSAGE = snowflake()


@pytest.mark.parametrize("command", [("report", "--out", "page.html"), ("trace", str(MESSAGE))])
@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"no Parquet"), Path.unlink])
def test_a_file_of_the_tables_that_is_damaged_or_gone_is_named(
    tmp_path: Path, command: tuple[str, ...], damage: Callable[[Path], object]
) -> None:
    tables = tmp_path / "tables"
    put(tables, "paths", path(MESSAGE, "other", hop("dropped", "one", 1)))
    [file] = (tables / "paths").rglob("*.parquet")
    damage(file)
    words = [word.replace("page.html", str(tmp_path / "page.html")) for word in command]
    done = run_here(*words, "--tables", str(tables))
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "a file of the tables cannot be read" in said
    assert "Traceback" not in said
