"""Wishes that a hub could not fulfil at once are said again, in whatever state that finds us."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from chappe.backoff import Backoff
from chappe.client.event import Phase
from chappe.client.retry import Retry


class Wish:
    wanted = True


class Talk:
    """A conversation that notes what it is asked to say."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.said: list[Any] = []
        self.done = asyncio.Event()

    def wish(self, wish: Any) -> None:
        self.said.append(wish)

    def flush_soon(self) -> None:
        self.done.set()


@pytest.mark.parametrize("phase", [Phase.RESTORING, Phase.READY])
def test_a_deferred_wish_is_said_again_also_while_others_are_being_answered(run, phase):
    async def test():
        talk: Any = Talk(phase)
        retry = Retry(asyncio.get_running_loop(), talk, talk, Backoff(0.001, 0.002, Random(1)))
        wish: Any = Wish()
        retry.later(wish)
        await asyncio.wait_for(talk.done.wait(), 30)
        assert talk.said == [wish]
        assert len(retry) == 0

    run(test())
