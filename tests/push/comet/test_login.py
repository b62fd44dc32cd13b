"""Logging in: every command in every state has a defined answer (P3, P4)."""

from __future__ import annotations

import pytest

from chappe.errors import Overload
from chappe.push.comet.flow import FLOW
from chappe.push.comet.session import State
from chappe.push.state.user import TokenHolder
from chappe.push.token import token_digest
from chappe.wire.push import (
    COMMANDS,
    Auth,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    MessageAck,
    MessageList,
    Ok,
    PushError,
    Subscribe,
    TopicList,
    Unsubscribe,
    encode_command,
)
from chappe.wire.pushlink import Close, Why
from tests.loop import on_loop
from tests.push.comet.rig import DAY_MS, Device, KeptSink, Rig, codes

EARLY: list[Command] = [
    ExchangeKey(b"x"),
    GetTopicList(),
    Subscribe(("a",)),
    Unsubscribe(("a",)),
    GetMessageList(),
    Heartbeat(),
    MessageAck(("p070000000000001",)),
]


def test_the_table_says_something_of_every_command_in_every_state() -> None:
    for state in State:
        if state is not State.CLOSED:
            assert set(COMMANDS) < FLOW[state].keys()


@on_loop
async def test_a_device_logs_in_agrees_on_a_key_and_is_routed_here() -> None:
    rig = Rig()
    device = await rig.login()
    assert device.session.state is State.READY
    assert await rig.states.route.find([device.client]) == {device.client: 1}
    assert rig.recorder.opened["device"] == 1


@pytest.mark.parametrize("command", EARLY)
@on_loop
async def test_anything_but_auth_before_auth_is_error_4_and_the_end(command: Command) -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.say(command)
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]
    assert device.sink.ended == "closed"
    assert rig.comets[0].sessions.count == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\0",
        b"\0\1\x63",
        b"\0\2\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff" + bytes(70_000),
        b"\0\7\0\0\2\xff\xff\0\0",
    ],
)
@on_loop
async def test_garbage_before_auth_is_error_4_and_the_end(garbage: bytes) -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.feed(garbage)
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]
    assert device.sink.ended == "closed"


@on_loop
async def test_a_stranger_may_not_make_the_comet_keep_a_large_frame() -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.feed(b"\xff\xff\0")
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]


@on_loop
async def test_a_frame_of_65535_bytes_is_read_once_the_device_is_known() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    # As many topics as one frame holds, and one that fills it up: the largest that can be sent.
    names = ["a" * 255] * 254 + ["a" * (65_533 - 254 * 257 - 2)]
    frame = encode_command(Subscribe(tuple(names)))
    assert len(frame) == 2 + 65_535
    for start in range(0, len(frame), 10_000):
        device.feed(frame[start : start + 10_000])
    device.feed(b"\xff\xff\x07" + bytes(65_534))
    device.say(MessageAck(("p" * 65_531,)))
    await rig.rest()
    done, error, ignored = device.heard()
    assert done == ignored == Ok()
    assert codes([error]) == [PushError.BAD_ARGUMENTS]
    assert not device.sink.ended


@pytest.mark.parametrize("command", [Auth("c", "t"), *EARLY])
@on_loop
async def test_nothing_is_heard_while_auth_is_looked_up(command: Command) -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.auth()
    device.say(command)
    await rig.rest()
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]
    assert device.sink.ended == "closed"


@pytest.mark.parametrize("command", [Auth("c", "t"), *EARLY[1:5], EARLY[6]])
@on_loop
async def test_only_the_key_is_wanted_after_auth(command: Command) -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.auth()
    await rig.rest()
    device.heard()
    device.say(command)
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]
    assert device.sink.ended == "closed"


@on_loop
async def test_a_device_may_beat_before_it_has_a_key() -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.auth()
    await rig.rest()
    device.say(Heartbeat())
    await rig.rest()
    assert isinstance(device.heard()[1], Ok)


@pytest.mark.parametrize("part", [b"", b"\1", b"\2" + bytes(32), b"\1" + bytes(32)])
@on_loop
async def test_a_key_that_is_none_is_error_4_and_the_end(part: bytes) -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.auth()
    await rig.rest()
    device.heard()
    device.say(ExchangeKey(part))
    (error,) = device.heard()
    assert isinstance(error, Error)
    assert error.reason.startswith("secret_key")
    assert device.sink.ended == "closed"


