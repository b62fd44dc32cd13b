"""Sessions that are addressed by key, alike on every edge (K5, K7, K9)."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from chappe import BadRequest, Forbidden, Hub, Unreachable
from chappe.hub.options import HubOptions
from chappe.keys.options import KeysOptions
from chappe.wire.limits import Limits
from tests.contract.keyed import EDGES, served, talking, until
from tests.faults.figures import FULL
from tests.loop import on_loop
from tests.node.certificate import make_certificate

every_edge = pytest.mark.parametrize("edge", EDGES)
ALL_BYTES = bytes(range(256))
slow_to_end = pytest.mark.skipif(
    not FULL, reason="granian ends such a connection when it likes; part of the full proof"
)


def watching(**options: Any) -> Hub:
    """A hub where whoever says so watches a key."""
    hub = Hub(**options)

    @hub.text("/orders", type="watch")
    async def watch(session: Any, message: Any) -> None:
        await hub.subscribe(session, message.key)
        await session.send(None, type="watching", key=message.key)

    return hub


@every_edge
@on_loop
async def test_who_subscribes_gets_what_is_sent_by_key_from_then_on(edge: str) -> None:
    hub = watching()
    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        assert await hub.send("key:7", "before") == 0
        await one.say("watch", "7")
        assert await one.hear() == ("watching", "7", None)
        assert await hub.send("key:7", {"state": "packed"}) == 1
        assert await hub.send("7", [1], type="note") == 1
        assert await one.hear() == ("message", "7", {"state": "packed"})
        assert await one.hear() == ("note", "7", [1])


@every_edge
@on_loop
async def test_who_leaves_has_no_keys_though_its_handlers_are_busy(edge: str) -> None:  # K5
    hub, go_on, ended = Hub(), asyncio.Event(), asyncio.Event()

    @hub.text("/orders", type="slow")
    async def slow(session: Any, message: Any) -> None:
        await hub.subscribe(session, "7")
        await session.send("now")
        await go_on.wait()
        ended.set()

    async with served(hub, edge) as url:
        async with talking(f"{url}/orders") as one:
            await one.say("slow", "")
            assert (await one.hear())[2] == "now"
        await until(lambda: not hub.counts()["keys"])
        assert hub.counts()["sessions"] == await hub.send("key:7", 1) == 0
        go_on.set()
        await asyncio.wait_for(ended.wait(), 10)


@every_edge
@on_loop
async def test_a_handler_that_awaits_what_was_cancelled_has_failed_and_no_more(edge: str) -> None:
    hub = watching()

    @hub.text("/orders", type="boom")
    async def boom(session: Any, message: Any) -> None:
        never = asyncio.get_running_loop().create_future()
        never.cancel()
        await never

    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        await one.say("boom", "")
        assert (await one.hear())[0] == "error"
        await one.say("watch", "7")
        assert await one.hear() == ("watching", "7", None)
        assert hub.counts()["handlers_failed"] == 1


@every_edge
@on_loop
async def test_who_says_more_than_its_handlers_come_to_does_not_stay_for_ever(
    edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chappe.edge.asgi._STUCK_S", 0.5)
    hub, never = Hub(keys=KeysOptions(inbox_messages_max=8)), asyncio.Event()

    @hub.text("/orders", type="hang")
    async def hang(session: Any, message: Any) -> None:
        await hub.subscribe(session, "7")
        await never.wait()

    async with served(hub, edge) as url:
        async with talking(f"{url}/orders") as one:
            for _ in range(100):
                await one.say("hang", "")
            await until(lambda: bool(hub.counts()["keys"]))
            if edge == "own":
                never.set()  # it reads on when there is room, and hears then who has gone
        await until(lambda: not hub.counts()["sessions"])
        assert hub.counts()["keys"] == 0
        never.set()


@every_edge
@on_loop
async def test_a_key_may_be_a_number_in_the_text(edge: str) -> None:
    hub = watching()
    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        await one.ws.send('{"type": "watch", "key": 7}')
        assert await one.hear() == ("watching", "7", None)


@every_edge
@on_loop
async def test_a_connect_hook_binds_keys_and_all_go_with_the_session(edge: str) -> None:  # K5
    hub, left = Hub(), []

    @hub.on_connect
    async def bind(session: Any) -> None:
        for key in ("everybody", f"user-{session.query['user']}"):
            assert await hub.subscribe(session, key)
        await session.send(sorted(session.keys), type="hello")

    @hub.on_disconnect
    async def gone(session: Any) -> None:
        left.append((session.query["user"], list(session.keys)))

    async with served(hub, edge) as url:
        async with talking(f"{url}/any?user=ada") as ada, talking(f"{url}/any?user=bob") as bob:
            assert await ada.hear() == ("hello", "", ["everybody", "user-ada"])
            assert await bob.hear() == ("hello", "", ["everybody", "user-bob"])
            assert await hub.send("key:everybody", 1) == 2
            assert await hub.send("key:user-bob", 2) == 1
            assert await ada.hear() == ("message", "everybody", 1)
            assert [await bob.hear(), await bob.hear()] == [
                ("message", "everybody", 1),
                ("message", "user-bob", 2),
            ]
            assert hub.counts() == {"sessions": 2, "keys": 3}
        await until(lambda: hub.counts() == {"sessions": 0, "keys": 0})
        assert await hub.send("key:everybody", 3) == 0
        await until(lambda: sorted(left) == [("ada", []), ("bob", [])])


@every_edge
@on_loop
async def test_who_leaves_while_a_connect_hook_runs_leaves_no_key_behind(edge: str) -> None:
    hub, inside, go_on, outcome = Hub(), asyncio.Event(), asyncio.Event(), []

    @hub.on_connect
    async def slow(session: Any) -> None:
        await hub.subscribe(session, "early")
        inside.set()
        await go_on.wait()
        try:
            await hub.subscribe(session, "late")
            outcome.append("there")
        except Unreachable:
            outcome.append("gone")

    async with served(hub, edge) as url:
        async with talking(f"{url}/any") as one:
            await inside.wait()
            one.ws.transport.abort()
        if edge == "own":
            # There a connection is watched while hooks run; elsewhere a server tells when asked.
            await until(lambda: not hub.counts()["sessions"])
        go_on.set()
        await until(lambda: len(outcome) == 1)
        await until(lambda: hub.counts() == {"sessions": 0, "keys": 0})
        assert outcome == ["gone" if edge == "own" else "there"]


@every_edge
@on_loop
async def test_a_connect_hook_that_refuses_ends_the_session_with_the_reason(edge: str) -> None:
    hub = Hub()

    @hub.on_connect
    def refuse(session: Any) -> None:
        match session.path:
            case "/forbidden":
                raise Forbidden("not you")
            case "/full":
                raise BadRequest("no room")
            case _:
                raise ZeroDivisionError

    async with served(hub, edge) as url:
        for path, end in (
            ("/forbidden", (4001, "not you")),
            ("/full", (1008, "no room")),
            ("/", (1011, "not possible now")),
        ):
            async with talking(url + path) as one:
                assert await one.end() == end
        await until(lambda: hub.counts()["sessions"] == 0)


async def refused(url: str, edge: str, reason: str, **options: Any) -> None:
    """Our own edge looks at a handshake once it is a session's, and closes it; others answer."""
    if edge == "own":
        async with talking(url, **options) as one:
            assert await one.end() == (4001, reason)
        return
    with pytest.raises(InvalidStatus) as error:
        async with talking(url, **options):
            pass
    response = error.value.response
    assert (response.status_code, bytes(response.body or b"")) == (403, f"{reason}\n".encode())


