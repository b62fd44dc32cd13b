"""Callbacks to a real server on this machine: one that works, and those that do not."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
from contextlib import asynccontextmanager
from random import Random

import pytest
import uvloop

from chappe.clock import SystemClock
from chappe.endpoints.hook import Hooks
from chappe.endpoints.options import HookOptions
from chappe.endpoints.presence import Transition
from chappe.errors import ConfigError
from chappe.events.counting import CountingRecorder
from tests.node.certificate import make_certificate

SECRET = b"a secret of more than thirty-two bytes, for hooks"
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver:
    """An app's server: answers each request with the next of its answers, the last one for ever.

    An answer is bytes, None to hang, "cut" to close the connection, or "drip" for one that never
    ends.
    """

    def __init__(self, *answers):
        self.answers = list(answers) or [OK]
        self.requests = []
        self.connections = 0
        self.open = self.open_max = 0
        self.dripped = False
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()

    async def arrive(self, number):
        async with asyncio.timeout(10):
            while len(self.requests) < number:
                self.arrived.clear()
                await self.arrived.wait()

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        self.requests.append((head[0], headers, body))
        self.arrived.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            if answer is None:
                await self.release.wait()
                answer = OK
            if answer == "cut":
                return False
            while answer == "drip":
                writer.write(b"HTTP/1.1 200 OK\r\n" if not self.dripped else b"x: y\r\n")
                self.dripped = True
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.write(answer)
            await writer.drain()
            return True
        finally:
            self.open -= 1


@pytest.fixture
def hooked(tmp_path):
    """Run a receiver and hooks that tell it, for app `shop`."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")

    @asynccontextmanager
    async def running(receiver, *, tls=None, url=None, **options):
        server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        url = (url or "http://127.0.0.1:{port}/hook?key=hidden").format(port=port)
        defaults = {"retry_first_s": 0.01, "retry_last_s": 0.02}
        hook = HookOptions(url=url, secret_file=str(tmp_path / "secret"), **defaults | options)
        recorder = CountingRecorder()
        hooks = Hooks(
            {"shop": hook}, node="n1", clock=SystemClock(), rng=Random(7), recorder=recorder
        )
        hooks.counts = recorder.hooks
        try:
            yield hooks
        finally:
            await hooks.close()
            receiver.release.set()
            server.close()

    return running


def gone(number=0, event="gone", app="shop"):
    return Transition(event, f"id-{number}", app, f"user:{number}", 1_794_774_463_244)


def run(main):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def settled(hooks, number=1):
    """Wait until so many notices have come to an end."""
    async with asyncio.timeout(10):
        while sum(hooks.counts.values()) - hooks.counts["retried"] < number:
            await asyncio.sleep(0.001)


def test_a_notice_says_what_happened_and_is_signed_with_its_time(hooked):
    async def main():
        receiver = Receiver()
        async with hooked(receiver) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        ((line, headers, body),) = receiver.requests
        assert line == "POST /hook?key=hidden HTTP/1.1"
        assert json.loads(body) == {
            "event": "gone",
            "id": "id-0",
            "app": "shop",
            "address": "user:0",
            "at": 1_794_774_463_244,
            "node": "n1",
        }
        time, _, digest = headers["chappe-signature"].partition(",v1=")
        signed = time.removeprefix("t=").encode() + b"." + body
        assert hmac.new(SECRET, signed, hashlib.sha256).hexdigest() == digest
        assert hooks.counts == {"taken": 1}

    run(main)


def test_only_the_events_and_the_app_that_were_asked_for_are_told(hooked):
    async def main():
        receiver = Receiver()
        async with hooked(receiver, events=["came"]) as hooks:
            hooks.tell(gone(1))
            hooks.tell(gone(2, app="other"))
            hooks.tell(gone(3, event="came"))
            await settled(hooks)
        assert [json.loads(body)["id"] for _, _, body in receiver.requests] == ["id-3"]

    run(main)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
        "cut",
    ],
)
def test_what_fails_is_tried_again_under_the_same_id_and_signed_anew(hooked, answer):
    async def main():
        receiver = Receiver(answer, answer, OK)
        async with hooked(receiver) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert len({body for _, _, body in receiver.requests}) == 1
        times = [int(h["chappe-signature"][2:].split(",")[0]) for _, h, _ in receiver.requests]
        assert times == sorted(set(times))
        assert hooks.counts == {"retried": 2, "taken": 1}

    run(main)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 307 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_what_no_retry_can_mend_is_not_tried_again_and_no_redirect_followed(hooked, answer):
    async def main():
        receiver = Receiver(answer)
        async with hooked(receiver) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert len(receiver.requests) == 1
        assert hooks.counts == {"refused": 1}

    run(main)


def test_a_server_that_hangs_is_given_up_in_time_and_blocks_nobody(hooked):
    async def main():
        receiver = Receiver(None)
        async with hooked(receiver, timeout_s=0.05, attempts_max=3) as hooks:
            hooks.tell(gone())
            await receiver.arrive(1)
            await settled(hooks)
        assert len(receiver.requests) == 3
        assert hooks.counts == {"retried": 2, "failed": 1}

    run(main)


def test_a_server_that_answers_bit_by_bit_has_no_longer_than_others(hooked):
    async def main():
        # Each bit comes in time; the whole never does.
        receiver = Receiver("drip")
        async with hooked(receiver, timeout_s=0.2, attempts_max=1) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts == {"failed": 1}

    run(main)


