"""Messages to a queue on another node: both nodes tell of them, by one id."""

from __future__ import annotations

from typing import Any

from chappe.wire.ops import Create
from tests.cluster.hamlet import Hamlet
from tests.hub.rig import send
from tests.loop import on_loop

JOBS = "queue:jobs"


class Telling:
    """Two nodes and a queue that lives on the second; what each tells of messages to it."""

    def __init__(self) -> None:
        self.hamlet = Hamlet("a", "b")
        self.handed: list[tuple[Any, ...]] = []
        self.stored: list[tuple[int, str, int]] = []
        for name in "ab":
            self._listen(name)
        admin = self.hamlet["b"].user("admin")
        assert self.hamlet.ask(admin, Create(id=1, to=JOBS, volatile=True)).ok

    def _listen(self, name: str) -> None:
        def handed(
            app: str,
            queue: str,
            message: int,
            sender: str,
            size: int,
            came: int,
            at: int,
            home: str,
        ) -> None:
            assert came <= at
            self.handed.append((name, home, queue, message, sender, size))

        def stored(app: str, queue: str, messages: Any, came: int, came_from: str = "") -> None:
            assert name == "b", "it lives there"
            self.stored += [(one.id, came_from, came) for one in messages]

        recorder = self.hamlet[name].recorder
        recorder.handed = handed  # type: ignore[method-assign]
        recorder.stored = stored  # type: ignore[method-assign]

    def is_empty(self) -> bool:
        return not self.hamlet["a"].cluster.carriage._handing._handed


@on_loop
async def test_the_node_of_the_sender_and_the_home_tell_of_a_message() -> None:
    telling = Telling()
    ann = telling.hamlet["a"].user("ann")
    reply = telling.hamlet.ask(ann, send(JOBS, "job", id=1))
    message = int(reply.message or 0)
    assert telling.handed == [("a", "b", JOBS, message, "user:ann", 5)]
    assert [one[:2] for one in telling.stored] == [(message, "a")]
    assert telling.is_empty()


@on_loop
async def test_a_message_of_the_homes_own_session_comes_from_nowhere_else() -> None:
    telling = Telling()
    bob = telling.hamlet["b"].user("bob")
    assert telling.hamlet.ask(bob, send(JOBS, 1, id=1)).ok
    bob.say(send(JOBS, 2), send(JOBS, 3))
    telling.hamlet.settle()
    assert [node for _, node, _ in telling.stored] == ["", "", ""]
    assert telling.handed == []


@on_loop
async def test_of_a_message_without_an_answer_the_home_alone_tells() -> None:
    telling = Telling()
    telling.hamlet["a"].user("ann").say(send(JOBS, 1))
    telling.hamlet.settle()
    assert [node for _, node, _ in telling.stored] == ["a"]
    assert telling.handed == []
    assert telling.is_empty()


@on_loop
async def test_what_is_refused_or_left_alone_is_not_told_and_not_kept() -> None:
    telling = Telling()
    hamlet = telling.hamlet
    ann, cid = hamlet["a"].user("ann"), hamlet["a"].user("cid")
    keyed = send(JOBS, 1, id=1)
    keyed.key = ""
    assert not hamlet.ask(ann, keyed).ok
    hamlet.hold("b", "a")
    cid.say(send(JOBS, 1, id=1))
    ann.say(send(JOBS, 1, id=2))
    hamlet.tick()
    assert len(telling.hamlet["a"].cluster.carriage._handing._handed) == 2
    hamlet["a"].leave(cid)
    hamlet.cut("a", "b")
    hamlet.settle()
    assert telling.handed == []
    assert telling.is_empty()
