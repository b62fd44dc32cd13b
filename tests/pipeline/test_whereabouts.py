"""What the audit finds hop by hop is what is found of many messages at once."""

from __future__ import annotations

from hypothesis import given

from chappe.pipeline.kinds import TRAVELLING
from chappe.pipeline.paths import paths_of
from chappe.pipeline.whereabouts import missing, untold_by
from tests.pipeline.tales import OPTIONS, TALES, UNSHRUNK, Tale

H0 = "2026-03-16T00"


@UNSHRUNK
@given(TALES)
def test_a_path_is_open_if_a_node_s_word_is_missing(tale: Tale) -> None:
    paths, _trails = paths_of(tale.table(), H0, tale.clocks(), OPTIONS)
    for path in paths.to_pylist():
        if path["family"] in TRAVELLING:
            waits = [*missing(path["hops"]), *untold_by(path["hops"])]
            assert path["open"] == bool(waits), path
