"""A device over real sockets: it gets each note once, comes back by itself, and is quiet (P15)."""

import asyncio

import pytest

from chappe.device import Closed, Device, DeviceOptions, Note, Replaced, Retraction, UntrustedComet
from chappe.errors import BadRequest, ConfigError, Forbidden, Overload, Unreachable
from chappe.wire.push import (
    Auth,
    Error,
    GetMessageList,
    Heartbeat,
    MessageAck,
    Subscribe,
)
from tests.device.comet import (
    CLIENT,
    DAY_MS,
    FAST,
    NOW_MS,
    Comet,
    ScriptedWeb,
    StillClock,
    device_of,
)
from tests.loop import on_loop


def letter(n: int) -> tuple[int, str, bytes]:
    return 1, f"p{n}", b"content %d" % n


def note(n: int) -> Note:
    return Note(f"p{n}", "j1", 1, NOW_MS, b"content %d" % n)


def put(comet: Comet, *letters) -> None:
    comet.waiting |= {each[1]: each for each in letters}


@on_loop
async def test_it_gets_what_waits_and_what_comes_and_acknowledges_both():  # P3, P7
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        put(comet, letter(1), letter(2))
        assert [await anext(device), await anext(device)] == [note(1), note(2)]
        comet.live.push(letter(3))
        assert await anext(device) == note(3)
        await comet.until(lambda: comet.acked == ["p1", "p2", "p3"])
        assert device.connected


@on_loop
async def test_a_note_is_acknowledged_only_when_it_was_taken():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push(letter(1), letter(2))
        assert await anext(device) == note(1)
        # An answer behind it: had it been sent, it would have been heard.
        await device.subscribe("a")
        assert comet.acked == ["p1"]
        assert await anext(device) == note(2)
        await comet.until(lambda: comet.acked == ["p1", "p2"])


@on_loop
async def test_many_that_are_taken_in_one_go_are_acknowledged_in_few_frames():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push(*map(letter, range(600)))
        assert [(await anext(device)).id for _ in range(600)] == [f"p{n}" for n in range(600)]
        await comet.until(lambda: len(comet.acked) == 600)
        acks = [c for c in comet.heard if isinstance(c, MessageAck)]
        assert len(acks) < 20
        assert max(len(ack.ids) for ack in acks) <= 255


@on_loop
async def test_what_comes_again_is_shown_once_and_acknowledged_again():  # P7
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push(letter(1), letter(1))
        assert await anext(device) == note(1)
        await comet.until(lambda: comet.acked == ["p1"])
        comet.live.push(letter(1), letter(2))
        assert await anext(device) == note(2)
        await comet.until(lambda: comet.acked.count("p1") == 2 and "p2" in comet.acked)


@on_loop
async def test_it_is_shown_once_even_after_a_restart(tmp_path):  # P7
    async with Comet() as comet:
        web, cache = ScriptedWeb(comet), tmp_path / "push.json"
        put(comet, letter(1))
        async with device_of(web, cache=cache) as device:
            assert await anext(device) == note(1)
        # The acknowledgement got lost, say.
        put(comet, letter(1), letter(2))
        async with device_of(web, cache=cache) as device:
            assert await anext(device) == note(2)
        assert web.asked == 1


@on_loop
async def test_closing_lets_acknowledgements_leave():
    async with Comet() as comet:
        # More than one frame holds, and each waits for the answer to the one before.
        put(comet, *map(letter, range(600)))
        async with device_of(ScriptedWeb(comet)) as device:
            for _ in range(600):
                await anext(device)
        assert comet.acked == [f"p{n}" for n in range(600)]
        assert isinstance(device.ended, Closed)
        assert [each async for each in device] == []


@on_loop
async def test_it_comes_back_by_itself_and_goes_on():  # P15
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        async with device_of(web) as device:
            for n in range(5):
                put(comet, letter(n))
                assert await anext(device) == note(n)
                await comet.until(lambda n=n: f"p{n}" in comet.acked)
                comet.live.transport.abort()
            assert comet.logins >= 5
            assert web.asked == 1


