"""Mail: what is said to other brokers, an envelope each at a time, and what they answer.

What a turn of the loop brings, and what comes while Redis has not answered, goes out together: one
envelope per broker. Nothing is sent twice: what Redis did not confirm may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

import structlog

from chappe.errors import Overload
from chappe.redis.calls import Failure, unforeseen
from chappe.wire.bus import Answers, BusOp, Deliver, encode_envelope

log = structlog.get_logger()

ASKED_MAX = 100_000
_OP_BYTES = 64


class Publish(Protocol):
    """How envelopes get to their brokers."""

    async def __call__(self, envelopes: list[tuple[str, bytes]]) -> list[int | Failure | None]:
        """Publish to each of these brokers; how many listened, None where nobody can tell, or why
        it may not have been published."""
        ...


class Question:
    """What was asked of several brokers: done when all have answered, or its time is over."""

    __slots__ = ("answered", "count", "failure", "future", "said", "waiting")

    def __init__(self, brokers: Collection[str], future: asyncio.Future[None]) -> None:
        self.waiting = set(brokers)
        self.answered: set[str] = set()
        self.count = 0
        self.failure: Failure | None = None
        # Whether Redis has said that it was passed on.
        self.said = False
        self.future = future

    def answer(self, broker: str, count: int) -> None:
        """A broker answered."""
        if broker in self.waiting:
            self.waiting.discard(broker)
            self.answered.add(broker)
            self.count += count
            self._look()

    def give_up(self, broker: str) -> None:
        """A broker will not answer."""
        self.waiting.discard(broker)
        self._look()

    def fail(self, broker: str, failure: Failure) -> None:
        """A broker may not have been asked."""
        self.failure = failure
        self.give_up(broker)

    def end(self) -> None:
        """Wait no more."""
        if not self.future.done():
            self.future.set_result(None)

    def _look(self) -> None:
        if not self.waiting:
            self.end()


class Mail:
    """What goes to other brokers, and who is waited for."""

    def __init__(
        self,
        name: str,
        publish: Publish,
        *,
        outgoing_bytes_max: int,
        failed: Callable[[Failure], None],
    ) -> None:
        self._name = name
        self._publish = publish
        self._outgoing_bytes_max = outgoing_bytes_max
        self._failed = failed
        self._outgoing: dict[str, list[BusOp]] = {}
        self._outgoing_bytes = 0
        self._answers: dict[str, list[tuple[int, int]]] = {}
        self._questions: dict[int, Question] = {}
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        # Brokers that did not answer in time; until they are heard of, nobody waits for them.
        self.silent: set[str] = set()
        self.sent = 0
        self.unanswered = 0
        # Envelopes that nobody listened for, and that may not have been sent.
        self.deaf = 0
        self.unsure = 0

    async def ask(
        self,
        brokers: Collection[str],
        make: Callable[[int], BusOp],
        within_s: float,
        *,
        patient: bool = False,
    ) -> Question:
        """Say something to brokers and wait for their answers; raises Overload.

        Those that did not answer the last time are waited for only by who is patient.
        """
        self.check()
        if len(self._questions) >= ASKED_MAX:
            raise Overload(f"bus: {ASKED_MAX} questions wait for an answer already")
        self._number += 1
        number, loop = self._number, asyncio.get_running_loop()
        waited_for = brokers if patient else [b for b in brokers if b not in self.silent]
        question = self._questions[number] = Question(waited_for, loop.create_future())
        op = make(number)
        for broker in brokers:
            self._say(broker, op)
        timer = loop.call_later(within_s, question.end)
        try:
            if waited_for:
                await question.future
            else:
                question.said = True  # nobody waits to hear that
        finally:
            timer.cancel()
            del self._questions[number]
        if question.waiting and question.failure is None and question.said:
            self.unanswered += len(question.waiting)
            self.silent |= question.waiting
        return question

    def tell(self, brokers: Collection[str], op: BusOp) -> None:
        """Say something to brokers, which nobody answers."""
        for broker in brokers:
            self._say(broker, op)

    async def settled(self) -> None:
        """Wait until what was said is with Redis."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def check(self) -> None:
        """Raise Overload when too much waits to be handed to the bus."""
        if self._outgoing_bytes > self._outgoing_bytes_max:
            raise Overload(f"bus: {self._outgoing_bytes} bytes wait to be sent already")

    def answer(self, broker: str, number: int, count: int) -> None:
        """Answer a broker's question."""
        answers = self._answers.get(broker)
        if answers is None:
            answers = self._answers[broker] = []
            self._say(broker, Answers(answers))
        answers.append((number, count))

    def heard(self, broker: str, counts: list[tuple[int, int]]) -> None:
        """A broker is there, and answers."""
        self.silent.discard(broker)
        for number, count in counts:
            question = self._questions.get(number)
            if question is not None:
                question.answer(broker, count)

    def forget(self, brokers: Collection[str]) -> None:
        """Only these brokers are left."""
        self.silent &= set(brokers)

    async def stop(self) -> None:
        """Say nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for question in self._questions.values():
            question.end()

    def _say(self, broker: str, op: BusOp) -> None:
        self._outgoing.setdefault(broker, []).append(op)
        self._outgoing_bytes += _OP_BYTES + (len(op.payload) if isinstance(op, Deliver) else 0)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._outgoing:
                # What else this turn of the loop brings goes along.
                await asyncio.sleep(0)
                await self._flush()
        finally:
            self._task = None

    async def _flush(self) -> None:
        outgoing, self._outgoing, self._answers = self._outgoing, {}, {}
        self._outgoing_bytes = 0
        outcomes: list[int | Failure | None]
        try:
            envelopes = [(one, encode_envelope(self._name, ops)) for one, ops in outgoing.items()]
            self.sent += len(envelopes)
            outcomes = await self._publish(envelopes)
        except Exception as error:  # whoever asked is told, and the next envelopes go out
            log.exception("bus.mail.failed")
            outcomes = [unforeseen(error)] * len(outgoing)
        for (broker, ops), outcome in zip(outgoing.items(), outcomes, strict=True):
            for question in self._of(ops):
                question.said = True
            if isinstance(outcome, Failure):
                self.unsure += 1
                self._failed(outcome)
                for question in self._of(ops):
                    question.fail(broker, outcome)
            elif outcome == 0:
                self.deaf += 1
                for question in self._of(ops):
                    question.give_up(broker)

    def _of(self, ops: list[BusOp]) -> list[Question]:
        """The questions among what was said."""
        numbers = {op.number for op in ops if not isinstance(op, Answers)}
        return [found for n in numbers if (found := self._questions.get(n)) is not None]
