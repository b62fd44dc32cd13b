"""What a comet counts is told, and names nobody."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from chappe.push.comet.metrics import metrics_of
from chappe.wire.push import Auth
from tests.loop import on_loop
from tests.push.comet.rig import Rig


@on_loop
async def test_a_comet_tells_what_it_counts_and_names_nobody() -> None:
    rig = Rig()
    device = await rig.live()
    note = rig.note()
    await rig.send(note, device.client)
    device.ack(note.id)
    device.say(Auth("x", "y"))
    await rig.rest()

    class Collector:
        def collect(self) -> object:
            return metrics_of(rig.comets[0])

    registry = CollectorRegistry()
    registry.register(Collector())  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    for line in (
        "chappe_push_sessions 1.0",
        "chappe_push_logins_total 1.0",
        "chappe_push_acks_total 1.0",
        'chappe_push_handed_total{why="live"} 1.0',
        'chappe_push_errors_total{error="bad_arguments"} 1.0',
    ):
        assert line in text
    assert device.client not in text
