"""Runs in other processes, where memory lies elsewhere and hashes differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def digest_in_a_process(expression: str, hash_seed: str) -> str:
    """Run what an expression such as `package.module.World(7)` makes; the hash of its trace."""
    module = expression.partition("(")[0].rpartition(".")[0]
    return subprocess.run(
        [sys.executable, "-c", f"import {module}\nprint({expression}.run().trace.digest())"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    ).stdout.strip()
