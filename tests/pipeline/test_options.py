"""Options of tables: the first run's, for all runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.options import Options, agree, choose


def test_what_the_first_run_was_told_is_what_all_others_are(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    assert choose(tables, {}) == Options()
    first = choose(tables, {"sla_ms": 500})
    assert first == Options(sla_ms=500)
    # Nothing was made yet: nothing is settled.
    assert choose(tables, {"sla_ms": 700}) == Options(sla_ms=700)
    assert agree(tables, first) == first
    assert choose(tables, {}) == choose(tables, {"sla_ms": 500}) == agree(tables, None) == first


def test_another_option_than_that_of_the_tables_is_refused_with_both_named(tmp_path: Path) -> None:
    agree(tmp_path, Options(sla_ms=500))
    told = rf"--sla-ms: {tmp_path} was made with 500, and now it is 900; leave --sla-ms out .* or"
    with pytest.raises(ConfigError, match=told):
        choose(tmp_path, {"sla_ms": 900})
    with pytest.raises(ConfigError, match=r"--watermark-ms: .* with 604800000, and now it is 1;"):
        agree(tmp_path, Options(sla_ms=500, watermark_ms=1))
    assert agree(tmp_path, None) == Options(sla_ms=500)


@pytest.mark.parametrize("content", ["", "[1]", '{"sla": 1}', '{"sla_ms": "x"}', '{"sla_ms": 0}'])
def test_a_file_of_something_else_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "_options.json").write_text(content)
    with pytest.raises(ConfigError, match=r"_options\.json: "):
        choose(tmp_path, {})


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0 is not above 0"), (10**15, "more than a thousand years"), (1.5, "not a whole number")],
)
def test_options_that_make_no_sense_are_refused(value: int, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"--sla-ms: .*{told}"):
        Options(sla_ms=value)


@pytest.mark.parametrize(
    ("name", "kept", "refused", "told"),
    [
        ("grace_ms", 1_000, 999, "less than 1000: a node that lives may say nothing"),
        ("reconnect_ms", 3_600_000, 3_600_001, "more than 3600000, an hour: who went earlier"),
    ],
)
def test_what_could_not_be_kept_to_is_refused(
    name: str, kept: int, refused: int, told: str
) -> None:
    assert getattr(Options(**{name: kept}), name) == kept
    with pytest.raises(ConfigError, match=rf"--{name.replace('_', '-')}: {refused} is {told}"):
        Options(**{name: refused})