@every_edge
@on_loop
async def test_a_handshake_check_refuses(edge: str) -> None:  # K5
    hub = watching()

    @hub.on_handshake
    async def allowed(handshake: Any) -> bool:
        return handshake.headers.get("x-ticket") != "none"

    @hub.on_handshake
    def known(handshake: Any) -> None:  # a plain function, in a thread
        token = handshake.query.get("token", "")
        if token == "broken":
            raise ZeroDivisionError
        if token != "right":
            raise Forbidden("token: not a known one")
        handshake.state["user"] = "ada"

    @hub.text("/orders", type="who")
    async def who(session: Any, message: Any) -> None:
        await session.send(session.state["user"])

    async with served(hub, edge) as url:
        where = f"{url}/orders"
        await refused(where, edge, "token: not a known one")
        await refused(
            f"{where}?token=right", edge, "not allowed", additional_headers={"X-Ticket": "none"}
        )
        await refused(f"{where}?token=broken", edge, "not possible now")
        async with talking(f"{where}?token=right") as one:
            await one.say("who")
            assert await one.hear() == ("message", "", "ada")
        assert hub.counts()["handshakes_refused"] == 3


@every_edge
@on_loop
async def test_where_nobody_listens_nobody_comes_in(edge: str) -> None:
    async with served(watching(), edge) as url:
        await refused(f"{url}/elsewhere", edge, "there is nothing here")


