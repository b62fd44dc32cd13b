"""A peer that is gone without a word is found out by its silence (H4)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from chappe.wire.ops import Subscribe

from .conftest import StartNode, Witness
from .peer import FORMS, TIMEOUT_S, connect
from .process import Api, NodeProcess

CONFIG = "[hub]\nheartbeat_s = 0.4\nheartbeats_missed_max = 3\n"


@pytest.fixture
def sleeper(node: NodeProcess) -> Iterator[subprocess.Popen[str]]:
    """A well-behaved client of its own process, connected as user:sleeper."""
    command = [sys.executable, "-m", "tests.faults.sleeper", node.addresses["websocket"]]
    process = subprocess.Popen([*command, "user:sleeper"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def wait_until_offline(witness: Witness, address: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while witness.client.presence(address):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("form", FORMS)
def test_peer_that_answers_no_beat_is_closed_and_offline(
    node: NodeProcess, api: Api, witness: Witness, form: str
) -> None:
    before = api.metric("sessions_closed_total", code="4005")
    with connect(node.addresses, form) as peer:
        assert peer.greet("user:mute")["ok"]
        assert peer.ask(Subscribe(id=2, to="topic:mute"))["ok"]
        assert witness.client.presence("user:mute")
        assert witness.client.presence("topic:mute")
        assert peer.hear_op("closed")["code"] == 4005
        assert not witness.client.presence("user:mute")
        assert not witness.client.presence("topic:mute")
    assert api.metric("sessions_closed_total", code="4005") == before + 1
    witness.notices_nothing()


@pytest.mark.parametrize("form", FORMS)
def test_peer_that_only_answers_beats_stays(node: NodeProcess, witness: Witness, form: str) -> None:
    with (
        connect(node.addresses, form, beats=True) as patient,
        connect(node.addresses, form) as mute,
    ):
        assert patient.greet("user:patient")["ok"]
        assert mute.greet("user:mute")["ok"]
        patient.sock.settimeout(0.1)
        while witness.client.presence("user:mute"):
            with pytest.raises(TimeoutError):
                patient.hear()
        assert witness.client.presence("user:patient")


def test_stopped_process_is_offline_and_comes_back_when_it_goes_on(
    node: NodeProcess, witness: Witness, sleeper: subprocess.Popen[str]
) -> None:
    witness.client.send("user:sleeper", "before")
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == "before\n"
    sleeper.send_signal(signal.SIGSTOP)
    wait_until_offline(witness, "user:sleeper")
    sleeper.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + TIMEOUT_S
    while not witness.client.presence("user:sleeper"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    witness.client.send("user:sleeper", "after")
    assert sleeper.stdout.readline() == "after\n"
    witness.notices_nothing()


def test_poll_that_is_not_repeated_is_offline(start_node: StartNode) -> None:
    node = start_node("[hub]\nheartbeat_s = 0.4\npoll_lease_s = 0.8\n")
    api, watcher = Api(node), Witness(node)
    with watcher.client:
        status, _ = api.request("POST", "/v1/poll", b'{"as":"user:poller"}')
        assert status == 200
        assert watcher.client.presence("user:poller")
        wait_until_offline(watcher, "user:poller")
    api.close()
