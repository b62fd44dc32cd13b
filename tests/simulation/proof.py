"""How much a run of the tests proves, and what a seed that fails is told with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chappe.simulation import Simulation
from tests.simulation.processes import digest_in_a_process

FULL = os.environ.get("CHAPPE_PROOF") == "full"


@contextmanager
def repeatable(seed: int, simulation: Simulation) -> Iterator[None]:
    """Say with a failure how to see it again."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"seed {seed}; replay: {simulation.replay}")
        raise


def check_repeats(world: Callable[[int], Any], seed: int) -> None:
    """A seed gives the same run each time and in every process; another seed another run."""
    digest = world(seed).run().trace.digest()
    assert world(seed).run().trace.digest() == digest
    assert world(seed + 1).run().trace.digest() != digest
    expression = f"{world.__module__}.{world.__name__}({seed})"
    for hash_seed in ("1", "4242") if FULL else ("4242",):
        # What it logs stands before it.
        assert digest_in_a_process(expression, hash_seed).splitlines()[-1] == digest
