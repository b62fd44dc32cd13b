"""All of it with one command: `python examples/demo.py`, or `make demo`.

Starts a cluster of three nodes, lets topics, users, rooms, queues, a service and push talk across
it, kills a node half-way and starts it again; then makes tables of what the nodes recorded, shows
the way of one message, and writes a report to look at.

Needs `redis-server` and Java 17 on this machine (`make packages` installs both).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chappe.pipeline.table import read
from cluster import CHAPPE, ExampleNode, start_redis
from demo_traffic import Traffic

# What says of a folder that a demo made all that is in it, so that the next may remove it.
MARKER = "made-by-the-chappe-demo.txt"
NAMES = ("node-1", "node-2", "node-3")
# How often it is told how far it is.
TELL_S = 10.0
# How long the cluster is without the node that is killed.
AWAY_S = 5.0


async def make_traffic(
    nodes: list[ExampleNode], folder: Path, seconds: float, start: Callable[[str], Any]
) -> None:
    """Traffic for so long; half-way the last node ends without warning, and is started again."""

    async def story() -> None:
        print("everybody talks: topics, users, rooms, queues, a service, push", flush=True)
        await asyncio.sleep(seconds / 2)
        lost = nodes.pop()
        print(f"{lost.name} is killed (kill -9)", flush=True)
        lost.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(lost.process.wait)
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(start, lost.name)
        print(f"{lost.name} is back", flush=True)
        await asyncio.sleep(seconds / 2)

    async def tell() -> None:
        begun = time.monotonic()
        while True:
            await asyncio.sleep(TELL_S)
            counts = traffic.counts
            names = ("published", "said", "sent", "asked", "queued", "pushed")
            sent = sum(counts[name] for name in names)
            gone_s = time.monotonic() - begun
            print(f"{gone_s:8.0f} s  {sent:,} sent, {counts['received']:,} received", flush=True)

    traffic = Traffic(
        [node.addresses["websocket"] for node in nodes],
        [node.addresses["http"] for node in nodes],
        folder / "devices",
    )
    telling = asyncio.create_task(tell())
    try:
        await traffic.run(story())
    finally:
        telling.cancel()
    for name, count in sorted(traffic.counts.items()):
        print(f"{count:>12,}  {name}")


def make_folder(folder: Path) -> None:
    """A folder with nothing in it, in place of a demo that was there; of anything else, nothing is
    touched."""
    if folder.exists() and not folder.is_dir():
        raise SystemExit(f"{folder} is no folder: name another --folder")
    if (folder / MARKER).is_file():
        shutil.rmtree(folder)
    elif folder.is_dir() and any(folder.iterdir()):
        raise SystemExit(
            f"{folder} holds something else than a demo (it has no {MARKER}): name another "
            "--folder, or remove what is there"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("The demo of Chappe made all of this, and removes it.\n")


def write_secret(file: Path) -> None:
    """What the nodes know each other by, for nobody else to read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as secret:
        secret.write(secrets.token_hex(32))


def run_cluster(folder: Path, registry: str | None, seconds: float) -> None:
    """The cluster, from its start until its last event is written down."""
    with ExitStack() as stack:
        registry = registry or start_redis(folder, stack)
        secret = folder / "secret"
        write_secret(secret)
        nodes: list[ExampleNode] = []

        def start(name: str) -> None:
            # What push knows, all nodes have to see.
            node = ExampleNode(name, folder, registry, secret, store=registry)
            stack.callback(node.stop)
            node.wait_until_ready()
            nodes.append(node)

        for name in NAMES:
            start(name)
            print(f"{name} {nodes[-1].addresses['http']}", flush=True)
        asyncio.run(make_traffic(nodes, folder, seconds, start))


def chappe(*arguments: str | Path) -> str:
    """Run a command; what it prints."""
    done = subprocess.run([CHAPPE, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return done.stdout


def interesting(tables: Path) -> str:
    """The id of a message that the audit names, or else of one that went far."""
    for row in read(tables, "audit", ["message", "label"]).to_pylist():
        if row["label"] or row["message"]:
            return row["label"] or str(row["message"])
    ways = read(tables, "paths", ["message", "label", "hops"]).slice(0, 1000).to_pylist()
    row = max(ways, key=lambda row: len(row["hops"]))
    return row["label"] or str(row["message"])


def show(folder: Path, memory: str) -> None:
    """Tables, one message's way, and the report."""
    tables, page = folder / "tables", folder / "report.html"
    events = [word for name in NAMES for word in ("--events", folder / name / "events")]
    print("tables of what the nodes recorded, by Spark:", flush=True)
    print(chappe("pipeline", "run", *events, "--tables", tables, "--memory", memory), end="")
    print("the way of one message:")
    print(chappe("trace", interesting(tables), "--tables", tables), end="", flush=True)
    told = json.loads(chappe("report", "--tables", tables, "--out", page, "--json"))
    print(f"look at it:  file://{Path(told['out']).absolute()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--registry", help="where the nodes find each other; else a Redis of our own"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long there is traffic")
    parser.add_argument("--memory", default="2g", help="of Spark")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(".chappe/demo"),
        help="what is made; a demo that is there goes",
    )
    options = parser.parse_args()
    # Whoever ends the demo ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    begun = time.monotonic()
    folder: Path = options.folder.absolute()
    make_folder(folder)
    run_cluster(folder, options.registry, options.seconds)
    show(folder, options.memory)
    print(f"all of it took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
