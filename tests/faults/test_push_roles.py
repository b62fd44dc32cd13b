"""Push in processes of any shape: one role each, all in one, workers; with TLS; told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.device import Device, DeviceOptions
from chappe.wire.push import PushError
from tests.node.certificate import make_certificate

from .peer import wait_for_end
from .process import COMMAND
from .push_device import OPTIONS
from .push_layout import AppKey, PushLayout, PushProcess, make_app
from .push_peer import DevicePeer, send, take_ticket
from .trio import story

pytestmark = pytest.mark.timeout(200)

ALONE = "drain_s = 1.0\n[events]\nenabled = false\n"
# What a send may take while a comet says nothing: its time limit, and a busy machine.
ANSWER_S = 5.0 + 2.0
# Does not notice that a comet hangs.
PATIENT = DeviceOptions(backoff_first_s=0.05, backoff_max_s=0.5)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushLayout]:
    layout = PushLayout(tmp_path_factory.mktemp("push"))
    yield layout
    layout.stop()


@pytest.fixture(scope="module")
def app(layout: PushLayout) -> AppKey:
    return make_app(layout["a1"], "roles")


def test_each_says_where_it_is_reached_and_no_more(layout: PushLayout) -> None:  # P1
    for name, node in layout.nodes.items():
        wanted = {"http", "comet"} if name.startswith("c") else {"http"}
        assert node.addresses.keys() == wanted
        assert node.ask("GET", "/readyz").status == 200
    assert layout["c1"].addresses["comet"].startswith("tcp://127.0.0.1:")


def test_each_answers_for_its_own_role_only(layout: PushLayout, app: AppKey) -> None:  # P1
    asked = {"app": app.key, "device": "d"}
    found = {
        name: (
            node.ask("POST", "/v1/push/devices", asked).status,
            app.post(node, "/v1/push/send", topic="t", data=1).status,
        )
        for name, node in layout.nodes.items()
    }
    assert found["w1"] == (200, 404)
    # Nobody subscribes to the topic.
    assert found["a1"] == (404, 404)
    assert found["c1"] == found["c2"] == (404, 404)
    path = "/v1/push/jobs"
    assert layout["a1"].ask("GET", path, None, app.headers("GET", path, b"")).status == 200
    assert layout["w1"].ask("GET", path, None, app.headers("GET", path, b"")).status == 404


def test_a_comet_carries_nothing_that_it_does_not_need(layout: PushLayout) -> None:  # P13
    assert "pyarrow" not in Path(f"/proc/{layout['c1'].pid}/maps").read_text()
    # Not by the command, whose flags are read by a library that takes pydantic along.
    modules = subprocess.run(
        [sys.executable, "-c", _MODULES, layout.config("c9"), str(layout.secret.parent / "c9")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert modules.returncode == 0, modules.stderr
    found = set(json.loads(modules.stdout.splitlines()[-1]))
    assert "chappe.push.comet.comet" in found
    heavy = {"fastapi", "pydantic", "pyarrow", "pyspark", "chappe.node.node"}
    assert found & heavy == set()


_MODULES = """
import asyncio, json, pathlib, sys
from chappe.node.options import load_options
folder = pathlib.Path(sys.argv[2])
folder.mkdir()
(folder / "node.toml").write_text(sys.argv[1])
flags = {"roles": "comet", "data": str(folder), "http_port": 0, "comet_port": 0}
options = load_options(folder / "node.toml", {}, flags)
from chappe.node.opening import open_node
async def main():
    node = open_node(options)
    await node.start()
    await asyncio.sleep(1.5)
    await node.drain()
