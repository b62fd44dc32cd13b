"""A node on real sockets: its edges, its data folder, its end."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from chappe import ConnectionClosed, connect
from chappe.client import ClientOptions, Notice
from chappe.edge.acceptor import Listener, ProtocolFactory
from chappe.edge.http.options import HttpOptions
from chappe.errors import CloseCode, ConfigError
from chappe.node.folder import DataFolder
from chappe.node.node import Node
from chappe.node.options import Tls
from chappe.wire.ops import Closed, Hello, Reconnect, Reply
from chappe.wire.packed import Splitter, encode_op, frame, read_hub_ops
from tests.loop import on_loop
from tests.node.certificate import make_certificate
from tests.node.running import options_of, running


@on_loop
async def test_every_edge_listens_and_says_where(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        where = node.addresses()
        assert set(where) == {"websocket", "http", "tcp", "comet"}
        assert where["websocket"].startswith("ws://127.0.0.1:")
        assert where["websocket"].endswith("/ws")
        ports = {address.split(":")[2].split("/")[0] for address in where.values()}
        assert len(ports - {"0"}) == 4
        async with (
            connect(where["websocket"], as_="user:a") as a,
            connect(where["tcp"], as_="user:b") as b,
            httpx.AsyncClient(base_url=where["http"]) as http,
        ):
            await a.send("user:b", "over both")
            assert (await b.receive()).data == "over both"
            answer = await http.post("/v1/send", json={"as": "user:c", "to": "user:a", "data": 1})
            assert answer.json()["ok"]
            assert (await a.receive()).data == 1
            assert (await http.get("/readyz")).status_code == 200


@on_loop
async def test_tls_is_spoken_on_every_edge_and_nothing_else_is(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with running(tmp_path, tls=Tls(cert=str(cert), key=str(key))) as node:
        where = node.addresses()
        schemes = [address.split(":")[0] for address in where.values()]
        assert schemes == ["wss", "https", "tls", "tls"]
        async with (
            connect(where["websocket"], as_="user:a", tls=trust) as a,
            connect(where["tcp"], as_="user:b", tls=trust) as b,
            httpx.AsyncClient(base_url=where["http"], verify=trust) as http,
        ):
            await a.send("user:b", 1)
            assert (await b.receive()).data == 1
            assert (await http.get("/healthz")).status_code == 200
        port = int(where["tcp"].rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x05\x01 plain ")
        assert not (await reader.read()).startswith(b"\x00")
        writer.close()
        assert node.accept_counters.failed == 1


@on_loop
async def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    async with running(tmp_path, tls=Tls(cert=str(cert), key=str(key))) as node:
        assert node._tls is not None
        assert node._tls.minimum_version == ssl.TLSVersion.TLSv1_2


@on_loop
async def test_a_certificate_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    for file in ("missing", "junk"):
        path = str(tmp_path / file)
        with pytest.raises(ConfigError, match="tls"):
            Node(options_of(tmp_path, tls=Tls(cert=path, key=path)))


@on_loop
async def test_draining_sends_clients_away_and_takes_nobody_new(tmp_path: Path) -> None:
    notices: list[Notice] = []
    async with running(tmp_path, drain_s=10.0) as node:
        where = node.addresses()
        options = ClientOptions(backoff_first_s=30.0)
        client = await connect(
            where["tcp"], as_="user:a", options=options, on_notice=notices.append
        )
        draining = asyncio.ensure_future(node.drain())
        async with asyncio.timeout(5):
            while not notices:
                await asyncio.sleep(0.005)
        assert node.hub.draining
        with pytest.raises(ConnectionClosed):
            await connect(where["tcp"], as_="user:b")
        with pytest.raises(ConnectionClosed):
            await connect(where["websocket"], as_="user:b")
        await client.close()
        # The last client has left: there is nothing to wait for.
        await asyncio.wait_for(draining, 5)


@on_loop
async def test_who_does_not_leave_in_time_is_closed_with_a_code_that_invites_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        port = int(node.addresses()["tcp"].rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(encode_op(Hello(id=1, as_="user:a"))))
        splitter = Splitter(1 << 20)
        ops = [op for a in splitter.feed(await reader.read(1000)) for op in read_hub_ops(a)]
        await node.drain()
        ops += [op for a in splitter.feed(await reader.read()) for op in read_hub_ops(a)]
        assert [type(op).__mro__[1] for op in ops] == [Reply, Reconnect, Closed]
        assert ops[-1].code == CloseCode.SERVICE_RESTART  # type: ignore[attr-defined]
        assert CloseCode.SERVICE_RESTART.reconnect
        writer.close()


@on_loop
async def test_a_data_folder_is_held_by_one_node_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(ConfigError, match="in use by another node"):
            Node(options_of(tmp_path))
    async with running(tmp_path):
        pass


@on_loop
async def test_ids_go_on_rising_over_a_restart(tmp_path: Path) -> None:
    given: list[int] = []
    for _ in range(2):
        async with running(tmp_path) as node:
            given += [node.hub.ids.next() for _ in range(3)]
    assert given == sorted(set(given))


def test_a_data_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "data")
    assert os.stat(tmp_path / "deep" / "data").st_mode & 0o077 == 0
    folder.release()


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_data_folder_that_cannot_be_had_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" if kind == "file" else tmp_path / "file" / "data"
    with pytest.raises(ConfigError, match="data: "):
        DataFolder(path)


@on_loop
async def test_the_options_of_the_http_edge_are_its_own(tmp_path: Path) -> None:
    async with (
        running(tmp_path, http=HttpOptions(poll_wait_ms_max=1)) as node,
        httpx.AsyncClient(base_url=node.addresses()["http"]) as http,
    ):
        opened = await http.post("/v1/poll", json={"as": "user:a"})
        session = opened.json()["session"]
        answer = await http.post("/v1/poll", json={"session": session, "wait_ms": 60_000})
        assert answer.json()["messages"] == []


@on_loop
async def test_a_node_that_cannot_listen_lets_go_of_what_it_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(options_of(tmp_path, tcp_port=port))
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await node.start()
    async with running(tmp_path):
        """The folder is free, and so are the ports that it had."""


@on_loop
async def test_a_node_listens_where_it_is_told_to(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    class Nowhere:
        port = 1234

        def close(self) -> None:
            asked.append(("closed", 0))

    def listen(
        factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        asked.append((host, port))
        return Nowhere()

    thresholds = gc.get_threshold()
    node = Node(options_of(tmp_path), listen=listen)
    await node.start()
    assert asked == [("127.0.0.1", 0)] * 4
    assert node.addresses()["tcp"] == "tcp://127.0.0.1:1234"
    await node.drain()
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    assert asked[4:] == [("closed", 0)] * 4
