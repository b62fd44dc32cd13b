"""The largest message a hub takes arrives at every edge, in every form, whoever sent it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx
import pytest

from chappe import Client, ClientOptions, Hub, connect
from chappe.wire.limits import Limits
from tests.loop import on_loop
from tests.node.running import running

LIMIT = Limits().message_bytes_max
# As long as a name may be: what stands around a message is then as long as it may be.
SENDER = "user:" + "s" * 255
RECEIVER = "user:" + "\\" * 255
# What a send adds to its payload, with the longest receiver.
AROUND = 300
LARGEST = LIMIT - AROUND


async def gets(receiver: Client, payload: bytes) -> None:
    message = await receiver.receive()
    assert message.payload == payload
    assert receiver.connected
    assert receiver.reconnects == 0


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
@pytest.mark.parametrize("form", ["websocket packed", "websocket text", "tcp"])
@on_loop
async def test_the_largest_message_arrives_at_every_client(
    form: str, binary: bool, tmp_path: Path
) -> None:
    async with running(tmp_path) as node:
        at = node.addresses()
        url = at["tcp"] if form == "tcp" else at["websocket"]
        options = ClientOptions(form="text" if form.endswith("text") else "packed")
        async with (
            connect(at["tcp"], as_=SENDER) as sender,
            connect(url, as_=RECEIVER, options=options) as receiver,
        ):
            data = bytes(LARGEST) if binary else "x" * (LARGEST - 2)
            await sender.send(RECEIVER, data)
            await gets(receiver, data if isinstance(data, bytes) else json.dumps(data).encode())


@on_loop
async def test_the_largest_message_arrives_inside_a_process() -> None:
    async with Hub() as hub:
        sender, receiver = await hub.connect(SENDER), await hub.connect(RECEIVER)
        await sender.send(RECEIVER, bytes(LARGEST))
        await gets(receiver, bytes(LARGEST))


@pytest.mark.parametrize("path", ["/v1/send", "/v1/publish"])
@on_loop
async def test_http_takes_no_larger_message_than_other_edges(path: str, tmp_path: Path) -> None:
    async with running(tmp_path) as node, httpx.AsyncClient() as http:
        at = node.addresses()
        async with connect(at["websocket"], as_="user:bob") as bob:
            await bob.subscribe("topic:t")
            to = "user:bob" if path == "/v1/send" else "topic:t"
            fits = {"to": to, "data64": base64.b64encode(bytes(LIMIT)).decode()}
            assert (await http.post(at["http"] + path, json=fits)).status_code == 200
            await gets(bob, bytes(LIMIT))
            large = {"to": to, "data": "x" * LIMIT}
            answer = await http.post(at["http"] + path, json=large)
            assert answer.status_code == 400
            assert "data: " in answer.json()["reason"]
            assert bob.connected
