"""A peer that is gone without a word is found out by its silence (H4)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from chappe.wire.ops import Subscribe
from tests.processes import kill, read_line

from .conftest import StartNode, Witness
from .peer import FORMS, TIMEOUT_S, connect
from .process import Api, NodeProcess

# Three seconds of silence: whoever is well-behaved is heard within that on a busy machine, too.
CONFIG = "[hub]\nheartbeat_s = 1.0\nheartbeats_missed_max = 3\n"


@pytest.fixture
def sleeper(node: NodeProcess) -> Iterator[subprocess.Popen[str]]:
    """A well-behaved client of its own process, connected as user:sleeper."""
    command = [sys.executable, "-m", "tests.faults.sleeper", node.addresses["websocket"]]
    process = subprocess.Popen([*command, "user:sleeper"], stdout=subprocess.PIPE, text=True)
    try:
        assert heard(process) == "connected\n"
        yield process
    finally:
        kill(process)


def heard(process: subprocess.Popen[str]) -> str:
    """What it says next."""
    assert process.stdout is not None
    return read_line(process.stdout)


def wait_until_offline(witness: Witness, address: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while witness.client.presence(address):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_peers_that_answer_no_beat_are_closed_and_offline_and_others_stay(
    node: NodeProcess, api: Api, witness: Witness
) -> None:
    before = api.metric("sessions_closed_total", code="4005")
    patient = {form: connect(node.addresses, form, beats=True) for form in FORMS}
    mute = {form: connect(node.addresses, form) for form in FORMS}
    for form in FORMS:
        assert patient[form].greet(f"user:patient-{form}")["ok"]
        patient[form].sock.settimeout(0.1)
        assert mute[form].greet(f"user:mute-{form}")["ok"]
        assert mute[form].ask(Subscribe(id=2, to=f"topic:mute-{form}"))["ok"]
        assert witness.client.presence(f"user:mute-{form}")
        assert witness.client.presence(f"topic:mute-{form}")
    while api.metric("sessions_closed_total", code="4005") < before + len(FORMS):
        for peer in patient.values():
            with pytest.raises(TimeoutError):  # beats are all it hears, and it answers them
                peer.hear()
    for form in FORMS:
        assert mute[form].hear_op("closed")["code"] == 4005
        assert not witness.client.presence(f"user:mute-{form}")
        assert not witness.client.presence(f"topic:mute-{form}")
        assert witness.client.presence(f"user:patient-{form}")
    for peer in (*patient.values(), *mute.values()):
        peer.sock.close()
    witness.notices_nothing()


def test_stopped_process_is_offline_and_comes_back_when_it_goes_on(
    node: NodeProcess, witness: Witness, sleeper: subprocess.Popen[str]
) -> None:
    witness.client.send("user:sleeper", "before")
    assert heard(sleeper) == "before\n"
    sleeper.send_signal(signal.SIGSTOP)
    wait_until_offline(witness, "user:sleeper")
    sleeper.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + TIMEOUT_S
    while not witness.client.presence("user:sleeper"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    witness.client.send("user:sleeper", "after")
    assert heard(sleeper) == "after\n"
    witness.notices_nothing()


def test_poll_that_is_not_repeated_is_offline(start_node: StartNode) -> None:
    node = start_node("[hub]\nheartbeat_s = 1.0\npoll_lease_s = 2.0\n")
    api, watcher = Api(node), Witness(node)
    with watcher.client:
        status, _ = api.request("POST", "/v1/poll", b'{"as":"user:poller"}')
        assert status == 200
        assert watcher.client.presence("user:poller")
        wait_until_offline(watcher, "user:poller")
    api.close()