@every_edge
@on_loop
async def test_pages_of_other_hosts_must_be_listed(edge: str) -> None:
    hub = watching(origins=["https://shop.example"])
    async with served(hub, edge) as url:
        where = f"{url}/orders"
        for origin in ("https://evil.example", "null", "https://shop.example.evil.example"):
            with pytest.raises(InvalidStatus) as error:
                async with talking(where, origin=origin):
                    pass
            assert error.value.response.status_code == 403
        for origin in (None, "https://shop.example"):
            async with talking(where, origin=origin) as one:
                await one.say("watch", "7")
                assert await one.hear() == ("watching", "7", None)


@every_edge
@on_loop
async def test_pages_of_the_same_host_may_connect(edge: str) -> None:
    async with (
        served(watching(), edge) as url,
        talking(f"{url}/orders", origin=url.replace("ws:", "http:")) as one,
    ):
        await one.say("watch", "7")
        assert await one.hear() == ("watching", "7", None)


@every_edge
@on_loop
async def test_a_message_goes_to_every_handler_that_matches(edge: str) -> None:  # K7
    hub, seen = Hub(), []

    def add(name: str, path: str, **kind: str) -> None:
        @hub.text(path, **kind)
        async def take(session: Any, message: Any) -> None:
            seen.append((name, message.type, message.key, message.data))

    add("exact", "/a", type="x")
    add("any type", "/a")
    add("any path", "*", type="x")
    add("anything", "*")
    add("other", "/b/", type="x")
    async with served(hub, edge) as url, talking(f"{url}/a/") as one, talking(f"{url}/b") as two:
        await one.say("x", "k", 1)
        await until(lambda: len(seen) == 4)
        assert seen == [(n, "x", "k", 1) for n in ("exact", "any type", "any path", "anything")]
        seen.clear()
        await one.say("y", "k", 2)
        await until(lambda: len(seen) == 2)
        assert [name for name, *_ in seen] == ["any type", "anything"]
        seen.clear()
        await two.say("x")
        await until(lambda: len(seen) == 3)
        assert [name for name, *_ in seen] == ["any path", "anything", "other"]
        assert "unmatched" not in hub.counts()


@every_edge
@on_loop
async def test_text_that_is_no_message_goes_to_plaintext_handlers(edge: str) -> None:  # K7
    hub = Hub()

    @hub.plaintext("/chat")
    async def echo(session: Any, text: str) -> None:
        await session.send(text, type="plain")

    @hub.text("/chat")
    async def other(session: Any, message: Any) -> None:
        await session.send(message.data, type="text")

    async with served(hub, edge) as url, talking(f"{url}/chat") as one:
        for text in ("hello", "{", "[1]", "7", '"quoted"', "", "gr\u00fc\u00df \U0001f600"):
            await one.ws.send(text)
            assert await one.hear() == ("plain", "", text)
        await one.ws.send('{"data": 1}')
        assert await one.hear() == ("text", "", 1)


@every_edge
@on_loop
async def test_binary_is_carried_both_ways_unchanged(edge: str) -> None:
    hub = Hub()

    @hub.on_connect
    async def bind(session: Any) -> None:
        await hub.subscribe(session, "all")

    @hub.binary("/upload")
    async def back(session: Any, data: bytes) -> None:
        assert isinstance(data, bytes)
        await session.send(data[::-1])
        await hub.send("key:all", memoryview(data))

    async with served(hub, edge) as url, talking(f"{url}/upload") as one:
        for data in (ALL_BYTES, b"", ALL_BYTES * 1000):
            await one.ws.send(data)
            assert await one.ws.recv() == data[::-1]
            assert await one.ws.recv() == data


@every_edge
@on_loop
async def test_what_nobody_takes_is_counted_and_logged_once(edge: str) -> None:  # K7
    hub = watching()
    with capture_logs() as logs:
        async with served(hub, edge) as url, talking(f"{url}/orders") as one:
            for _ in range(3):
                await one.say("dance")
                await one.ws.send("plain")
                await one.ws.send(b"binary")
            await one.say("watch", "7")
            assert await one.hear() == ("watching", "7", None)
            assert hub.counts()["unmatched"] == 9
    told = [entry for entry in logs if entry["event"] == "keys.unmatched"]
    assert [(t["path"], t["type"]) for t in told] == [
        ("/orders", "dance"),
        ("/orders", "text"),
        ("/orders", "binary"),
    ]


