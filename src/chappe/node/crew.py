"""A crew: which processes a supervisor is to have, and what they are given."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from chappe.node.post import Post


class Crew(Protocol):
    """The places of a supervisor's children."""

    # Each stage is filled once those before it are, and emptied before those are.
    stages: list[list[Post]]
    # How long its children may take to end by themselves, beyond what anybody needs.
    drain_s: float

    def prepare(self, stack: ExitStack) -> None:
        """Make what the children share, to be let go of with the stack; raises ConfigError."""
        ...

    def heard(self, post: Post) -> list[Post]:
        """Take what a child has said; its stages may have other places after that. Gives those
        that are to be filled no more."""
        ...

    def ready(self) -> dict[str, object]:
        """What is told when all places are filled for the first time."""
        ...