@on_loop
async def test_to_log_in_twice_on_one_connection_is_error_4_and_no_more() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    device.say(Auth(device.client, device.token), ExchangeKey(b"\1" + bytes(32)), Heartbeat())
    await rig.rest()
    first, second, beat = device.heard()
    assert codes([first, second]) == [PushError.BAD_ARGUMENTS] * 2
    assert beat == Ok()
    assert not device.sink.ended


@on_loop
async def test_commands_that_are_sent_ahead_of_answers_are_answered_in_order() -> None:
    rig = Rig()
    device = Device(rig.comets[0], *await rig.client())
    device.auth()
    await rig.rest()
    device.agree()
    device.say(Subscribe(("news",)), GetTopicList(), Heartbeat(), MessageAck(("p070000000000001",)))
    device.feed(b"\0\1\x63")
    device.say(GetMessageList(), Unsubscribe(("news",)), GetTopicList())
    await rig.rest()
    assert [type(each) for each in device.heard()] == [
        Ok,
        Ok,
        TopicList,
        Ok,
        Ok,
        Error,
        MessageList,
        Ok,
        TopicList,
    ]


@on_loop
async def test_too_many_commands_ahead_of_answers_end_the_connection() -> None:
    rig = Rig(commands_max=4)
    device = await rig.live()
    device.heard()
    device.say(GetTopicList(), *[Heartbeat()] * 5)
    assert codes(device.heard()) == [PushError.SERVER]
    assert device.sink.ended


# Tokens.


@on_loop
async def test_an_expired_token_is_error_0() -> None:
    rig = Rig()
    client = await rig.client(expires_ms=1000)
    await rig.pass_s(2)
    device = Device(rig.comets[0], *client)
    device.auth()
    await rig.rest()
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]
    assert device.sink.ended == "closed"


@on_loop
async def test_a_token_that_expires_ends_its_live_session() -> None:
    rig = Rig()
    device = await rig.live(await rig.client(expires_ms=5000))
    await rig.pass_s(3)
    assert not device.sink.ended
    await rig.pass_s(4)
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]


@on_loop
async def test_a_wrong_token_is_error_0_an_unknown_client_and_anothers_token_error_1() -> None:
    rig = Rig()
    one, other = await rig.client(), await rig.client()
    found = []
    for client, token in ((one[0], "no"), ("c0100000000000000", "no"), (one[0], other[1])):
        device = Device(rig.comets[0], client, token)
        device.auth()
        await rig.rest()
        found += codes(device.heard())
        assert device.sink.ended == "closed"
    assert found == [0, 1, 1]


@on_loop
async def test_a_revoked_token_ends_its_session_at_once_and_no_other() -> None:
    rig = Rig()
    client, token = await rig.client()
    device = await rig.live((client, token))
    await rig.states.user.revoke(token_digest("another"))
    rig.tell(1, Close(client, Why.REVOKED, digest=token_digest("another")))
    assert not device.sink.ended
    await rig.states.user.revoke(token_digest(token))
    rig.tell(1, Close(client, Why.REVOKED, digest=token_digest(token)))
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]
    assert device.sink.ended == "closed"
    await rig.rest()
    assert await rig.states.route.find([client]) == {}


@on_loop
async def test_a_token_that_is_revoked_in_the_middle_of_a_login_lets_nobody_in() -> None:
    rig = Rig()
    client, token = await rig.client()
    device = Device(rig.comets[0], client, token)
    device.auth()
    await rig.rest()
    await rig.states.user.revoke(token_digest(token))
    device.agree()
    await rig.rest()
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]
    assert device.sink.ended == "closed"


@on_loop
async def test_a_removed_client_is_told_error_1() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    rig.tell(1, Close(device.client, Why.REMOVED))
    assert codes(device.heard()) == [PushError.CLIENT_NOT_FOUND]


# A client is in one place.


@on_loop
async def test_a_second_login_replaces_the_first_which_is_told_error_2() -> None:
    rig = Rig()
    client = await rig.client()
    first = await rig.live(client)
    first.heard()
    second = await rig.live(client)
    assert codes(first.heard()) == [PushError.DUPLICATE]
    assert first.sink.ended == "closed"
    assert not second.sink.ended
    await rig.rest()
    assert await rig.states.route.find([client[0]]) == {client[0]: 1}
    assert rig.comets[0].sessions.count == 1


