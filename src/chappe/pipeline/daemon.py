"""The process that Spark forks its Python workers from, with all that tasks need loaded already.

A worker would load it itself, which takes longer than most tasks do, and look through all of it for
garbage after every task.
"""

from __future__ import annotations

import gc

from pyspark import daemon, worker  # noqa: F401, the latter is what each of them runs

from chappe.pipeline import audit, hourly, minutes, paths, presence, reading  # noqa: F401


def main() -> None:
    """Fork a worker whenever Spark asks for one."""
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
