"""Parts: files of tables that tasks write themselves; nobody sees them until their table's commit.

A task that is done again writes the same file anew, as a whole. A step that is done again is
another attempt, and writes beside the first: that may still be under way. A server of Spark Connect
goes on for minutes with what a client began that was killed.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from chappe.pipeline.schema import TABLES, arrow_schema

# So many rows are skipped, or read, together.
_GROUP = 100_000


class Attempt(NamedTuple):
    """One attempt at a step of a run: whatever it writes is in folders of its own."""

    tables: Path
    run: int
    token: str

    @classmethod
    def begin(cls, tables: Path, run: int) -> Self:
        """Another one than all before."""
        return cls(tables.absolute(), run, uuid.uuid4().hex)

    def place(self, name: str) -> Path:
        """Where its parts of a table are."""
        # As Delta names it: without links and ways up.
        root = (self.tables / name).resolve()
        return root / f"run={self.run}" / f"of=parts-{self.token}"

    def files(self, name: str) -> list[Path]:
        """Its parts of a table, as far as they are whole."""
        return sorted(self.place(name).glob("hour=*/*.parquet"))


def write_part(
    attempt: Attempt, name: str, hour: str, piece: int, rows: pa.Table, pieces: int | None = None
) -> None:
    """Write the rows of an hour's piece; of so many, if whoever reads it wants to know that."""
    if not rows.num_rows:
        return
    schema = arrow_schema(TABLES[name])
    schema = schema.remove(schema.get_field_index("hour"))
    words = [field.name for field in schema if pa.types.is_string(field.type)]
    of = "" if pieces is None else _of(pieces)
    file = attempt.place(name) / f"hour={hour}" / f"part-{piece}{of}.parquet"
    dictionaries = [*words, *_nested_words(schema)]
    write_whole(rows.select(schema.names).cast(schema), file, use_dictionary=dictionaries)


def piece_of(file: str, pieces: int) -> int | None:
    """Which of so many pieces a file has all of, and nothing else; None if its name does not tell:
    it was of more or fewer, or became one with others."""
    piece, of, _rest = Path(file).stem.removeprefix("part-").partition(_of(pieces))
    return int(piece) if of and not _rest and piece.isdecimal() else None


def _of(pieces: int) -> str:
    return f"-of-{pieces}"


def write_whole(rows: pa.Table, file: Path, **how: Any) -> None:
    """Write a file; whoever sees it sees all of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = file.with_name(f".{file.stem}-{uuid.uuid4().hex}")
    pq.write_table(rows, begun, row_group_size=_GROUP, **how)
    begun.replace(file)


def _nested_words(schema: pa.Schema) -> list[str]:
    """The paths of words in lists of structs, as Parquet calls them."""
    found = []
    for field in schema:
        if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            for inner in field.type.value_type:
                if pa.types.is_string(inner.type):
                    found.append(f"{field.name}.list.element.{inner.name}")
                elif pa.types.is_list(inner.type):
                    found.append(f"{field.name}.list.element.{inner.name}.list.element")
    return found
