"""The examples, run as a reader of them would."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from .conftest import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
PRICES = (101.5, 102.25, 99.75)
EXPECTED = {
    "hello.py": ["user:alice says: hello, Bob"],
    "recovery.py": ["live: 1:0", "missed: 1:1", "missed: 2:1", "nothing is lost"],
    "service.py": [
        "32 F is 0.0 C",
        "98.6 F is 37.0 C",
        "212 F is 100.0 C",
        "refused: data: a number is meant",
    ],
    "workqueue.py": ["left over: 0", *(f"done: picture-{n}.png" for n in range(6))],
    "ticker.py": [f"user:reader-{n} sees {price}" for n in range(3) for price in PRICES],
}


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_does_what_it_says(run, name, edge):
    async def test():
        async with serving() as service:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "error",
                str(EXAMPLES / name),
                service.url(edge),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, errors = await process.communicate()
            assert (process.returncode, errors) == (0, b"")
            assert sorted(out.decode().splitlines()) == sorted(EXPECTED[name])
            assert not service.hub.sessions

    run(test())


def test_no_example_is_forgotten():
    elsewhere = {"cluster.py"}  # tests/cli/test_cluster.py
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED) | elsewhere
