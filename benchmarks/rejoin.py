"""Coming back: a node that starts with many routes in its store, or among a crowd on others."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from benchmarks.bench import Bench
from benchmarks.figure import Table
from benchmarks.server import Server, ServerError, start_chappe, start_redis
from chappe.access.dev import DEV_APP
from chappe.cluster.copy import TABLE
from chappe.store.url import open_store

_ROUTES = 1_000_000
_CROWDS = (100_000, 1_000_000)
_ROUTES_QUICK = 10_000
_CROWDS_QUICK = (1_000,)
_BATCH = 20_000
_SETTLED_S = 60.0
_PAUSE_S = 0.02
_MB = 1024**2
# What a node that is alone is called; and another one.
_ITSELF, _OTHER = "node", "elsewhere"
_CROWD = Path(__file__).resolve().with_name("crowd.py")


class Rejoin:
    """Measures how soon a node is ready, and how much memory it takes then."""

    name = "rejoin"

    def steps(self, bench: Bench) -> int:
        return 6 + 1 + len(_CROWDS_QUICK if bench.quick else _CROWDS)

    def measure(self, bench: Bench) -> list[Table]:
        return [_from_store(bench), _from_peer(bench)]


def _from_store(bench: Bench) -> Table:
    count = _ROUTES_QUICK if bench.quick else _ROUTES
    table = Table(
        f"Cluster: start with {count:,} routes in the store",
        "Seconds from starting the process until its `ready` line, and its resident memory then. "
        "Routes of others are what other nodes wrote: hints, of use until their links are up. Its "
        "own are what a node finds that ended without a goodbye: whoever does not come back within "
        "the grace time is told to be gone.",
        ["store", "routes", "seconds to ready", "MB"],
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-rejoin-")))
        redis = start_redis()
        stack.callback(redis.stop)
        for label, node in (("none", ""), ("of others", _OTHER), ("its own", _ITSELF)):
            urls = {
                "SQLite": f"sqlite:{folder / (node or 'none')}.db",
                "Redis": f"redis://127.0.0.1:{redis.ports['redis']}?prefix=p{node}",
            }
            for kind, url in urls.items():
                bench.advance(f"start: {kind}, routes {label}")
                if node:
                    asyncio.run(_fill(url, node, count))
                server = start_chappe(f"{bench.chappe} --store {url}")
                size = server.resident_bytes() / _MB
                server.stop()
                table.rows.append([kind, label, f"{server.ready_s:.2f}", f"{size:.0f}"])
    return table


async def _fill(url: str, node: str, count: int) -> None:
    store = open_store(url, Path())
    for start in range(0, count, _BATCH):
        keys = range(start, min(start + _BATCH, count))
        await store.change(TABLE, {f"{node}/{DEV_APP}/user:{n:07d}": b"" for n in keys})
    await store.close()


def _from_peer(bench: Bench) -> Table:
    table = Table(
        "Cluster: taking over a crowd from another node",
        "Seconds from starting the process until its `ready` line, which waits for the tables of "
        "the nodes that are there, and the new node's resident memory then.",
        ["endpoints on the other node", "seconds to ready", "more than with none", "MB"],
    )
    alone: float | None = None
    for count, ready_s, size in join_crowds(bench):
        alone = ready_s if alone is None else alone
        more = f"{ready_s - alone:.2f}" if count > 1 else ""
        table.rows.append([f"{count if count > 1 else 0:,}", f"{ready_s:.2f}", more, f"{size:.0f}"])
    return table


def join_crowds(bench: Bench) -> Iterator[tuple[int, float, float]]:
    """Let a node join one with a crowd, for each size: how many, how soon, megabytes then."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-rejoin-")))
        secret = folder / "secret"
        secret.write_text(secrets.token_hex(32))
        for count in (1, *(_CROWDS_QUICK if bench.quick else _CROWDS)):
            bench.advance(f"join: {count:,} endpoints")
            with ExitStack() as servers:
                redis = start_redis()
                servers.callback(redis.stop)
                common = (
                    f"--registry redis://127.0.0.1:{redis.ports['redis']} "
                    f"--cluster-secret-file {secret}"
                )
                crowd = start_chappe(f"{sys.executable} {_CROWD} {count} --name crowd {common}")
                servers.callback(crowd.stop)
                late = start_chappe(f"{bench.chappe} --name late --cluster-port 0 {common}")
                servers.callback(late.stop)
                _await_routes(late, count)
                yield count, late.ready_s, late.resident_bytes() / _MB


def _await_routes(server: Server, count: int) -> None:
    """See that the node knows them all: what is ready too soon must not count."""
    end = time.monotonic() + _SETTLED_S
    while True:
        with urlopen(f"http://127.0.0.1:{server.ports['http']}/v1/nodes?as=user:me") as answer:
            nodes = {node["name"]: node for node in json.load(answer)["nodes"]}
        known = nodes["late"]["routes"]
        if known >= count:
            return
        if time.monotonic() > end:
            raise ServerError(f"{known} of {count} routes came")
        time.sleep(_PAUSE_S)
