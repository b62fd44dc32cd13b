"""The schema: what every reader of events relies on."""

from __future__ import annotations

from pathlib import Path

from chappe.events.schema import COLUMNS, KINDS, NAMES, VERSION

# What version 1 has, in its order: more may follow, nothing may move.
FIRST = (
    *("v", "kind", "node", "boot", "serial", "at", "app", "message", "label", "sender", "target"),
    *("came", "came_from", "went_to", "n", "bytes", "session", "edge", "group_name", "attempt"),
    *("due", "reason", "peer", "ahead", "round_trip", "share"),
)


def test_columns_are_only_ever_added_at_the_end() -> None:
    assert NAMES[: len(FIRST)] == FIRST
    assert len(set(NAMES)) == len(NAMES)
    assert VERSION >= 1


def test_every_kind_names_columns_that_there_are() -> None:
    for name, kind in KINDS.items():
        assert set(kind.columns) <= set(NAMES), name
        assert kind.about


def test_what_every_event_has_is_required_and_nothing_else_is() -> None:
    required = {column.name for column in COLUMNS if column.required}
    assert required == {"v", "kind", "node", "boot", "serial", "at", "share"}


def test_every_column_and_kind_is_in_the_documents_as_it_is_here() -> None:
    written = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.type} | {column.about} |" in written
    for name, kind in KINDS.items():
        columns = ", ".join(f"`{column}`" for column in kind.columns)
        assert f"| `{name}` | {kind.about} | {columns} |" in written
