"""Stages of a run as they end, on standard error, where a person looks and no script reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text


class Stages:
    """Tells of each stage when it is over; to a terminal also that there is one under way."""

    def __init__(self, *, shown: bool = True) -> None:
        self.seconds: dict[str, float] = {}
        console = Console(stderr=True, quiet=not shown, highlight=False, emoji=False)
        self._console = console
        self._status = console.status("working") if shown and sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def ended(self, stage: str, seconds: float) -> None:
        """Tell that a stage is over, and how long it took."""
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + seconds, 3)
        self._console.print(Text.assemble((f"{seconds:8.1f} s  ", "green"), stage))
        if self._status is not None:
            self._status.update(f"working, after: {stage}")

    def noted(self, word: str) -> None:
        """Tell of something that somebody may have to look after."""
        self._console.print(Text.assemble(("  notice  ", "yellow"), word), soft_wrap=True)

    def since(self) -> dict[str, float]:
        """How long the stages took that ended since this was asked last."""
        seconds, self.seconds = self.seconds, {}
        return seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """A stage that is over at the end of the block."""
        begun = time.monotonic()
        yield
        self.ended(stage, time.monotonic() - begun)