@on_loop
async def test_an_acknowledgement_that_got_lost_is_sent_before_the_list_is_asked_for():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push(letter(1))
        comet.answering = False
        await anext(device)
        await comet.until(lambda: MessageAck(("p1",)) in comet.heard)
        comet.heard.clear()
        comet.answering = True
        comet.live.transport.abort()
        await comet.until(lambda: GetMessageList() in comet.heard)
        await comet.until(lambda: comet.acked == ["p1"])
        ack, asked = comet.heard.index(MessageAck(("p1",))), comet.heard.index(GetMessageList())
        assert ack < asked


@on_loop
async def test_a_comet_that_is_away_for_a_while_is_no_error():
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        comet.server.close()
        async with device_of(web) as device:
            waiting = asyncio.ensure_future(anext(device))
            # Unreached twice, it asks for another comet.
            while web.asked < 2:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            async with Comet() as other:
                other.identity = comet.identity
                put(other, letter(1))
                web.comet = other
                assert await waiting == note(1)


@on_loop
async def test_a_web_that_is_away_is_no_error_and_the_cache_does(tmp_path):
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        web.refusals.extend([Unreachable("web: away"), Overload("web: 503")])
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
        web.refusals.extend([Unreachable("web: away")] * 1000)
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
        assert web.asked == 1


@pytest.mark.parametrize("code", [0, 1])
@on_loop
async def test_a_token_that_is_refused_is_replaced(code, tmp_path):  # P15
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        comet.refusals.append(Error(code, "no"))
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
            assert web.asked == 2
            assert [c.token for c in comet.heard if isinstance(c, Auth)] == ["token-1", "token-2"]
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
        assert web.asked == 2


@pytest.mark.parametrize("code", [3, 4, 99])
@on_loop
async def test_any_other_refusal_is_waited_out(code):
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        comet.refusals.append(Error(code, "no"))
        async with device_of(web) as device:
            await device.wait_connected()
            assert comet.logins == 2
            assert web.asked == 1


@on_loop
async def test_a_token_that_expires_within_a_day_is_renewed_in_time(tmp_path):  # P15
    async with Comet() as comet:
        web, clock = ScriptedWeb(comet), StillClock()
        async with device_of(web, cache=tmp_path / "c", clock=clock) as device:
            await device.wait_connected()
        clock.now_ms += 6 * DAY_MS - 1
        async with device_of(web, cache=tmp_path / "c", clock=clock) as device:
            await device.wait_connected()
        assert web.asked == 1
        clock.now_ms += 2
        async with device_of(web, cache=tmp_path / "c", clock=clock) as device:
            await device.wait_connected()
        assert web.asked == 2


@on_loop
async def test_a_token_is_renewed_while_connected_and_the_connection_stays():
    async with Comet() as comet:
        web, clock = ScriptedWeb(comet), StillClock()
        options = DeviceOptions(heartbeat_s=0.05)
        async with device_of(web, clock=clock, options=options) as device:
            await device.wait_connected()
            web.expires_ms += 30 * DAY_MS
            clock.now_ms += 6 * DAY_MS + 1
            while web.asked < 2:
                await asyncio.sleep(0.01)
            assert comet.logins == 1
            assert device.connected


@on_loop
async def test_one_that_was_replaced_ends_and_does_not_come_back():  # P15
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.end(2, "the client logged in elsewhere")
        assert [each async for each in device] == []
        assert isinstance(device.ended, Replaced)
        with pytest.raises(Replaced, match="elsewhere"):
            await device.subscribe("a")
        await asyncio.sleep(0.2)
        assert comet.logins == 1


@on_loop
async def test_a_comet_with_another_identity_is_refused_loudly():  # P4
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        web.identity = bytes(31) + b"\1"
        async with device_of(web) as device:
            with pytest.raises(UntrustedComet, match="not signed by the identity"):
                await anext(device)
            with pytest.raises(UntrustedComet):
                await device.subscribe("a")
            await asyncio.sleep(0.1)
            assert [type(command) for command in comet.heard] == [Auth]


