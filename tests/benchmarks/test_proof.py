"""The full proof: whatever a run of the tests leaves to it is part of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.proof import PROOFS, ROOT

# How a test says that it does more in full.
ASKS = re.compile(r"CHAPPE_PROOF|^from .+ import .*\b(?:FULL|full_only)\b", re.MULTILINE)
ASKING = [
    path.relative_to(ROOT)
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    if path != Path(__file__) and ASKS.search(path.read_text())
]


@pytest.mark.parametrize("path", ASKING, ids=str)
def test_what_does_more_in_full_is_part_of_the_full_proof(path: Path) -> None:
    proofs = {Path(proof) for proof in PROOFS.values()}
    assert proofs & {path, *path.parents}


def test_every_proof_is_there() -> None:
    assert [proof for proof in PROOFS.values() if not (ROOT / proof).exists()] == []
