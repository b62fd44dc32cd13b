"""Alarms of rooms, told to a real server on this machine."""

from __future__ import annotations

import asyncio
import hmac
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from random import Random

import pytest

from chappe.clock import SystemClock
from chappe.endpoints.alarmhook import AlarmHook
from chappe.errors import ConfigError
from chappe.events.counting import CountingRecorder
from chappe.rooms.alarm import Notice, NoticeEnd
from chappe.rooms.options import ProbeOptions
from tests.endpoints.test_hook import OK, SECRET, Receiver, run

BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"


def make_notice(number=1, state="raised"):
    return Notice(
        id=f"gw-{number}",
        node="gw",
        at=5,
        state=state,
        cause="failed",
        tail=NoticeEnd("proxy", "px", 3),
        head=NoticeEnd("broker", "bk", 4, 1),
        failed_in_a_row=5,
        share=0.5,
    )


@pytest.fixture
def hooked(tmp_path):
    """Run a receiver, and a hook that tells it."""
    (tmp_path / "secret").write_bytes(SECRET)

    @asynccontextmanager
    async def running(receiver):
        server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        options = ProbeOptions(
            webhook=f"http://127.0.0.1:{port}/alarm",
            webhook_secret_file=str(tmp_path / "secret"),
        )
        recorder = CountingRecorder()
        hook = AlarmHook(options, clock=SystemClock(), rng=Random(1), recorder=recorder)
        hook.counts = recorder.hooks
        try:
            yield hook
        finally:
            await hook.close()
            receiver.release.set()
            server.close()

    return running


def test_an_alarm_is_a_signed_post(hooked):  # R15
    async def main():
        receiver = Receiver()
        async with hooked(receiver) as hook:
            hook.tell(make_notice())
            await receiver.arrive(1)
        ((line, headers, body),) = receiver.requests
        assert line == "POST /alarm HTTP/1.1"
        told = json.loads(body)
        assert (told["event"], told["state"], told["cause"]) == ("room_alarm", "raised", "failed")
        assert told["tail"] == {"role": "proxy", "node": "px", "id": 3}
        at, _, digest = headers["chappe-signature"].removeprefix("t=").partition(",v1=")
        assert digest == hmac.digest(SECRET, f"{at}.".encode() + body, "sha256").hex()

    run(main)


def test_what_is_over_is_not_told_before_it_began(hooked):
    async def main():
        receiver = Receiver(BUSY, OK)
        async with hooked(receiver) as hook:
            hook.tell(make_notice(1))
            hook.tell(make_notice(2, "over"))
            await receiver.arrive(3)
        bodies = [json.loads(body) for _, _, body in receiver.requests]
        assert [body["id"] for body in bodies] == ["gw-1", "gw-1", "gw-2"]
        assert receiver.open_max == 1

    run(main)


def test_what_waits_for_a_server_that_hangs_is_bounded_and_dropped_at_the_end(hooked):
    async def main():
        receiver = Receiver(None)
        async with hooked(receiver) as hook:
            for number in range(10_050):
                hook.tell(make_notice(number))
            await receiver.arrive(1)
            assert hook.counts["dropped"] in (49, 50)
        assert hook.counts["dropped"] == 10_050

    run(main)


def test_what_cannot_work_is_refused_at_the_start(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET)
    secret = str(tmp_path / "secret")

    async def make(**options):
        clock, recorder = SystemClock(), CountingRecorder()
        AlarmHook(ProbeOptions(**options), clock=clock, rng=Random(1), recorder=recorder)

    for options in (
        {"webhook": "http://example.com/a", "webhook_secret_file": secret},
        {"webhook": "https://example.com/a", "webhook_secret_file": secret + "-no"},
    ):
        with pytest.raises(ConfigError, match=r"rooms\.probe\.webhook"):
            asyncio.run(make(**options))


def test_a_webhook_without_a_secret_is_refused():
    with pytest.raises(ConfigError, match="webhook_secret_file"):
        ProbeOptions(webhook="https://example.com/a")


def test_who_has_no_webhook_imports_no_http_client():
    code = "import sys, chappe.rooms.prober, chappe.rooms.alarm; print('httpx' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