@on_loop
async def test_the_identity_that_came_first_is_pinned(tmp_path):  # P4
    async with Comet() as comet, Comet() as stranger:
        web = ScriptedWeb(comet)
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
        comet.refusals.append(Error(0, "expired"))
        web.comet, web.identity = stranger, stranger.public
        async with device_of(web, cache=tmp_path / "c") as device:
            with pytest.raises(UntrustedComet, match="not the one that this device knows"):
                await anext(device)
        assert stranger.logins == 0


@on_loop
async def test_an_identity_that_is_given_counts_more_than_any_that_came(tmp_path):
    async with Comet() as comet, Comet() as other:
        web = ScriptedWeb(comet)
        async with device_of(web, cache=tmp_path / "c") as device:
            await device.wait_connected()
        web.comet, web.identity = other, other.public
        async with device_of(web, cache=tmp_path / "c", identity=other.public) as device:
            await device.wait_connected()
        assert (comet.logins, other.logins) == (1, 1)


@on_loop
async def test_a_retraction_is_given_and_what_nobody_saw_is_not():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push(letter(1))
        assert await anext(device) == note(1)
        comet.live.push(letter(2), (255, "p8", b"p2"), (255, "p9", b"p1"), letter(3))
        assert await anext(device) == Retraction("p1", "p9", NOW_MS)
        assert await anext(device) == note(3)
        await comet.until(lambda: {"p1", "p2", "p3", "p8", "p9"} == set(comet.acked))


@on_loop
async def test_a_note_that_comes_after_its_retraction_is_not_shown():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push((255, "p9", b"p1"), letter(2))
        assert isinstance(await anext(device), Retraction)
        comet.live.push(letter(1), letter(3))
        assert [await anext(device), await anext(device)] == [note(2), note(3)]


@on_loop
async def test_a_kind_that_only_later_systems_know_is_not_shown():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.push((254, "p1", b"?"), (240, "p2", b"?"), (239, "p3", b"!"))
        assert (await anext(device)).id == "p3"
        await comet.until(lambda: set(comet.acked) == {"p1", "p2", "p3"})


@on_loop
async def test_topics_are_subscribed_listed_and_unsubscribed():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.subscribe("news", "weather")
        await device.subscribe(*map(str, range(300)))
        assert len([c for c in comet.heard if isinstance(c, Subscribe)]) == 3
        assert await device.topics() == ("news", "weather", *map(str, range(300)))
        await device.unsubscribe("news", *map(str, range(300)))
        assert await device.topics() == ("weather",)


@on_loop
async def test_a_bad_topic_is_said_to_be_and_a_busy_comet_asked_again():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        await device.topics()
        comet.errors.append(Error(4, "topics: too many"))
        with pytest.raises(BadRequest, match="topics: too many"):
            await device.subscribe("a")
        comet.errors.append(Error(4, "not now"))
        with pytest.raises(BadRequest, match="not now"):
            await device.topics()
        comet.errors.append(Error(3, "the store is away"))
        await device.subscribe("b")
        assert list(comet.topics) == ["b"]


@on_loop
async def test_what_is_asked_survives_the_connection():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.answering = False
        asking = asyncio.ensure_future(device.subscribe("a"))
        await comet.until(lambda: Subscribe(("a",)) in comet.heard)
        comet.answering = True
        comet.live.transport.abort()
        await asking
        assert list(comet.topics) == ["a"]


@on_loop
async def test_a_request_without_an_answer_ends_in_time():
    async with Comet() as comet:
        options = DeviceOptions(request_timeout_s=0.1)
        async with device_of(ScriptedWeb(comet), options=options) as device:
            await device.wait_connected()
            comet.answering = False
            with pytest.raises(Overload, match="no answer within") as caught:
                await device.subscribe("a")
            assert caught.value.outcome_unknown


@on_loop
async def test_it_beats_and_leaves_a_comet_that_does_not_answer():
    async with Comet() as comet:
        options = DeviceOptions(
            heartbeat_s=0.05, answer_timeout_s=0.1, backoff_first_s=0.01, backoff_max_s=0.05
        )
        async with device_of(ScriptedWeb(comet), options=options) as device:
            await comet.until(lambda: comet.heard.count(Heartbeat()) >= 3)
            assert comet.logins == 1
            comet.answering = False
            comet.heard.clear()
            await comet.lines[0].lost
            # One that is not answered is enough, beside one that was under way.
            assert comet.heard.count(Heartbeat()) <= 2
            comet.answering = True
            await comet.until(lambda: GetMessageList() in comet.heard[-2:])
            assert device.connected