asyncio.run(main())
print(json.dumps([name for name in sys.modules]))
"""


def test_devices_of_a_comet_that_stops_move_elsewhere_and_miss_nothing(
    layout: PushLayout, app: AppKey, tmp_path: Path
) -> None:  # P7, P14
    story(a_comet_stops, layout, app, tmp_path)


async def a_comet_stops(layout: PushLayout, app: AppKey, folder: Path) -> None:
    await layout.whole(app)
    web = layout["w1"].addresses["http"]
    names = [f"moves{n}" for n in range(6)]
    devices = [
        Device(app=app.key, device=name, web=web, cache=folder / name, options=OPTIONS)
        for name in names
    ]
    for device in devices:
        await device.__aenter__()
        await device.wait_connected()
    sent: list[str] = []
    stopped = asyncio.create_task(asyncio.to_thread(layout["c1"].stop))
    while not stopped.done() or len(sent) < 20:
        said = await asyncio.to_thread(send, layout["a1"], app, device=names, data=len(sent))
        sent.append(said["note"])
    await stopped
    try:
        for device in devices:
            async with asyncio.timeout(30):
                got = [await anext(device) for _ in sent]
            assert sorted(note.id for note in got) == sorted(sent)
            await device.close()
    finally:
        await asyncio.to_thread(layout["c1"].start)


def test_a_device_whose_comet_is_gone_asks_the_web_for_another(
    layout: PushLayout, app: AppKey, tmp_path: Path
) -> None:  # P11, P15
    story(a_cached_comet_is_gone, layout, app, tmp_path)


async def a_cached_comet_is_gone(layout: PushLayout, app: AppKey, folder: Path) -> None:
    await layout.whole(app)
    web, at = layout["w1"].addresses["http"], layout["c1"].addresses["comet"]
    names = [f"cached{n}" for n in range(40)]
    name = next(name for name in names if take_ticket(layout["w1"], app, name)["comet"] == at)
    cache = folder / "cache"
    how = {"app": app.key, "device": name, "web": web, "cache": cache, "options": OPTIONS}
    async with Device(**how) as device:
        await device.wait_connected()
    layout["c1"].kill()
    try:
        note = (await asyncio.to_thread(send, layout["a1"], app, device=name, data=1))["note"]
        async with Device(**how) as device, asyncio.timeout(20):
            assert (await anext(device)).id == note
        assert at not in cache.read_text()
    finally:
        await asyncio.to_thread(layout["c1"].start)


def test_a_send_does_not_wait_for_a_comet_that_hangs_and_its_note_comes_later(
    layout: PushLayout, app: AppKey, tmp_path: Path
) -> None:  # P7
    story(a_comet_hangs, layout, app)


async def a_comet_hangs(layout: PushLayout, app: AppKey) -> None:
    await layout.whole(app)
    ticket = take_ticket(layout["w1"], app, "hangs")
    (comet,) = [c for c in layout.comets() if c.addresses["comet"] == ticket["comet"]]
    web = layout["w1"].addresses["http"]
    async with Device(app=app.key, device="hangs", web=web, options=PATIENT) as device:
        await device.wait_connected()
        await device.subscribe("hung")
        comet.hold()
        try:
            sent = []
            for target in ({"device": "hangs"}, {"topic": "hung"}):
                began = time.monotonic()
                said = await asyncio.to_thread(send, layout["a1"], app, **target, data=1)
                assert time.monotonic() - began < ANSWER_S
                assert (said["sent"], said["offline"]) == (0, 1)
                sent.append(said["note"])
        finally:
            comet.resume()
        # The device has noticed nothing: it is the comet that has to look.
        async with asyncio.timeout(20):
            got = [await anext(device) for _ in sent]
        assert sorted(note.id for note in got) == sorted(sent)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(device)


def test_what_is_sent_by_one_that_has_just_begun_comes_to_who_is_connected(
    layout: PushLayout, app: AppKey
) -> None:  # P7
    story(an_admin_begins, layout, app)


async def an_admin_begins(layout: PushLayout, app: AppKey) -> None:
    await layout.whole(app)
    web = layout["w1"].addresses["http"]
    async with Device(app=app.key, device="waits", web=web, options=PATIENT) as device:
        await device.wait_connected()
        sent = []
        for _ in range(3):
            layout["a1"].kill()
            await asyncio.to_thread(layout["a1"].start)
            for _ in range(5):
                said = await asyncio.to_thread(send, layout["a1"], app, device="waits", data=1)
                sent.append(said["note"])
        async with asyncio.timeout(20):
            got = [await anext(device) for _ in sent]
        assert sorted(note.id for note in got) == sorted(sent)


@pytest.mark.parametrize(
    "flags",
    [(), ("--workers", "2"), ("--roles", "comet,web,admin", "--workers", "2")],
    ids=["all in one", "workers", "workers of push"],
)
def test_one_command_serves_devices_by_itself(tmp_path: Path, flags: tuple[str, ...]) -> None:
    node = PushProcess(tmp_path, ALONE, *flags)
    try:
        wanted = {"http", "comet"} | ({"workers"} if "--workers" in flags else set())
        assert node.addresses.keys() >= wanted
        app = make_app(node, "alone")
        tickets = [take_ticket(node, app, f"d{n}") for n in range(8)]
        peers = [DevicePeer(ticket).login() for ticket in tickets]
        # Of several workers each has some, and whoever is asked reaches them all.
        for number in range(4):
            fields = {"device": [f"d{n}" for n in range(8)], "data": number}
            until_sent(node, app, fields, len(peers) if number else 0)
        for peer in peers:
            assert [peer.notes() for _ in range(4)] == [[b"%d" % n] for n in range(4)]
            peer.sock.close()
        send(node, app, device="d0", data="kept")
    finally:
        node.stop()
    node.start()
    try:
        with DevicePeer(tickets[0], node.addresses["comet"]).login() as peer:
            assert peer.waiting[-1] == b'"kept"'
    finally:
        node.stop()


def until_sent(node: PushProcess, app: AppKey, fields: dict[str, object], wanted: int) -> None:
    said = send(node, app, **fields)
    assert said["aimed"] == 8
    assert said["sent"] >= wanted


def test_devices_are_taken_over_tls_and_nothing_else_is(tmp_path: Path) -> None:  # P4
    cert, key = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(cert))
    layout = PushLayout(
        tmp_path / "all", more=f'[tls]\ncert = "{cert}"\nkey = "{key}"\n', roles={"c1": "comet"}
    )
    try:
        comet = layout["c1"].addresses["comet"]
        assert comet.startswith("tls://127.0.0.1:")
        ticket = {"client": "c000000000000000", "token": "t", "identity": "A" * 43 + "="}
        with DevicePeer(ticket, comet, context) as peer:
            peer.auth()
            assert peer.hear_error().code == PushError.CLIENT_NOT_FOUND
        with DevicePeer(ticket, comet) as peer:
            peer.auth()
            said = wait_for_end(peer.sock)
            # At most a TLS alert.
            assert not said or said[0] == 0x15
        with pytest.raises(ssl.SSLError):
            DevicePeer(ticket, comet, ssl.create_default_context())
    finally:
        layout.stop()


@pytest.mark.parametrize(
    ("flags", "config", "said"),
    [
        (("--roles", "comet"), "", "roles: without a registry"),
        (("--roles", "comet,web"), "", "nobody else could be admin"),
        (("--roles", "comet", "--workers", "2"), "", "roles: without a registry"),
        (("--roles", "comets"), "", "'comets' is none of"),
        (("--roles", "comet,broker"), "", "only with a hub"),
        (("--comet-port", "70000"), "", "comet_port: 70000 is not a port"),
        (("--roles", "comet"), 'registry = "{redis}"\n', "cluster.secret"),
        (
            ("--roles", "comet"),
            'registry = "{redis}"\n[cluster]\nsecret = "{secret}"\n',
            "push.states: other nodes do not see",
        ),
        (
            ("--roles", "admin"),
            'registry = "{redis}"\nstore = "{redis}"\n[cluster]\nsecret = "{secret}"\n'
            '[push.states]\nroute = "sqlite:"\n',
            "other nodes do not see this one's route",
        ),
        ((), '[push.states]\nroutes = "memory"\n', "push.states: 'routes' is none of"),
        ((), '[push.states]\nroute = "mysql://x"\n', "'mysql' is no kind of state"),
        ((), "[push]\ngone_s = 0\n", "push.gone_s"),
        ((), "[push.comet]\nidle_s = 1\n", "push.comet.idle_s"),
        ((), "[push.comet]\nidle = 1\n", "push.comet"),
    ],
)
def test_what_makes_no_sense_is_said_clearly(
    layout: PushLayout, tmp_path: Path, flags: tuple[str, ...], config: str, said: str
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(config.format(redis=layout.redis.url, secret=layout.secret))
    ports = ("--port", "0", "--http-port", "0", "--tcp-port", "0", "--data", str(tmp_path / "d"))
    done = subprocess.run(
        [COMMAND, "serve", "--dev", "--config", str(file), *ports, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, -signal.SIGKILL)
    told = " ".join(done.stderr.replace("│", " ").split())
    assert said in told, told
    assert "Traceback" not in told
