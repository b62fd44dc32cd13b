"""What probes find, told on: to an app's own server, and to who chooses proxies (R6, R15)."""

from __future__ import annotations

import asyncio
import hmac
import json
from pathlib import Path
from typing import Any

from chappe.rooms.options import ProbeOptions, RoomsOptions
from tests.endpoints.test_hook import SECRET, Receiver, run
from tests.node.running import running

WAIT_S = 20.0


def test_a_server_is_told_that_a_broker_is_dead_and_that_it_is_well_again(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)

    async def main() -> None:
        receiver = Receiver()
        server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        probe = ProbeOptions(
            every_s=0.05,
            timeout_s=0.1,
            alarm_failures=3,
            webhook=f"http://127.0.0.1:{port}/alarm",
            webhook_secret_file=str(tmp_path / "secret"),
        )
        async with running(tmp_path, rooms=RoomsOptions(beat_s=0.2, probe=probe)) as node:
            process = node.rooming.process
            assert process is not None
            balance, (proxy,) = process.publisher.balance, process.roll.proxies
            well = balance.weight(proxy)
            # It hears nothing any more.
            brokers = dict(process.dispatch.brokers)
            process.dispatch.brokers.clear()
            async with asyncio.timeout(WAIT_S):
                await receiver.arrive(1)
                # By the proxy, which answers as well as before, nothing comes through.
                while balance.weight(proxy) > well / 2:
                    await asyncio.sleep(0.02)
            process.dispatch.brokers.update(brokers)
            async with asyncio.timeout(WAIT_S):
                while told(receiver)[-1]["state"] != "over":
                    await receiver.arrive(len(receiver.requests) + 1)
        receiver.release.set()
        server.close()
        _, headers, body = receiver.requests[0]
        first = told(receiver)[0]
        assert (first["event"], first["state"]) == ("room_alarm", "raised")
        raised = [one for one in told(receiver) if one["state"] == "raised"]
        assert "broker" in [one["head"]["role"] for one in raised]
        at, _, digest = headers["chappe-signature"].removeprefix("t=").partition(",v1=")
        assert digest == hmac.digest(SECRET, f"{at}.".encode() + body, "sha256").hex()

    run(main)


def told(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in receiver.requests]