@every_edge
@on_loop
async def test_what_is_wrong_is_answered_and_the_session_goes_on(edge: str) -> None:
    hub = watching()
    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        for key, fault in (("", "is empty"), ("a b", "space"), ("a*", "wildcard")):
            await one.say("watch", key)
            kind, about, told = await one.hear()
            assert (kind, about, told["error"]) == ("error", key, "protocol")
            assert told["reason"].startswith("key: it ")
            assert fault in told["reason"]
        for text, field in (('{"type": 1}', "type"), ('{"type": "watch", "key": []}', "key")):
            await one.ws.send(text)
            kind, about, told = await one.hear()
            assert (kind, about, told["error"]) == ("error", "", "protocol")
            assert told["reason"].startswith(f"{field}: must be")
        await one.say("watch", "7")
        assert await one.hear() == ("watching", "7", None)


@every_edge
@on_loop
async def test_a_handler_that_raises_is_logged_and_the_others_are_called(
    edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    hub = watching()

    @hub.text("*", type="break")
    def broken(session: Any, message: Any) -> None:
        raise ZeroDivisionError("a secret")

    @hub.text("*", type="break")
    async def whole(session: Any, message: Any) -> None:
        await session.send("whole")

    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        await one.say("break", "7")
        kind, key, told = await one.hear()
        assert (kind, key, told["error"]) == ("error", "7", "internal")
        assert "secret" not in json.dumps(told)
        assert await one.hear() == ("message", "", "whole")
        await one.say("watch", "7")
        assert await one.hear() == ("watching", "7", None)
        assert hub.counts()["handlers_failed"] == 1
    logged = [record for record in caplog.records if record.name == "chappe.keys"]
    assert [record.levelname for record in logged] == ["ERROR"]


@every_edge
@on_loop
async def test_slow_handlers_hold_up_nobody_else_and_keep_the_order(edge: str) -> None:
    hub, release, go_on = Hub(), threading.Event(), asyncio.Event()

    @hub.text("*", type="thread")
    def in_a_thread(session: Any, message: Any) -> None:
        assert release.wait(20)
        hub.blocking.reply(session, message.data)

    @hub.text("*", type="task")
    async def in_a_task(session: Any, message: Any) -> None:
        await go_on.wait()
        await session.send(message.data)

    @hub.text("*", type="fast")
    async def fast(session: Any, message: Any) -> None:
        await session.send(message.data)

    async with (
        served(hub, edge) as url,
        talking(f"{url}/") as one,
        talking(f"{url}/") as two,
        talking(f"{url}/") as other,
    ):
        for talker, kind in ((one, "thread"), (two, "task")):
            await talker.say(kind, data=0)
            for n in range(1, 100):
                await talker.say("fast", data=n)
        for n in range(20):
            await other.say("fast", data=n)
            assert await other.hear() == ("message", "", n)
        release.set()
        go_on.set()
        for talker in (one, two):
            assert [(await talker.hear())[2] for _ in range(100)] == list(range(100))


@pytest.mark.parametrize(
    "edge", [edge if edge != "granian" else pytest.param(edge, marks=slow_to_end) for edge in EDGES]
)
@on_loop
async def test_who_does_not_read_is_closed_and_disturbs_nobody(edge: str) -> None:
    bound = 256 * 1024
    hub = watching(options=HubOptions(outbox_bytes_max=bound))
    chunk = "x" * 16_384
    async with (
        served(hub, edge) as url,
        talking(f"{url}/orders") as well,
        # What lies in its own queue is not read from the network, either.
        talking(f"{url}/orders", max_queue=1) as stuck,
    ):
        for talker in (well, stuck):
            await talker.say("watch", "7")
            assert await talker.hear() == ("watching", "7", None)
        sent = 0
        async with asyncio.timeout(20):
            while hub.counts()["sessions"] == 2:
                sent += 1
                await hub.send("key:7", chunk)
                assert (await well.hear())[2] == chunk
                # Buffers of the kernel and of the server come before ours; then it is over.
                assert sent * len(chunk) < 64 * 1024 * 1024
        assert await hub.send("key:7", "after") == 1
        assert (await well.hear())[2] == "after"
        assert hub.counts() == {"sessions": 1, "keys": 1}
        await stuck.end()


@every_edge
@on_loop
async def test_a_message_that_is_too_big_ends_its_session(edge: str) -> None:
    hub = watching(limits=Limits(message_bytes_max=4096))

    @hub.plaintext("*")
    async def size(session: Any, text: str) -> None:
        await session.send(len(text.encode()))

    async with served(hub, edge) as url:
        for message in ("x" * 4097, b"x" * 4097, "\u00e9" * 2049):
            async with talking(f"{url}/orders") as one:
                await one.ws.send("\u00e9" * 2048)
                assert await one.hear() == ("message", "", 4096)
                await one.ws.send(message)
                code, _ = await one.end()
                assert code == 1009
        with pytest.raises(BadRequest):
            await hub.send("key:7", "x" * 4097)


@every_edge
@on_loop
async def test_sessions_are_closed_by_key_after_what_was_sent_before(edge: str) -> None:  # K9
    hub = watching()
    async with served(hub, edge) as url, talking(f"{url}/orders") as other:
        async with talking(f"{url}/orders") as one, talking(f"{url}/orders") as two:
            for talker, key in ((one, "7"), (two, "7"), (other, "8")):
                await talker.say("watch", key)
                await talker.hear()
            for n in range(50):
                await hub.send("key:7", n)
            assert await hub.close("key:7", code=4100, reason="the order is done") == 2
            assert await hub.send("key:7", "too late") == 0
            for talker in (one, two):
                assert [(await talker.hear())[2] for _ in range(50)] == list(range(50))
                assert await talker.end() == (4100, "the order is done")
        assert await hub.close("key:7") == 0
        assert await hub.send("key:8", "on") == 1
        assert (await other.hear())[2] == "on"
        with pytest.raises(BadRequest):
            await hub.close("key:8", code=1006)


@every_edge
@on_loop
async def test_a_handler_may_end_its_session(edge: str) -> None:
    hub, after = Hub(), []

    @hub.text("*")
    async def bye(session: Any, message: Any) -> None:
        await session.send("bye")
        await session.close(4101, "as you wish")
        after.append((session.closed, await session.send("more")))
        with pytest.raises(Unreachable):
            await hub.subscribe(session, "7")

    async with served(hub, edge) as url, talking(f"{url}/") as one:
        await one.say("leave")
        await one.say("again")
        assert await one.hear() == ("message", "", "bye")
        assert await one.end() == (4101, "as you wish")
        assert after == [(True, False)]
        await until(lambda: hub.counts()["sessions"] == 0)


@every_edge
@on_loop
async def test_a_hub_that_stops_says_so_while_sessions_talk(edge: str) -> None:
    hub, started = watching(), threading.Event()

    @hub.text("*", type="slow")
    def slow(session: Any, message: Any) -> None:
        started.set()
        time.sleep(0.3)

    async with served(hub, edge) as url, talking(f"{url}/orders") as one:
        await one.say("slow")
        await asyncio.to_thread(started.wait)
        await hub.stop()
        assert await one.end() == (1001, "the hub stopped")
        assert hub.counts() == {}


@on_loop
async def test_our_own_edge_speaks_tls(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(cert))
    hub = watching()
    async with hub:
        port = await hub.listen(0, tls=theirs)
        async with talking(f"wss://127.0.0.1:{port}/orders", ssl=ours) as one:
            await one.say("watch", "7")
            assert await one.hear() == ("watching", "7", None)
            assert await hub.send("key:7", ALL_BYTES) == 1
            assert await one.ws.recv() == ALL_BYTES


@every_edge
@on_loop
async def test_what_a_session_says_too_fast_waits_at_the_door(edge: str) -> None:
    hub, gate, seen = Hub(keys=KeysOptions(inbox_messages_max=4)), asyncio.Event(), []

    @hub.plaintext("*")
    async def take(session: Any, text: str) -> None:
        await gate.wait()
        seen.append(text)

    async with served(hub, edge) as url, talking(f"{url}/") as one:
        blocked = False
        for n in range(2_000):
            try:
                await asyncio.wait_for(one.ws.send(f"{n:05}" + "x" * 20_000), 0.5)
            except TimeoutError:
                blocked = True
                break
        assert blocked
        gate.set()
        await until(lambda: len(seen) >= n)
        assert [int(text[:5]) for text in seen[:n]] == list(range(n))