def test_a_server_that_refuses_connections_is_given_up_after_so_many_attempts(hooked):
    async def main():
        async with hooked(Receiver(), url="http://127.0.0.1:1/", attempts_max=4) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts == {"retried": 3, "failed": 1}

    run(main)


def test_what_is_too_old_is_not_tried_again(hooked):
    async def main():
        receiver = Receiver("cut")
        async with hooked(receiver, give_up_s=0.005) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert len(receiver.requests) == 1
        assert hooks.counts == {"failed": 1}

    run(main)


def test_an_endless_answer_is_read_no_further_than_a_bound(hooked):
    async def main():
        endless = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 200_000
        receiver = Receiver(endless)
        async with hooked(receiver) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts == {"taken": 1}

    run(main)


def test_a_crowd_waits_in_a_bounded_line_whose_oldest_go_first(hooked):
    async def main():
        receiver = Receiver(None)
        async with hooked(receiver, waiting_max=5, concurrency_max=2) as hooks:
            for number in range(2):
                hooks.tell(gone(number))
            await receiver.arrive(2)
            for number in range(2, 12):
                hooks.tell(gone(number))
            assert hooks.counts == {"dropped": 5}
            receiver.answers = [OK]
            receiver.release.set()
            await settled(hooks, 12)
            assert receiver.open_max == 2
        told = {json.loads(body)["id"] for _, _, body in receiver.requests}
        assert told == {f"id-{number}" for number in (0, 1, 7, 8, 9, 10, 11)}
        assert hooks.counts == {"dropped": 5, "taken": 7}

    run(main)


def test_a_connection_is_used_again(hooked):
    async def main():
        receiver = Receiver(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        async with hooked(receiver, concurrency_max=1) as hooks:
            for number in range(20):
                hooks.tell(gone(number))
                await settled(hooks, number + 1)
        assert receiver.connections == 1
        assert [json.loads(b)["id"] for _, _, b in receiver.requests] == [
            f"id-{number}" for number in range(20)
        ]

    run(main)


def test_closing_stops_at_once_and_counts_what_was_not_told(hooked):
    async def main():
        receiver = Receiver(None)
        async with hooked(receiver, concurrency_max=2) as hooks:
            for number in range(5):
                hooks.tell(gone(number))
            await receiver.arrive(2)
            async with asyncio.timeout(2):
                await hooks.close()
            hooks.tell(gone(9))
            assert hooks.counts == {"dropped": 6}

    run(main)


def test_tls_is_verified(hooked, tmp_path):
    async def main():
        cert, key = make_certificate(tmp_path)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cert, key)
        receiver = Receiver()
        https = "https://127.0.0.1:{port}/"
        async with hooked(receiver, tls=tls, url=https, ca_file=str(cert)) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts == {"taken": 1}
        async with hooked(receiver, tls=tls, url=https, attempts_max=1) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts == {"failed": 1}
        assert len(receiver.requests) == 1

    run(main)


def test_neither_secret_nor_address_is_logged(hooked, caplog, capsys):
    async def main():
        receiver = Receiver("cut", OK)
        async with hooked(receiver) as hooks:
            hooks.tell(gone())
            await settled(hooks)
        assert hooks.counts["taken"] == 1

    with caplog.at_level(logging.DEBUG):
        run(main)
    said = caplog.text + "".join(capsys.readouterr())
    assert "hook.fails" in said
    for hidden in (SECRET.decode(), "hidden", "127.0.0.1", "user:0"):
        assert hidden not in said


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"url": "ftp://host/"}, "hooks.url"),
        ({"url": "https://"}, "hooks.url"),
        ({"url": "https://[::1/"}, "hooks.url"),
        ({"url": "https://me:secret@host/"}, "hooks.url"),
        ({"url": "http://host/"}, "hooks.url"),
        ({"events": []}, "hooks.events"),
        ({"timeout_s": 0}, "hooks.timeout_s"),
        ({"attempts_max": -1}, "hooks.attempts_max"),
        ({"retry_first_s": float("nan")}, "hooks.retry_first_s"),
        ({"retry_last_s": float("inf")}, "hooks.retry_last_s"),
        ({"give_up_s": 0}, "hooks.give_up_s"),
        ({"waiting_max": 0}, "hooks.waiting_max"),
        ({"concurrency_max": 0}, "hooks.concurrency_max"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(wrong, name):
    with pytest.raises(ConfigError, match=name):
        HookOptions(**{"url": "https://host/", "secret_file": "s"} | wrong)


@pytest.mark.parametrize(
    ("app", "secret", "name"),
    [
        ("shop", b"short", "hooks.shop.secret_file"),
        ("shop", None, "hooks.shop.secret_file"),
        ("No App", SECRET, "hooks: app"),
    ],
)
def test_hooks_without_a_good_secret_or_app_are_refused(tmp_path, app, secret, name):
    if secret is not None:
        (tmp_path / "s").write_bytes(secret)
    options = HookOptions(url="https://host/", secret_file=str(tmp_path / "s"))
    with pytest.raises(ConfigError, match=name):
        Hooks(
            {app: options}, node="", clock=SystemClock(), rng=Random(), recorder=CountingRecorder()
        )
