"""Services on a hub: each op, each answer, each error (H18)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chappe.endpoints.limits import ServiceLimits
from chappe.endpoints.services import Services
from chappe.errors import CloseCode, ConfigError
from chappe.events.counting import CountingRecorder
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.limits import Limits
from chappe.wire.ops import Hello, Op, Provide, Reply, Request, Respond, Unprovide
from chappe.wire.payload import take_payload
from tests.endpoints.timer import ManualTimer
from tests.hub.rig import Endpoint, Rig, payload_of
from tests.loop import on_loop
from tests.parameters import named

BILLING = "service:billing"


class Narrow:
    """Grants each user one thing only."""

    def authenticate(self, hello: Hello) -> Grant:
        scopes = {hello.as_.partition(":")[2]: scope_of([BILLING])}
        return Grant(app="default", address=hello.as_, **scopes)


class ServiceRig(Rig):
    """A hub that serves services, and a timer that tests move."""

    def __init__(self, *, service_limits: ServiceLimits | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.timer = ManualTimer()
        self.services = Services(self.hub, self.timer, service_limits)
        self.hub.tag = "0badcafe"
        self.hub.serve(self.services.handlers())

    async def provider(
        self, name: str = "provider", encoding: Encoding = STREAM, to: str = BILLING
    ) -> Endpoint:
        endpoint = self.endpoint(name, encoding)
        assert (await self.ask(endpoint, Provide(id=1, to=to))).ok
        return endpoint

    async def ask(self, who: Endpoint, op: Op) -> Reply:
        who.say(op)
        await self.tick()
        return who.reply()

    async def asked(self, provider: Endpoint) -> list[Any]:
        await self.tick()
        heard = provider.heard()
        assert all(isinstance(op, Request) for op in heard)
        return heard

    async def reply(self, who: Endpoint) -> Reply:
        await self.tick()
        return who.reply()

    def die(self, who: Endpoint) -> None:
        self.hub.close(who.session, CloseCode.GOING_AWAY, "dies")
        self.timer.move_to(self.timer.now)


def request(data: Any, id: int | None = 7, **fields: Any) -> Request:
    return Request(id=id, to=BILLING, data=msgspec.Raw(msgspec.json.encode(data)), **fields)


def respond(number: str, data: Any, id: int | None = None) -> Respond:
    return Respond(id=id, request=number, data=msgspec.Raw(msgspec.json.encode(data)))


def error(reply: Reply) -> tuple[str | None, str]:
    assert not reply.ok
    return reply.error, reply.reason or ""


@pytest.mark.parametrize("asking", [STREAM, JSON_ITEMS])
@pytest.mark.parametrize("providing", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_request_reaches_a_provider_and_its_response_the_requester(
    asking: Encoding, providing: Encoding
) -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(encoding=providing), rig.endpoint("alice", asking)
    alice.say(request({"sum": 3}))
    (asked,) = await rig.asked(provider)
    assert payload_of(asked) == {"sum": 3}
    assert (asked.to, asked.id) == (BILLING, None)
    home, _, number = (asked.request or "").partition(".")
    assert home == "0badcafe"
    assert number.isdigit()
    assert alice.heard() == []
    assert (await rig.ask(provider, respond(asked.request, ["paid"], 9))).ok
    reply = await rig.reply(alice)
    assert (reply.id, reply.ok, payload_of(reply)) == (7, True, ["paid"])


@pytest.mark.parametrize("asking", [STREAM, JSON_ITEMS])
@pytest.mark.parametrize("providing", [STREAM, JSON_ITEMS])
@on_loop
async def test_binary_payloads_go_there_and_back(asking: Encoding, providing: Encoding) -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(encoding=providing), rig.endpoint("alice", asking)
    alice.say(Request(id=1, to=BILLING, data64="AP8="))
    (asked,) = await rig.asked(provider)
    assert take_payload(asked) == (b"\x00\xff", True)
    provider.say(Respond(request=asked.request, data64="/wA="))
    reply: Any = await rig.reply(alice)
    assert take_payload(reply) == (b"\xff\x00", True)


@on_loop
async def test_neither_side_sees_the_other() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider("prudence", JSON_ITEMS), rig.endpoint("alice", JSON_ITEMS)
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    provider.say(respond(asked.request, 2))
    await rig.tick()
    told = b"".join(provider.sink.writes)
    assert b"alice" not in told
    assert alice.session.id.encode() not in told
    told = b"".join(alice.sink.writes)
    assert b"prudence" not in told
    assert provider.session.id.encode() not in told


@on_loop
async def test_a_service_is_made_by_its_first_provider_and_gone_with_its_last() -> None:
    rig = ServiceRig()
    alice = rig.endpoint("alice")
    assert error(await rig.ask(alice, request(1)))[0] == "unreachable"
    first, second = await rig.provider("first"), await rig.provider("second")
    assert rig.services.online("default", BILLING)
    rig.die(first)
    alice.say(request(1))
    assert len(await rig.asked(second)) == 1
    rig.die(second)
    code, reason = error(await rig.reply(alice))
    assert code == "unreachable"
    assert BILLING in reason
    assert not rig.services.online("default", BILLING)
    assert error(await rig.ask(alice, request(1)))[0] == "unreachable"
    assert rig.services._services == rig.services._provided == {}


@on_loop
async def test_when_its_provider_dies_an_idempotent_request_goes_to_another() -> None:
    rig = ServiceRig()
    first, second = await rig.provider("first"), await rig.provider("second")
    alice = rig.endpoint("alice")
    alice.say(request("once", 1), request("other", 2), request("again", 3, idempotent=True))
    asked = await rig.asked(first)
    assert [payload_of(op) for op in asked] == ["once", "again"]
    await rig.asked(second)
    rig.die(first)
    reply = await rig.reply(alice)
    assert (reply.id, reply.error, reply.outcome) == (1, "unreachable", "unknown")
    (again,) = await rig.asked(second)
    assert (payload_of(again), again.request) == ("again", asked[1].request)
    provider_reply = await rig.ask(second, respond(again.request, "done", 4))
    assert provider_reply.ok
    reply = await rig.reply(alice)
    assert (reply.id, reply.ok) == (3, True)


@on_loop
async def test_never_later_than_the_time_limit() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(), rig.endpoint("alice")
    alice.say(request(1, 1), request(2, 2, timeout_ms=500))
    asked = await rig.asked(provider)
    rig.timer.move_to(0.5)
    reply = await rig.reply(alice)
    assert (reply.id, reply.error, reply.outcome) == (2, "overload", "unknown")
    rig.timer.move_to(29.9)
    await rig.tick()
    assert alice.heard() == []
    rig.timer.move_to(30.0)
    reply = await rig.reply(alice)
    assert (reply.id, reply.error, reply.outcome) == (1, "overload", "unknown")
    for op in asked:
        code, reason = error(await rig.ask(provider, respond(op.request, "late", 9)))
        assert (code, reason.partition(":")[0]) == ("protocol", "request")
    assert alice.heard() == []


@on_loop
async def test_only_who_was_asked_responds_and_once() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider("one"), rig.endpoint("alice")
    other = await rig.provider("two")
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    for who in (other, alice, rig.endpoint("one", app="other")):
        assert error(await rig.ask(who, respond(asked.request, "no", 9)))[0] == "protocol"
    assert (await rig.ask(provider, respond(asked.request, "yes", 9))).ok
    assert payload_of(await rig.reply(alice)) == "yes"
    assert error(await rig.ask(provider, respond(asked.request, "twice", 9)))[0] == "protocol"
    assert alice.heard() == []


@on_loop
async def test_a_provider_may_refuse_with_an_error() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(), rig.endpoint("alice")
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    for wrong, field in [
        (Respond(id=1, request=asked.request, error="odd"), "error"),
        (Respond(id=1, request=asked.request, reason="why"), "error"),
        (Respond(id=1, request=asked.request, error="overload", reason="x" * 1001), "reason"),
        (Respond(id=1, request=asked.request, error="overload", data64=""), "data"),
        (Respond(id=1, request=asked.request), "data"),
    ]:
        code, reason = error(await rig.ask(provider, wrong))
        assert (code, reason.partition(":")[0]) == ("protocol", field)
    refusal = Respond(id=1, request=asked.request, error="forbidden", reason="not yours")
    assert (await rig.ask(provider, refusal)).ok
    reply = await rig.reply(alice)
    assert (reply.id, reply.ok, reply.error, reply.reason) == (7, False, "forbidden", "not yours")


@on_loop
async def test_a_response_to_who_is_gone_is_unreachable() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(), rig.endpoint("alice")
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    rig.die(alice)
    code, _ = error(await rig.ask(provider, respond(asked.request, 1, 9)))
    assert code == "unreachable"
    assert not rig.services._calls.by_id


@on_loop
async def test_a_request_without_an_id_is_carried_out_and_not_answered() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(), rig.endpoint("alice")
    alice.say(request(1, None))
    (asked,) = await rig.asked(provider)
    assert (await rig.ask(provider, respond(asked.request, 1, 9))).ok
    alice.say(request(2, None))
    await rig.asked(provider)
    rig.die(provider)
    await rig.tick()
    assert alice.heard() == []


@on_loop
async def test_who_withdraws_is_asked_no_more() -> None:
    rig = ServiceRig()
    provider, alice = await rig.provider(), rig.endpoint("alice")
    alice.say(request(1, 1))
    (asked,) = await rig.asked(provider)
    assert (await rig.ask(provider, Unprovide(id=2, to=BILLING))).ok
    assert error(await rig.ask(provider, Unprovide(id=3, to=BILLING)))[0] == "protocol"
    assert error(await rig.ask(alice, request(2, 4)))[0] == "unreachable"
    provider.say(respond(asked.request, "still"))
    assert payload_of(await rig.reply(alice)) == "still"
    rig.die(provider)
    assert rig.services._provided == {}


@on_loop
async def test_bounds_are_answered_overload() -> None:
    limits = ServiceLimits(
        in_flight_max=1,
        waiting_max=1,
        requests_max=2,
        services_max=3,
        services_per_provider_max=2,
    )
    rig = ServiceRig(service_limits=limits)
    provider, alice, bob = await rig.provider(), rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(request(1, 1), request(2, 2))
    await rig.tick()
    for who in (alice, bob):
        assert error(await rig.ask(who, request(3, 3)))[0] == "overload"
    assert (await rig.ask(provider, Provide(id=1, to="service:b"))).ok
    assert (await rig.ask(provider, Provide(id=1, to="service:b"))).ok
    assert error(await rig.ask(provider, Provide(id=1, to="service:c")))[0] == "overload"
    assert (await rig.ask(provider, Unprovide(id=1, to="service:b"))).ok
    assert (await rig.ask(provider, Provide(id=1, to="service:c"))).ok
    assert (await rig.ask(bob, Provide(id=1, to="service:d"))).ok
    assert error(await rig.ask(bob, Provide(id=1, to="service:e")))[0] == "overload"
    assert ("default", "service:e") not in rig.services._services


@on_loop
async def test_a_response_that_does_not_fit_the_requesters_outbox_is_told_of() -> None:
    rig = ServiceRig(options=HubOptions(outbox_bytes_max=300))
    provider, alice = await rig.provider(), rig.endpoint("alice")
    told: list[str] = []

    def answered(app: str, request: str, came: int, reason: str = "", came_from: str = "") -> None:
        told.append(reason)

    rig.hub.recorder.answered = answered  # type: ignore[method-assign]
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    rig.hub.pause(alice.session)
    provider.say(respond(asked.request, "x" * 400))
    await rig.tick()
    rig.hub.resume(alice.session)
    reply = await rig.reply(alice)
    assert (reply.error, reply.outcome) == ("overload", "unknown")
    assert not alice.session.closed
    assert told == ["overload, outcome unknown"]
    alice.say(request(1))
    (asked,) = await rig.asked(provider)
    assert (await rig.ask(provider, respond(asked.request, "y", 9))).ok
    assert told[1:] == [""]


@on_loop
async def test_services_of_two_apps_share_nothing() -> None:
    rig = ServiceRig()
    await rig.provider()
    stranger = rig.endpoint("alice", app="other")
    assert error(await rig.ask(stranger, request(1)))[0] == "unreachable"
    assert not rig.services.online("other", BILLING)


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Provide(id=1, to="queue:a"), "to"),
        (Provide(id=1, to="service:*"), "to"),
        (Provide(id=1), "to"),
        (Unprovide(id=1, to="user:a"), "to"),
        (Unprovide(id=1, to="service:other"), "to"),
        (Request(id=1, to="topic:a", data64=""), "to"),
        (Request(id=1, to=BILLING), "data"),
        (request(1, request="mine"), "request"),
        (request(1, timeout_ms=0), "timeout_ms"),
        (request(1, timeout_ms=30_001), "timeout_ms"),
        (request("x" * 200), "data"),
        (respond("", 1, 1), "request"),
        (respond("north.1", 1, 1), "request"),
    ],
    ids=named,
)
@on_loop
async def test_a_wrong_op_is_refused_by_the_name_of_its_field(op: Op, field: str) -> None:
    recorder = CountingRecorder()
    rig = ServiceRig(limits=Limits(message_bytes_max=100), recorder=recorder)
    await rig.provider()
    code, reason = error(await rig.ask(rig.endpoint("alice"), op))
    assert (code, reason.partition(":")[0]) == ("protocol", field)
    assert recorder.refusals == {"protocol": 1}
    assert not rig.services._calls.by_id


@pytest.mark.parametrize(
    ("right", "op"), [("provide", Provide(id=1, to=BILLING)), ("send", request(1))]
)
@on_loop
async def test_each_op_needs_its_own_right(right: str, op: Op) -> None:
    rig = ServiceRig(authenticator=Narrow())
    provider = await rig.provider("provide")
    for other in {"send", "publish", "subscribe", "administer", "provide"} - {right}:
        assert error(await rig.ask(rig.endpoint(other), op))[0] == "forbidden"
    allowed = rig.endpoint(right)
    allowed.say(op)
    for asked in await rig.asked(provider):
        provider.say(respond(asked.request, 1))
    assert (await rig.reply(allowed)).ok


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"services\.timeout_s"):
        ServiceLimits(timeout_s=0)