@on_loop
async def test_a_comet_that_says_nothing_at_login_is_left():
    async with Comet() as comet:
        comet.answering = False
        options = DeviceOptions(connect_timeout_s=0.1, backoff_first_s=0.01, backoff_max_s=0.05)
        async with device_of(ScriptedWeb(comet), options=options) as device:
            await comet.until(lambda: comet.logins == 2)
            comet.answering = True
            await device.wait_connected()


@on_loop
async def test_a_slow_user_stops_the_comet_and_loses_nothing():
    async with Comet() as comet:
        options = DeviceOptions(inbox_bytes_max=50_000)
        async with device_of(ScriptedWeb(comet), options=options) as device:
            await device.wait_connected()
            line = comet.live
            large = [(1, f"p{n}", bytes(50_000)) for n in range(400)]
            line.push(*large)
            # Neither end's kernel holds 20 MB: what is left is here, as the device reads no more.
            await asyncio.sleep(0.5)
            assert line.transport.get_write_buffer_size() > 1_000_000
            assert [(await anext(device)).id for _ in large] == [each[1] for each in large]


@on_loop
async def test_garbage_from_a_comet_makes_it_come_back():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        comet.live.transport.write(b"\x00\x01\x77")
        await comet.until(lambda: comet.logins == 2)
        await device.wait_connected()


@on_loop
async def test_clicks_go_to_the_web_until_it_takes_them():
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        async with device_of(web) as device:
            await device.wait_connected()
            web.refusals.extend([Unreachable("web: away"), Overload("web: 503")])
            await device.click(note(1))
            # One who is not known any more gets known again, once.
            web.refusals.append(Forbidden("token: expired"))
            await device.click(note(2), note(3))
            assert web.clicks == [
                (CLIENT, "token-1", "p1"),
                (CLIENT, "token-2", "p2"),
                (CLIENT, "token-2", "p3"),
            ]
            web.refusals.extend([BadRequest("note: none")])
            with pytest.raises(BadRequest, match="note: none"):
                await device.click(note(4))


@on_loop
async def test_an_app_that_never_was_is_said_at_once():
    async with Comet() as comet:
        web = ScriptedWeb(comet)
        web.refusals.append(Forbidden("app: there is none with this key"))
        async with device_of(web) as device:
            with pytest.raises(Forbidden, match="app: there is none"):
                await anext(device)


@on_loop
async def test_waiting_for_a_note_can_be_cancelled_without_losing_one():
    async with Comet() as comet, device_of(ScriptedWeb(comet)) as device:
        await device.wait_connected()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(device), 0.05)
        comet.live.push(letter(1))
        assert await anext(device) == note(1)


@on_loop
async def test_grants_may_come_from_the_apps_own_server():  # P10
    async with Comet() as comet:
        web = ScriptedWeb(comet)

        async def ask():
            return await web.grant("shop", "d1")

        async with Device(
            app="shop", device="d1", grants=ask, options=FAST, clock=StillClock()
        ) as device:
            await device.wait_connected()
            with pytest.raises(ConfigError, match="web: clicks"):
                await device.click(note(1))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"web": None}, "web: "),
        ({"web": "host:7401"}, "web: http"),
        ({"web": "ftp://host"}, "web: http"),
        ({"app": ""}, "app: "),
        ({"device": ""}, "device: "),
        ({"identity": b"short"}, "identity: 5 bytes"),
    ],
)
def test_what_makes_no_sense_is_said_when_it_is_made(settings, why):
    with pytest.raises(ConfigError, match=why):
        Device(**({"app": "a", "device": "d", "web": "http://h:1"} | settings))


@pytest.mark.parametrize("name", DeviceOptions.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_options_have_bounds(name, value):
    with pytest.raises(ConfigError, match=f"device.{name}"):
        DeviceOptions(**{name: value})
