"""Progress of long work, on standard error, where a person looks and no script reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int | None, *, shown: bool = True) -> Iterator[Advance]:
    """Show how far something is; gives what is called with each so many more that are done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not (shown and sys.stderr.isatty()),
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
