"""Requests that another node is asked: both nodes tell of them, and who asked has the last word."""

from __future__ import annotations

from collections.abc import Sequence

from chappe.errors import BadRequest, ErrorCode
from chappe.wire.ops import Provide, Request, Respond
from tests.cluster.hamlet import Hamlet, Node
from tests.hub.rig import Endpoint, send
from tests.loop import on_loop

Told = tuple[str, ...]


class Telling:
    """Two nodes and a service that lives on the second; what each tells of requests to it."""

    def __init__(self) -> None:
        self.hamlet = Hamlet("a", "b")
        self.service = self.hamlet.placed("service", "b")
        self.told: dict[str, list[Told]] = {"a": [], "b": []}
        self.labels: set[str] = set()
        for name, told in self.told.items():
            self._listen(self.hamlet[name], told)
        self.asking = self.hamlet["a"].user("asking")
        self.provider = self.hamlet["b"].user("provider")

    def _listen(self, node: Node, told: list[Told]) -> None:
        def asked(
            app: str,
            request: str,
            sender: str,
            service: str,
            session: str,
            size: int,
            came: int,
            came_from: str = "",
            went_to: Sequence[str] = (),
        ) -> None:
            self.labels.add(request)
            told.append(("asked", came_from, *went_to))

        def answered(
            app: str, request: str, came: int, reason: str = "", came_from: str = ""
        ) -> None:
            self.labels.add(request)
            told.append(("answered", came_from, reason))

        node.recorder.asked = asked  # type: ignore[method-assign]
        node.recorder.answered = answered  # type: ignore[method-assign]

    def provide(self) -> None:
        assert self.hamlet.ask(self.provider, Provide(id=1, to=self.service)).ok

    def ask(self, **more: object) -> None:
        data = send("x", 1).data
        self.asking.say(Request(id=7, to=self.service, data=data, **more))  # type: ignore[arg-type]
        self.hamlet.settle()


def request_of(provider: Endpoint) -> str:
    (request,) = [op.request for op in provider.heard() if isinstance(op, Request)]
    assert request is not None
    return request


@on_loop
async def test_both_nodes_tell_of_a_request_by_one_name() -> None:
    telling = Telling()
    telling.provide()
    telling.ask()
    request = request_of(telling.provider)
    telling.provider.say(Respond(request=request, data=send("x", 2).data))
    telling.hamlet.settle()
    assert telling.labels == {request}
    assert telling.told == {
        "a": [("asked", "", "b"), ("answered", "", "")],
        "b": [("asked", "a"), ("answered", "a", "")],
    }


@on_loop
async def test_a_home_that_is_gone_leaves_the_last_word_to_who_asked() -> None:
    telling = Telling()
    telling.provide()
    telling.ask()
    telling.hamlet.cut("a", "b")
    telling.hamlet.settle()
    assert telling.told["a"] == [
        ("asked", "", "b"),
        ("answered", "", f"{ErrorCode.OVERLOAD}, outcome unknown"),
    ]


@on_loop
async def test_a_request_that_its_home_refused_is_told_by_who_asked_alone() -> None:
    telling = Telling()
    telling.ask()
    assert telling.told["a"] == [("asked", "", "b"), ("answered", "", ErrorCode.UNREACHABLE)]
    assert telling.told["b"] == []


@on_loop
async def test_who_asked_and_left_wants_no_answer() -> None:
    telling = Telling()
    telling.provide()
    telling.ask()
    telling.hamlet["a"].leave(telling.asking)
    telling.hamlet.settle()
    assert telling.told == {
        "a": [("asked", "", "b"), ("answered", "", "abandoned")],
        "b": [("asked", "a"), ("answered", "a", "abandoned")],
    }


@on_loop
async def test_nobody_gives_a_request_an_id_of_their_own() -> None:
    telling = Telling()
    telling.provide()
    telling.ask(request="mine.1")
    assert telling.asking.reply().error == BadRequest.code
    assert telling.told == {"a": [], "b": []}
