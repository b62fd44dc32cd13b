"""Progress: a mark and what is open below it tell what is done."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chappe.queues.progress import Progress


class ProgressMachine(RuleBasedStateMachine):
    """A progress against a plain set of what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.mark = 0
        self.done: set[int] = set()

    @rule(mark=st.integers(1, 12))
    def advance(self, mark: int) -> None:
        self.progress.advance(mark)
        self.mark = max(self.mark, mark)

    @rule(first=st.integers(1, 12), count=st.integers(1, 3))
    def finish(self, first: int, count: int) -> None:
        last = first + count - 1
        self.progress.finish(first, last)
        self.mark = max(self.mark, last)
        self.done.update(range(first, last + 1))

    @rule(seq=st.integers(1, 12), attempts=st.integers(2, 16))
    def attempt(self, seq: int, attempts: int) -> None:
        if seq in self.progress.open:
            self.progress.attempts[seq] = attempts

    @invariant()
    def it_knows_what_is_done(self) -> None:
        progress = self.progress
        assert progress.mark == self.mark
        for seq in range(1, 20):
            assert progress.is_done(seq) == (seq in self.done)
        low = 0
        while low + 1 in self.done:
            low += 1
        assert progress.low == (low if progress.open else progress.mark)
        assert progress.lag(20) == 20 - len(self.done)
        assert progress.attempts.keys() <= progress.open


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
