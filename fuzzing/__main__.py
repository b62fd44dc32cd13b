"""`python -m fuzzing`: run the targets, print what failed."""

from __future__ import annotations

import argparse
import sys

from fuzzing.run import run
from fuzzing.target import targets


def main() -> int:
    """Run the chosen targets and return how the process ends: 0 when nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    chosen = [t for t in targets() if not options.target or t.name in options.target]
    if not chosen:
        parser.error("no such target; there are: " + ", ".join(t.name for t in targets()))
    failed = False
    for target in chosen:
        count, failures = run(target, options.seed, seconds=options.seconds / len(chosen))
        print(f"{target.name}: {count} inputs, {len(failures)} failed", flush=True)
        for failure in failures:
            print(failure, flush=True)
        failed |= bool(failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
