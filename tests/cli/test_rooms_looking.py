"""How rooms do, as tables that fit into a terminal of 80 columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from chappe.cli.rooms.looking import links_view, status_view

ID = 1_234_567_890_123_456


def shown(view: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(view)
    return out.getvalue()


def replica(role: str, **more: Any) -> dict[str, Any]:
    seat = {"role": role, "id": ID, "node": f"{role}-1", "host": "10.10.10.100", "port": 41_234}
    return seat | {"state": "running"} | more


def status(*brokers: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": "gateway-1",
        "system": "pubsub",
        "balance": "turns",
        "partitions": 2,
        "wanted": 2,
        "independent_routers": False,
        "router_partitions": 0,
        "roles": [{"role": "broker", "partition": 1, "id": ID, "state": "running", "load": {}}],
        "proxies": [replica("proxy", alive=True, success=1.0, round_trip_ms=12.34, weight=0.125)],
        "brokers": list(brokers),
        "routers": [replica("router", alive=False, success=0.5, round_trip_ms=0.1)],
    }


@pytest.mark.parametrize("width", [80, 60])
def test_ids_can_be_copied_from_a_narrow_terminal(width: int) -> None:
    text = shown(status_view(status(replica("broker", partition=7))), width)
    assert text.count(str(ID)) == 4
    for word in ("heard 100%", "silent 50%", "not asked", "10.10.10.100:41234", "0.125"):
        assert width < 80 or word in text, text
    assert max(map(len, text.splitlines())) <= width


def link(arrived: int, failed: int) -> dict[str, Any]:
    end = {"role": "proxy", "node": "p", "id": 3}
    delays = dict.fromkeys(("p50_ms", "p99_ms"), 1.5 if arrived else None)
    counts = {"arrived": arrived, "failed": failed, "share": 1.0}
    return {"tail": end, "head": end, "ok": True, "alarms": []} | counts | delays


def test_a_link_that_was_never_tried_is_not_shown_as_one_that_is_well() -> None:
    node = {"node": "g", "ok": True, "links": [link(3, 0), link(0, 0)]}
    text = shown(links_view({"sla": 0.99, "nodes": [node]}))
    assert text.count("100.00%") == 1
    assert "0 of 0" not in text


def test_before_anything_was_tried_it_is_said() -> None:
    text = shown(links_view({"sla": 0.99, "nodes": [{"node": "g", "ok": True, "links": []}]}))
    assert "Seen by g: no probe yet" in text
