"""`chappe push devices`: fleets of simulated devices at a real node, and their parts."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chappe.cli.push.fleet.phone import Phone
from chappe.cli.push.fleet.sources import PER_ADDRESS, source_of
from chappe.cli.push.fleet.tally import Histogram, Tally
from chappe.device import Grant
from chappe.errors import ConfigError
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Error,
    ExchangeKey,
    GetMessageList,
    Message,
    MessageAck,
    MessageStruct,
    Ok,
    Response,
    Splitter,
    Subscribe,
    decode_command,
    encode_response,
)
from chappe.wire.pushcipher import CometAgreement, Ed25519PrivateKey, Sealing
from tests.cli.process import Served, serving, started
from tests.processes import read_line

COUNT = 40


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("data"), "--dev") as served:
        yield served


@pytest.fixture
def key(node: Served, request: pytest.FixtureRequest) -> str:
    """An open app of this test alone."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    done = node.run_here("push", "app", "create", name, "--open", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["key"])


def push(node: Served, key: str, *arguments: str) -> dict[str, Any]:
    done = node.run_here("push", *arguments, "--app", key, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def fleet(node: Served, key: str, log: Path, *flags: str) -> Iterator[Any]:
    """Devices that are all logged in."""
    command = ("push", "devices", "--count", str(COUNT), "--app", key, "--http", node.http)
    with started(*command, "--json", "--rate", "1000", *flags, log=log) as process:
        said = json.loads(read_line(process.stdout) or '{"phase": "none"}')
        assert said["phase"] == "logged in", log.read_text()
        assert (said["logged_in"], said["logins"]) == (COUNT, COUNT)
        yield process


def ended(process: Any, log: Path, code: int = 0) -> dict[str, Any]:
    """What a fleet says at its end."""
    line = read_line(process.stdout)
    assert process.wait(60) == code, log.read_text()
    told: dict[str, Any] = json.loads(line)
    assert told["phase"] == "end"
    return told


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_fleet_gets_a_topics_notes_and_acknowledges_each(
    node: Served, key: str, tmp_path: Path, processes: str
) -> None:  # P7, P9
    log = tmp_path / "log"
    flags = ("--topics", "a,b", "--notes", str(2 * COUNT), "--processes", processes)
    with fleet(node, key, log, *flags) as process:
        jobs = [push(node, key, "send", "--topic", topic, "--data", "x") for topic in "ab"]
        assert [job["sent"] for job in jobs] == [COUNT, COUNT]
        told = ended(process, log)
    counts = {name: told[name] for name in ("notes", "acks", "waited", "lost", "errors")}
    assert counts == {"notes": 2 * COUNT, "acks": 2 * COUNT, "waited": 0, "lost": 0, "errors": {}}
    assert told["logged_in"] == told["devices"] == COUNT
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["max"]
    for job in jobs:
        assert push(node, key, "job", job["job"])["job"]["arrived"] == COUNT


def test_what_waited_is_told_from_what_came_at_once(node: Served, key: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in ("0", "7"):
        push(node, key, "token", f"sim-{number}")
    push(node, key, "send", "--device", "sim-0", "--device", "sim-7", "--data", "x")
    with fleet(node, key, log, "--notes", "3") as process:
        push(node, key, "send", "--device", "sim-1", "--data", "x")
        told = ended(process, log)
    assert (told["notes"], told["waited"]) == (3, 2)


def test_a_device_whose_token_is_refused_comes_back_with_another(
    node: Served, key: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with fleet(node, key, log, "--notes", "1") as process:
        push(node, key, "revoke", "--device", "sim-3")
        push(node, key, "send", "--device", "sim-3", "--data", "x")
        told = ended(process, log, code=1)
    assert (told["logins"], told["lost"], told["logged_in"]) == (COUNT + 1, 1, COUNT)
    assert len(told["errors"]) == 1


def test_devices_that_were_replaced_do_not_come_back(
    node: Served, key: str, tmp_path: Path
) -> None:  # P15
    first, second = tmp_path / "first", tmp_path / "second"
    with fleet(node, key, first) as process:
        # Twice the seconds within which whoever is lost comes back for the first time.
        with fleet(node, key, second, "--duration", "4") as other:
            assert ended(other, second)["logged_in"] == COUNT
        process.send_signal(signal.SIGINT)
        told = ended(process, first, code=1)
    assert (told["logged_in"], told["logins"], told["lost"]) == (0, COUNT, COUNT)
    ((what, count),) = told["errors"].items()
    assert (what[:8], count) == ("error 2:", COUNT)


def test_a_closed_app_vouches_for_its_fleet(node: Served, tmp_path: Path) -> None:  # P10
    secret, log = tmp_path / "secret", tmp_path / "log"
    made = node.run_here(*("push", "app", "create", "closed", "--secret-to", str(secret), "--json"))
    key = json.loads(made.stdout)["key"]
    with fleet(node, key, log, "--secret-file", str(secret), "--duration", "0.1") as process:
        assert ended(process, log)["errors"] == {}
    alone = node.run("push", "devices", "--count", "2", "--app", key)
    assert alone.returncode == 1
    assert "grant: 403 app: its devices get tokens from the app's own server" in alone.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_app_that_nobody_has_is_said_at_once(node: Served, processes: str) -> None:
    flags = ("--count", "2", "--app", "nobodys", "--processes", processes)
    refused = node.run("push", "devices", *flags)
    assert refused.returncode == 1
    assert "grant: 404 app: no app has this key" in refused.stderr


def test_a_fleet_is_spread_over_addresses_where_one_does_not_do() -> None:
    assert source_of("127.0.0.1", PER_ADDRESS - 1, None) is None
    assert source_of("127.0.0.1", PER_ADDRESS, None) == "127.0.1.2"
    assert source_of("127.0.0.1", 0, True) == "127.0.1.1"
    assert source_of("127.0.0.1", 5 * PER_ADDRESS, False) is None
    for elsewhere in ("10.0.0.1", "push.example.org", "::1"):
        assert source_of(elsewhere, 5 * PER_ADDRESS, None) is None
        with pytest.raises(ConfigError, match="--spread-addresses"):
            source_of(elsewhere, 0, True)


def test_percentiles_are_right_to_a_twentieth_and_add_up() -> None:
    rng = random.Random(7)
    times = [rng.lognormvariate(2, 1) for _ in range(5000)]
    halves = Histogram(), Histogram()
    for at, took in enumerate(times):
        halves[at % 2].add(took)
    halves[0].merge(halves[1])
    times.sort()
    for share in (0.5, 0.9, 0.99):
        found = halves[0].percentile(share)
        assert found == pytest.approx(times[int(share * len(times))], rel=0.06)
    assert Histogram().summary() == {"p50": None, "p90": None, "p99": None, "max": None}


def test_strange_times_and_many_errors_take_no_more_memory() -> None:
    tally = Tally()
    for took in (-5.0, 0.0, 1e-9, 1e300):
        tally.latency.add(took)
    assert len(tally.latency.buckets) == 2
    for number in range(1000):
        tally.fail(f"error {number}")
    assert sum(tally.errors.values()) == 1000
    assert len(tally.errors) <= 51


class Wire:
    """A transport that keeps what is written, and knows whether it is still open."""

    def __init__(self) -> None:
        self.open = True
        self._splitter = Splitter()
        self._said: list[Any] = []

    def write(self, data: bytes) -> None:
        self._said += map(decode_command, self._splitter.feed(data))

    def close(self) -> None:
        self.open = False

    abort = close

    def said(self) -> list[Any]:
        """What was said since it was last asked."""
        said, self._said = self._said, []
        return said


class Alone:
    """What a phone has of its fleet, for one phone."""

    def __init__(self, *topics: str) -> None:
        self.tally = Tally(devices=1)
        self.topics = topics
        self.entropy = random.Random(1).randbytes

    def now_s(self) -> float:
        return 1.0

    def wall_ms(self) -> float:
        return 5_000.0

    def ready(self, phone: Phone) -> None: ...

    def gone(self, phone: Phone) -> None: ...


class Comet:
    """The other end of one phone's wire."""

    def __init__(self, *topics: str) -> None:
        self.owner = Alone(*topics)
        self.phone = Phone(self.owner, 0)
        self.wire = Wire()
        identity = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1")
        self.agreement = CometAgreement("c", bytes(31) + b"\2", identity)
        self.phone.grant = Grant(
            client="c",
            token="t",
            comet="tcp://127.0.0.1:1",
            identity=identity.public_key().public_bytes_raw(),
            expires_ms=0,
        )
        self.phone.connection_made(self.wire)  # type: ignore[arg-type]

    def say(self, *responses: Response) -> list[Any]:
        """What the phone says to these, which come in one read."""
        self.phone.data_received(b"".join(map(encode_response, responses)))
        return self.wire.said()

    def let_in(self) -> Sealing:
        self.wire.said()
        (exchange,) = self.say(AuthSuccess(self.agreement.encrypt_key))
        self.say(Ok())
        return self.agreement.agree(exchange.secret_key)


def note(sealing: Sealing, number: int) -> Message:
    empty = MessageStruct(0, f"p{number}", "j", 4_990, b"")
    sealed = sealing.seal(empty.head, b"content")
    return Message(MessageStruct(0, f"p{number}", "j", 4_990, sealed))


def test_a_phone_keeps_to_the_flow() -> None:  # P3
    comet = Comet("a", "b")
    assert comet.wire.said() == [Auth("c", "t")]
    (exchange,) = comet.say(AuthSuccess(comet.agreement.encrypt_key))
    assert isinstance(exchange, ExchangeKey)
    assert not comet.phone.ready
    assert comet.say(Ok()) == [Subscribe(("a", "b")), GetMessageList()]
    assert comet.phone.ready


def test_what_comes_in_one_read_is_acknowledged_in_one_frame() -> None:
    comet = Comet()
    sealing = comet.let_in()
    said = comet.say(*(note(sealing, number) for number in range(3)))
    assert said == [MessageAck(("p0", "p1", "p2"))]
    assert comet.owner.tally.notes == 3
    assert comet.owner.tally.latency.percentile(1.0) == pytest.approx(10, rel=0.06)


def test_acknowledgements_wait_while_much_is_unanswered() -> None:
    comet = Comet()
    sealing = comet.let_in()
    said = [ack for number in range(40) for ack in comet.say(note(sealing, number))]
    assert len(said) < 10
    rest = [ack for _ in range(10) for ack in comet.say(Ok())]
    acked = [id_ for ack in said + rest for id_ in ack.ids]
    assert acked == [f"p{number}" for number in range(40)]


def test_a_note_that_the_comet_did_not_seal_ends_the_connection() -> None:  # P4
    comet = Comet()
    sealing = comet.let_in()
    _lost, second = note(sealing, 0), note(sealing, 1)
    assert comet.say(second) == []
    assert not comet.wire.open
    assert comet.owner.tally.errors == {"encrypted_content: not what the comet sealed": 1}


def test_a_comet_that_the_identity_did_not_sign_for_is_left() -> None:  # P4
    comet = Comet()
    other = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\3")
    comet.wire.said()
    assert comet.say(AuthSuccess(CometAgreement("c", bytes(31) + b"\2", other).encrypt_key)) == []
    assert not comet.wire.open


def test_a_note_before_the_key_ends_the_connection() -> None:  # P3
    comet = Comet()
    comet.say(Message(MessageStruct(0, "p", "j", 1, b"x" * 20)))
    assert not comet.wire.open
    assert comet.owner.tally.notes == 0


def test_an_ok_before_the_key_lets_nobody_in() -> None:
    comet = Comet()
    comet.say(Ok())
    assert not comet.phone.ready
    assert not comet.wire.open


@pytest.mark.parametrize(
    ("code", "open_", "comes_back", "keeps_grant"),
    [(0, False, True, False), (1, False, True, False), (2, False, False, True), (3, True, 1, 1)],
)
def test_an_error_means_what_it_does_to_devices(
    code: int, open_: bool, comes_back: bool, keeps_grant: bool
) -> None:  # P15
    comet = Comet()
    comet.let_in()
    comet.say(Error(code, "why"))
    assert comet.wire.open is open_
    assert comet.phone.ended is not bool(comes_back)
    assert (comet.phone.grant is not None) is bool(keeps_grant)
    assert comet.owner.tally.errors == {f"error {code}: why": 1}
