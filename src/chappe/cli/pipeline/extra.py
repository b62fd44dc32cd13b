"""What only the pipeline needs, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from chappe.errors import ConfigError, StorageError

Tables = Annotated[Path, typer.Option(help="The folder of tables that `chappe pipeline run` made.")]


@contextmanager
def extra() -> Iterator[None]:
    """Import what is not installed everywhere; raises ConfigError that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        name = missing.name or ""
        if name.partition(".")[0] == "chappe":
            raise
        raise ConfigError(
            f"the pipeline needs the package {name}: pip install 'chappe[pipeline]', "
            "or in a checkout: make setup"
        ) from None


@contextmanager
def reading(tables: Path) -> Iterator[None]:
    """Read tables; raises StorageError where a file of theirs is damaged, or gone."""
    with extra():
        from chappe.pipeline.table import DAMAGE  # noqa: PLC0415, slow, and seldom installed
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, OSError) and error.filename is not None:
            # Not of Arrow, which reads tables: whoever opened it says what it is.
            raise
        said = str(error).partition("\n")[0]
        raise StorageError(f"{tables}: a file of the tables cannot be read: {said}") from None


def check_tables(tables: Path) -> None:
    """Raise ConfigError where no run has made a table yet, or one of another version did."""
    if not (tables / "paths" / "_delta_log").is_dir():
        raise ConfigError(f"--tables: no tables in {tables}; `chappe pipeline run` makes them")
    with extra():
        from chappe.pipeline.version import check_version  # noqa: PLC0415, slow, seldom installed
    check_version(tables)
