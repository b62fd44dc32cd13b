"""Three nodes, one cluster, one command: `python examples/cluster.py`.

Starts a private Redis for the nodes to find each other, three nodes, and three clients. Shows that
they reach each other, ends a node without warning, and shows that everybody goes on. With
`--keep` the cluster stays until Ctrl-C, to be looked at with `chappe cluster --http ...`.

Needs `redis-server` on this machine, or `--registry redis://...` of one that runs somewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from chappe import connect

CHAPPE = Path(sys.executable).with_name("chappe")


class ExampleNode:
    """A node in a process of its own."""

    def __init__(
        self, name: str, folder: Path, registry: str, secret: Path, store: str = "sqlite:"
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        command = [CHAPPE, "serve", "--dev", "--name", name, "--data", folder / name]
        command += ["--registry", registry, "--cluster-secret-file", secret, "--store", store]
        command += [f"--{edge}=0" for edge in ("port", "http-port", "tcp-port", "cluster-port")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        word, _, addresses = self.process.stdout.readline().partition(" ")
        if word != "ready":
            raise SystemExit(f"{self.name} did not start: {self.log.read_text()}")
        self.addresses: dict[str, str] = json.loads(addresses)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def start_redis(folder: Path, stack: ExitStack) -> str:
    """A Redis of our own, which leaves nothing behind."""
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("please install redis-server, or name one: --registry redis://HOST:PORT")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    redis = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    stack.callback(redis.wait)
    stack.callback(redis.terminate)
    return f"redis://127.0.0.1:{port}"


def read_places(node: ExampleNode) -> dict[str, str]:
    """On which node each user is: administrators may see that, nobody else."""
    with urlopen(f"{node.addresses['http']}/v1/routes?as=user:admin") as answer:
        return {route["address"]: route["nodes"][0] for route in json.load(answer)["routes"]}


async def show(nodes: list[ExampleNode]) -> None:
    urls = [node.addresses["websocket"] for node in nodes]
    names = ("user:alice", "user:bob", "user:carol")
    # Each begins on any of the nodes, and goes to the next one should it be gone.
    alice, bob, carol = people = [await connect(urls, as_=name) for name in names]
    for person in people:
        await person.subscribe("topic:news")
    await alice.send("user:bob", "hello, wherever you are")
    print("bob got:", (await bob.receive()).data)
    await carol.publish("topic:news", "three nodes, one cluster")
    for person in people:
        print(person.address, "got:", (await person.receive()).data)

    places = await asyncio.to_thread(read_places, nodes[0])
    gone = places[carol.address]
    lost = {person: person.session for person in people if places[person.address] == gone}
    print("carol's node ends without a warning")
    next(node for node in nodes if node.name == gone).process.send_signal(signal.SIGKILL)
    while any(p.session == before or not p.connected for p, before in lost.items()):  # noqa: ASYNC110
        await asyncio.sleep(0.1)  # until they have moved, and have subscribed again
    await bob.publish("topic:news", "and then there were two")
    for person in people:
        print(person.address, "got:", (await person.receive()).data)
    for person in people:
        await person.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--registry", help="where the nodes find each other")
    parser.add_argument("--keep", action="store_true", help="run on until Ctrl-C")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        registry = options.registry or start_redis(folder, stack)
        secret = folder / "secret"
        secret.write_text(secrets.token_hex(32))
        nodes = [ExampleNode(f"node-{n}", folder, registry, secret) for n in (1, 2, 3)]
        for node in nodes:
            stack.callback(node.stop)
        for node in nodes:
            node.wait_until_ready()
            print(node.name, node.addresses["http"])
        if options.keep:
            print(
                "look at it:  chappe cluster --as user:me --watch 1 --http",
                nodes[0].addresses["http"],
            )
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        else:
            asyncio.run(show(nodes))


if __name__ == "__main__":
    main()