@on_loop
async def test_a_login_on_another_comet_moves_the_route_and_the_first_is_told_error_2() -> None:
    rig = Rig(comets=2)
    client = await rig.client()
    first = await rig.live(client, comet=1)
    first.heard()
    second = await rig.live(client, comet=2)
    assert codes(first.heard()) == [PushError.DUPLICATE]
    assert not second.sink.ended
    assert await rig.states.route.find([client[0]]) == {client[0]: 2}
    back = await rig.live(client, comet=1)
    assert codes(second.heard()[1:]) == [PushError.DUPLICATE]
    assert not back.sink.ended
    assert await rig.states.route.find([client[0]]) == {client[0]: 1}


@on_loop
async def test_numbers_of_logins_are_times_and_grow_though_the_clock_steps_back() -> None:
    rig = Rig()
    client = await rig.client()
    first = (await rig.live(client)).session.login
    assert first == rig.clock.wall_ms()
    rig.clock.now_s -= 5
    assert (await rig.live(client)).session.login == first + 1


@on_loop
async def test_a_late_word_of_another_comet_does_not_end_a_login_after_it() -> None:
    rig = Rig(comets=2)
    client = await rig.client()
    device = await rig.live(client, comet=1)
    rig.tell(1, Close(client[0], Why.REPLACED, login=device.session.login - 1))
    await rig.rest()
    assert not device.sink.ended


@on_loop
async def test_a_comet_whose_clock_is_ahead_asks_where_its_client_is() -> None:
    rig = Rig(comets=2)
    client = await rig.client()
    device = await rig.live(client, comet=1)
    device.heard()
    device.session.login += 100_000_000
    await rig.states.route.move({client[0]: 2})
    rig.tell(1, Close(client[0], Why.REPLACED, login=rig.clock.wall_ms()))
    await rig.rest()
    assert codes(device.heard()) == [PushError.DUPLICATE]


@on_loop
async def test_who_leaves_has_no_route_and_who_is_back_at_once_keeps_it() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    rig.comets[0].lost(device.session)
    back = Device(rig.comets[0], *client)
    back.auth()
    await rig.rest()
    back.agree()
    await rig.rest()
    assert await rig.states.route.find([client[0]]) == {client[0]: 1}
    rig.comets[0].lost(back.session)
    await rig.rest()
    assert await rig.states.route.find([client[0]]) == {}
    assert rig.recorder.closed[1000] == 2


@on_loop
async def test_a_revocation_that_nobody_told_of_is_found_out() -> None:
    rig = Rig(heartbeat_s=10, idle_s=20)
    client, token = await rig.client()
    device, other = await rig.live((client, token)), await rig.live()
    device.heard()
    await rig.states.user.revoke(token_digest(token))
    for _ in range(3):
        device.say(Heartbeat())
        other.say(Heartbeat())
        await rig.pass_s(10)
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]
    assert not other.sink.ended


@on_loop
async def test_a_move_that_nobody_told_of_is_found_out_and_a_lost_route_is_written_anew() -> None:
    rig = Rig(heartbeat_s=10, idle_s=20)
    moved, forgotten = await rig.live(), await rig.live()
    moved.heard()
    forgotten.say(Subscribe(("news",)))
    await rig.rest()
    await rig.states.route.move({moved.client: 9})
    await rig.states.route.clear(1)
    await rig.states.topic.move("shop", forgotten.client, -1)
    for _ in range(3):
        moved.say(Heartbeat())
        forgotten.say(Heartbeat())
        await rig.pass_s(10)
    assert codes(moved.heard()) == [PushError.DUPLICATE]
    assert not forgotten.sink.ended
    routes = await rig.states.route.find([moved.client, forgotten.client])
    assert routes == {moved.client: 9, forgotten.client: 1}
    assert await rig.states.topic.servers("shop", "news") == [1]


@on_loop
async def test_nobody_is_ended_because_the_store_cannot_say_who_is_where() -> None:
    rig = Rig(heartbeat_s=10, idle_s=20)
    device = await rig.live()
    rig.away(True)
    for _ in range(3):
        device.say(Heartbeat())
        await rig.pass_s(10)
    assert not device.sink.ended


# Time and numbers.


@on_loop
async def test_a_slow_login_is_ended_though_it_dribbles() -> None:
    rig = Rig(login_s=10)
    device = Device(rig.comets[0], *await rig.client())
    for byte in encode_command(Auth("c" * 20, "t" * 20))[:9]:
        device.feed(bytes([byte]))
        await rig.pass_s(1)
    assert not device.sink.ended
    await rig.pass_s(2)
    assert codes(device.heard()) == [PushError.BAD_ARGUMENTS]
    assert device.sink.ended


