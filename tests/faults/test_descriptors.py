"""When descriptors run out, accepting pauses; whoever is in stays, whoever waits gets in later."""

from __future__ import annotations

import os
import time

import pytest

from chappe.ids import RESERVE_MS
from chappe.wire.ops import Hello, Ping

from .conftest import StartNode, Witness
from .peer import TIMEOUT_S, TcpPeer, dial
from .process import Api

FULL = os.environ.get("CHAPPE_PROOF") == "full"
DESCRIPTORS = 64
PEERS = 100


def test_accept_pauses_without_descriptors_and_recovers(start_node: StartNode) -> None:
    node = start_node("[hub]\nhello_timeout_s = 60.0\n", descriptors=DESCRIPTORS)
    api, witness = Api(node), Witness(node)
    # From here on no descriptor is needed to look at the node.
    assert api.metric("accept_pauses_total") == 0
    peers = [TcpPeer(dial(node.addresses["tcp"])) for _ in range(PEERS)]
    for number, peer in enumerate(peers):
        peer.say(Hello(id=1, as_=f"user:peer-{number}"))
    deadline = time.monotonic() + TIMEOUT_S
    while api.metric("accept_pauses_total") < 2:
        assert time.monotonic() < deadline
        witness.notices_nothing()
    inside = int(api.metric("sessions", edge="tcp"))
    assert 0 < inside < DESCRIPTORS
    for peer in peers[:inside]:
        assert peer.hear()["ok"]
    # Those who wait are in the kernel's hands: neither refused nor answered.
    waiting = peers[inside:]
    waiting[0].sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        waiting[0].hear()
    waiting[0].sock.settimeout(TIMEOUT_S)
    witness.notices_nothing()
    for peer in peers[:inside]:
        peer.say(Ping(id=2))
        assert peer.hear() == {"op": "pong", "id": 2}
        peer.sock.close()
    # Their places are taken by the next, until everybody has been in.
    while waiting:
        peer = waiting.pop(0)
        assert peer.hear()["ok"]
        peer.sock.close()
        witness.notices_nothing()
    witness.client.close()
    api.close()
    assert "accept.paused" in node.log()


@pytest.mark.skipif(not FULL, reason="waits for most of a minute; part of the full proof")
def test_sessions_live_on_when_descriptors_stay_exhausted(start_node: StartNode) -> None:
    node = start_node("[hub]\nhello_timeout_s = 600.0\n", descriptors=DESCRIPTORS)
    api, witness = Api(node), Witness(node)
    # From here on no descriptor is needed to look at the node.
    assert api.metric("accept_pauses_total") == 0
    floor = (node.data / "ids.floor").read_text()
    peers = [dial(node.addresses["tcp"]) for _ in range(PEERS)]
    while not api.metric("accept_pauses_total"):
        witness.notices_nothing()
    # Past the time at which a reservation of ids must be written, for which there is no descriptor.
    deadline = time.monotonic() + 0.7 * RESERVE_MS / 1000
    while time.monotonic() < deadline:
        witness.notices_nothing()
        api.metric("accept_pauses_total")
    assert (node.data / "ids.floor").read_text() == floor
    for sock in peers:
        sock.close()
    while (node.data / "ids.floor").read_text() == floor:
        witness.notices_nothing()
    witness.client.close()
    api.close()