@on_loop
async def test_who_is_silent_is_ended_and_who_beats_is_not() -> None:
    rig = Rig(heartbeat_s=20, idle_s=50)
    silent, beating = await rig.live(), await rig.live()
    for _ in range(6):
        beating.say(Heartbeat())
        await rig.pass_s(20)
    assert silent.sink.ended == "aborted"
    assert not beating.sink.ended


@on_loop
async def test_many_logins_are_looked_up_in_one_round_trip() -> None:
    rig = Rig()
    devices = [Device(rig.comets[0], *await rig.client()) for _ in range(50)]
    for device in devices:
        device.auth()
    await rig.rest()
    for device in devices:
        device.agree()
    await rig.rest()
    assert [device.heard() for device in devices] == [[Ok()]] * 50
    asked = rig.states.user.asked  # type: ignore[attr-defined]
    # Tokens are looked at once more when routes are written.
    assert asked["tokens"] == 2
    assert asked["clients"] == 1
    assert rig.states.route.asked["move"] == 1  # type: ignore[attr-defined]


@on_loop
async def test_more_logins_than_may_wait_are_told_error_3() -> None:
    rig = Rig(logins_max=2)
    devices = [Device(rig.comets[0], *await rig.client()) for _ in range(3)]
    for device in devices:
        device.auth()
    assert codes(devices[2].heard()) == [PushError.SERVER]
    assert devices[2].sink.ended
    assert not devices[1].sink.ended
    await rig.rest()


@on_loop
async def test_devices_whose_app_is_gone_are_told_error_1() -> None:
    rig = Rig()
    client = await rig.client()
    await rig.states.meta.remove_app("shop")
    device = Device(rig.comets[0], *client)
    device.auth()
    await rig.rest()
    assert codes(device.heard()) == [PushError.CLIENT_NOT_FOUND]


# The store is away.


@on_loop
async def test_nobody_logs_in_while_the_store_is_away_and_all_are_told_error_3() -> None:
    rig = Rig()
    early, late = await rig.client(), await rig.client()
    device = Device(rig.comets[0], *late)
    device.auth()
    await rig.rest()
    rig.away(True)
    other = Device(rig.comets[0], *early)
    other.auth()
    device.agree()
    await rig.rest()
    for each in (device, other):
        assert codes(each.heard()) == [PushError.SERVER]
        assert each.sink.ended == "closed"
    rig.away(False)
    assert not (await rig.live(late)).sink.ended


@on_loop
async def test_who_left_while_the_store_was_away_is_told_of_when_it_is_back() -> None:
    rig = Rig()
    device = await rig.live()
    rig.away(True)
    rig.comets[0].lost(device.session)
    await rig.rest()
    rig.away(False)
    assert await rig.states.route.find([device.client]) == {device.client: 1}
    await rig.pass_s(2)
    assert await rig.states.route.find([device.client]) == {}


@on_loop
async def test_a_going_that_is_told_late_does_not_take_the_route_of_who_is_back() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    rig.states.route.failing.add("leave")  # type: ignore[attr-defined]
    rig.comets[0].lost(device.session)
    await rig.rest()
    await rig.live(client)
    rig.states.route.failing.clear()  # type: ignore[attr-defined]
    await rig.pass_s(2)
    assert await rig.states.route.find([client[0]]) == {client[0]: 1}
    assert len(rig.comets[0].routes) == 0


@on_loop
async def test_a_comet_that_begins_has_nobody_and_one_that_stops_leaves_nobody() -> None:
    rig = Rig()
    await rig.states.route.move({"c0100000000000000": 1, "c0200000000000000": 2})
    await rig.comets[0].start()
    assert set(await rig.states.route.find(["c0100000000000000", "c0200000000000000"])) == {
        "c0200000000000000"
    }
    devices = [await rig.live() for _ in range(3)]
    [device.heard() for device in devices]
    await rig.comets[0].drain()
    for device in devices:
        assert codes(device.heard()) == [PushError.SERVER]
        assert device.sink.ended == "closed"
    assert await rig.states.route.find([device.client for device in devices]) == {}
    with pytest.raises(Overload):
        rig.comets[0].open(KeptSink())


@on_loop
async def test_a_token_for_another_day_is_kept_apart() -> None:
    rig = Rig()
    client, _ = await rig.client()
    holder = TokenHolder(client, rig.clock.wall_ms() + DAY_MS)
    await rig.states.user.put_token(token_digest("second"), holder)
    assert not (await rig.live((client, "second"))).sink.ended
