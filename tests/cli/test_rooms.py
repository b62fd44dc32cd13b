"""`chappe rooms`: layouts as processes, doubled while messages go on, looked at over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import chappe.blocking
from chappe.blocking import Client
from chappe.cli.rooms import doubling
from chappe.errors import Unreachable
from chappe.rooms.doubling import Progress, Step
from tests.cli.process import Served, run_here, serving, started
from tests.faults.figures import FULL
from tests.processes import read_line
from tests.servers import RedisServer

# Longer than anything here takes on a busy machine; nothing waits so long when all is well.
WAIT_S = 60.0
PORTS = ("--port", "0", "--http-port", "0", "--tcp-port", "0")


class Layout(Served):
    """`chappe rooms up`, ready."""

    def __init__(self, process: Any, log: Path, ready: dict[str, Any], data: Path) -> None:
        super().__init__(process, log, ready)
        self.log = log
        self.data = data
        self.gateways: list[dict[str, str]] = ready["gateways"]
        self.processes: dict[str, dict[str, str]] = ready["processes"]

    def child(self, name: str, but: int = 0) -> int:
        """The process that fills a place and is ready, once it is another than that."""
        ready = re.compile(rf"child\.ready +child={name} pid=(\d+)")
        for _ in waiting(f"{name} was not ready"):
            pids = [int(pid) for pid in ready.findall(self.log.read_text())]
            if pids and pids[-1] != but:
                return pids[-1]
        raise AssertionError

    def status(self) -> dict[str, Any]:
        """How rooms do, as the first gateway sees it."""
        shown = self.run_here("rooms", "status", "--json", "--as", "user:admin")
        assert shown.returncode == 0, shown.stderr
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def rooms(self, command: str, *arguments: str) -> Any:
        """Run a command that speaks to the registry of this layout."""
        return run_here("rooms", command, "--data", str(self.data), *arguments)


@contextmanager
def laid_out(folder: Path, *arguments: str) -> Iterator[Layout]:
    """Run `chappe rooms up` on free ports."""
    data, log = folder / "data", folder / "log"
    command = ("rooms", "up", "--dev", *PORTS, "--data", str(data), *arguments)
    with started(*command, log=log) as process:
        assert process.stdout is not None
        try:
            line = read_line(process.stdout)
        except TimeoutError as error:
            line = str(error)
        word, _, told = line.partition(" ")
        assert word == "ready", f"{line!r}\n{log.read_text()}"
        yield Layout(process, log, json.loads(told), data)


def waiting(reason: str) -> Iterator[None]:
    """Look again and again, for as long as it may take: what other processes do is no event."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
    raise AssertionError(reason)


def members(layout: Layout, stack: ExitStack, room: str) -> list[Client]:
    """A user on each gateway, all in one room."""
    clients = []
    for number, gateway in enumerate(layout.gateways):
        client = chappe.blocking.connect(gateway["websocket"], as_=f"user:{number}")
        stack.callback(client.close)
        client.join(room)
        clients.append(client)
    return clients


def chat(clients: list[Client], room: str, text: str) -> None:
    """See all hear what each says; nothing may be lost."""
    for sender in clients:
        sender.publish(room, f"{text} {sender.address}")
        for reader in clients:
            assert reader.receive(WAIT_S).data == f"{text} {sender.address}"


def test_the_simple_layout_starts_with_one_command_and_ends_as_one(tmp_path: Path) -> None:  # R16
    with laid_out(tmp_path, "--simple") as layout, ExitStack() as stack:
        assert set(layout.processes) == {
            "proxy-1",
            "router-1",
            "broker-0-1",
            "broker-0-2",
            "broker-0-3",
        }
        assert layout.gateways[0]["websocket"] == layout.addresses["websocket"]
        assert all({"http", "rooms"} == set(each) for each in layout.processes.values())
        clients = members(layout, stack, "room:42")
        chat(clients, "room:42", "hello")
        counted = layout.run_here("rooms", "members", "room:42", "-n", "9", "--as", "user:x")
        assert counted.stdout.split() == ["1", "in", "room:42", "user:0"]
        refused = layout.run_here("rooms", "members", "42", "-n", "201", "--as", "user:x")
        assert "-n: must be between 0 and 200" in refused.stderr
        none = layout.rooms("double", "--yes", "--routers", "--timeout", "600")
        assert "no independent routers of system pubsub" in none.stderr.replace("\n", " ")
        none = layout.rooms("double", "--yes", "--system", "nix", "--timeout", "600")
        assert "no system nix at this registry" in none.stderr
        pids = [layout.child(name) for name in layout.processes]
        stack.close()
        code, log = layout.terminate()
        assert code == 0, log
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert "Traceback" not in log
        assert "child.killed" not in log


def test_whoever_dies_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:  # R5
    with laid_out(tmp_path, "--replicas", "2", "--gateways", "2") as layout, ExitStack() as stack:
        clients = members(layout, stack, "room:7")
        chat(clients, "room:7", "before")
        # Who signals the whole group means the one who minds it: gateways have to drain first.
        os.kill(layout.child("broker-0-1"), signal.SIGTERM)
        for number in range(20):
            chat(clients, "room:7", f"{number} after a signal")
        assert "drain.begin" not in layout.log.read_text()
        for name in ("broker-0-1", "proxy-1", "router-1"):
            pid = layout.child(name)
            os.kill(pid, signal.SIGKILL)
            layout.child(name, but=pid)
            again(clients, "room:7", f"without the first {name}")
        assert "child.died" in layout.log.read_text()


def again(clients: list[Client], room: str, text: str) -> None:
    """Say something until it is heard everywhere: some is lost while somebody dies."""
    sender = clients[0]
    for attempt, _ in enumerate(waiting(f"{text}: not heard")):
        said = f"{text} {attempt}"
        with suppress(Unreachable):
            sender.publish(room, said)
        if all(hears(reader, said) for reader in clients):
            return


def hears(reader: Client, said: str) -> bool:
    """Whether something comes within a moment; what was said before may come first."""
    with suppress(TimeoutError):
        while reader.receive(0.3).data != said:
            pass
        return True
    return False


def test_partitions_are_doubled_while_messages_go_on(tmp_path: Path) -> None:  # R9
    layout_flags = ("--replicas", "1", "--gateways", "2", "--router-partitions", "1")
    with laid_out(tmp_path, *layout_flags) as layout, ExitStack() as stack:
        rooms = [f"room:{number}" for number in range(4)]
        clients = members(layout, stack, rooms[0])
        for client in clients:
            for room in rooms[1:]:
                client.join(room)
        for flags in ((), ("--routers",)):
            done = layout.rooms("double", "--yes", "--json", *flags)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["partitions"] == 2
            assert "1 -> 2 partitions: new partitions make ready, 0 of 1 ready" in done.stderr
            assert not json.loads(done.stdout)["resumed"]
        for room in rooms:
            chat(clients, room, "after")
        status = layout.status()
        assert (status["partitions"], status["router_partitions"]) == (2, 2)
        assert [(each["partition"], each["node"]) for each in status["brokers"]] == [
            (0, "broker-0-1"),
            (1, "broker-1-1"),
        ]
        # Metrics are those of everybody, who came later too.
        with urlopen(layout.http + "/metrics") as answer:
            assert 'chappe_worker_up{worker="broker-1-1"} 1.0' in answer.read().decode()
        stack.close()
        assert layout.terminate()[0] == 0
    # The registry was its own and is gone; there are never fewer.
    with laid_out(tmp_path, *layout_flags) as layout:
        status = layout.status()
        assert (status["partitions"], status["router_partitions"]) == (2, 2)
        assert "rooms.partitions.remembered" in layout.log.read_text()


def test_a_replica_that_does_not_start_is_missed_by_a_doubling(tmp_path: Path) -> None:  # R9
    with laid_out(tmp_path, "--replicas", "2") as layout, ThreadPoolExecutor() as threads:
        doubling = threads.submit(layout.rooms, "double", "--yes", "--timeout", "8")
        begun = re.compile(r"child\.begun +child=broker-1-2 pid=(\d+)")
        for _ in waiting("no broker of the new partition was begun"):
            if found := begun.search(layout.log.read_text()):
                break
        assert found is not None
        pid = int(found[1])
        os.kill(pid, signal.SIGSTOP)
        try:
            refused = doubling.result()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert refused.returncode == 1
        # It may have come as far as to be registered before it was stopped.
        reason = refused.stderr.replace("\n", " ")
        assert "1 of 2 replicas Running" in reason or "broker-1-2, is not Running" in reason
        assert layout.status()["partitions"] == 1
        done = layout.rooms("double", "--yes", "--json")
        assert json.loads(done.stdout)["partitions"] == 2


def test_brokers_with_another_secret_are_named_and_hold_a_doubling_up(  # R9
    tmp_path: Path, redis_server: RedisServer
) -> None:
    url = f"{redis_server.url}?prefix=secrets"

    def flags(name: str, *more: str) -> tuple[str, ...]:
        secret = tmp_path / f"{name}.secret"
        secret.write_text(f"{name}: a secret that nobody else has\n")
        registry = ("--registry", url, "--store", url)
        ports = ("--cluster-port", "0", "--rooms-port", "0")
        return ("--dev", *registry, *ports, "--cluster-secret-file", str(secret), *more)

    with ExitStack() as stack:
        serve = [
            (tmp_path / "a", flags("a", "--partition", "0")),
            (tmp_path / "b", flags("b", "--roles", "broker", "--partition", "1")),
        ]
        nodes = [stack.enter_context(serving(data, *more)) for data, more in serve]
        # Why it does not run, and who is silent, is told once it is no accident any more.
        timeout = "30" if FULL else "8"
        refused = run_here("rooms", "double", "--registry", url, "--yes", "--timeout", timeout)
        assert refused.returncode == 1
        reason = "is not Running" + (": not all routers have told" if FULL else "")
        assert reason in refused.stderr.replace("\n", " ")
        assert (
            '"partitions": 1'
            in nodes[0].run_here("rooms", "status", "--json", "--as", "user:admin").stdout
        )
        first, second = [node.terminate()[1] for node in nodes]
        assert not FULL or "answers no HELLO" in first
        assert "fail their MAC: does it have the same cluster.secret" in second


def test_a_doubling_that_nobody_serves_is_refused_resumed_and_withdrawn(tmp_path: Path) -> None:
    arguments = ("--dev", "--workers", "2", "--partition", "0")  # no broker of partition 1
    with serving(tmp_path / "data", *arguments):
        command = ("rooms", "double", "--data", str(tmp_path / "data"))
        for _ in range(2):
            refused = run_here(*command, "--yes", "--timeout", "1")
            assert refused.returncode == 1
            assert "partition 1 has no broker: start one with --partition 1" in refused.stderr
        told = run_here(*command, "--yes", "--timeout", "0.5", "--json")
        assert (told.returncode, json.loads(told.stdout)["ok"]) == (1, False)
        assert json.loads(told.stdout)["missing"]
        withdrawn = run_here(*command, "--withdraw")
        assert withdrawn.returncode == 0, withdrawn.stderr
        assert "the doubling of partitions of brokers is taken back; there are 1" in (
            withdrawn.stdout.replace("\n", " ")
        )
        assert "no doubling is under way" in run_here(*command, "--withdraw").stderr


def test_a_node_alone_is_looked_at_and_has_nobody_to_double(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--dev") as node:
        shown = node.run_here("rooms", "status", "--as", "user:admin")
        assert "1 partition " in shown.stdout
        assert "of a node that is alone" in shown.stdout
        assert ":0" not in shown.stdout
        for role in ("publisher", "proxy", "broker", "router", "gateway"):
            assert role in shown.stdout
        for _ in waiting("no probe came back"):
            links = node.run_here("rooms", "links", "--as", "user:admin")
            assert links.returncode == 0, links.stderr
            if "gateway" in links.stdout:
                break
        refused = run_here("rooms", "double", "--yes", "--data", str(tmp_path / "data"))
        assert refused.returncode == 2
        assert "nothing with a registry of its own runs in" in refused.stderr


def test_weights_are_set_over_a_node(tmp_path: Path) -> None:  # R6
    with laid_out(tmp_path, "--replicas", "1") as layout:
        proxy = layout.status()["proxies"][0]["id"]
        done = layout.run_here("rooms", "weigh", "--proxy", f"{proxy}=0.5", "--as", "user:admin")
        assert done.returncode == 0, done.stderr
        for _ in waiting("the weight was not seen"):
            if layout.status()["proxies"][0].get("weight") == 0.5:
                break
        for flag in ("--proxy=999999", f"--broker={proxy}"):
            named = flag.removeprefix("--").replace("=", " ")
            refused = layout.run_here("rooms", "weigh", f"{flag}=1", "--as", "user:admin")
            assert refused.returncode == 1
            assert f"there is no {named}" in refused.stderr.replace("\n", " ")
        done = layout.run_here("rooms", "weigh", "--broker", "broker-0-1=3", "--as", "user:admin")
        assert "weights of proxies: 0, of brokers: 1" in done.stdout
        for _ in waiting("the weight was not seen"):
            if layout.status()["brokers"][0].get("weight") == 3:
                break
        ignoring = ("--ignore-unknown", "--proxy", "999999=1", "--as", "user:admin")
        done = layout.run_here("rooms", "weigh", f"--proxy={proxy}=0.25", *ignoring)
        assert done.returncode == 0, done.stderr
        told = done.stdout.replace("\n", " ")
        assert "weights of proxies: 1, of brokers: 0" in told
        assert "there is no proxy 999999" in told
        for _ in waiting("the other weight was not seen"):
            if layout.status()["proxies"][0].get("weight") == 0.25:
                break
        done = layout.run_here("rooms", "weigh", "--measured", "--as", "user:admin")
        assert done.returncode == 0, done.stderr
        for _ in waiting("the weight was not taken back"):
            if layout.status()["proxies"][0].get("weight") is None:
                break


def test_a_registry_that_is_not_there_is_said_at_once_with_the_cause() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        refused = run_here("rooms", "double", "--yes", "--registry", url, "--timeout", "600")
    assert refused.returncode == 1
    assert "the registry does not answer" in refused.stderr
    assert "Connect call failed" in refused.stderr
    assert "debug" not in refused.stderr


def test_who_interrupts_is_told_what_may_still_be_done() -> None:  # R9
    story: list[str] = []
    run = doubling._Run(lambda progress: story.append(doubling.line(progress)), 1.0)
    # What has not begun cannot be withdrawn.
    nothing = "nothing was begun by this run; run it again"
    assert doubling._advice(None) == doubling._advice(run) == nothing
    still = tuple(f"broker {id_} is still Running: restart it" for id_ in range(4))
    run._note(Progress(Step.RESTING, 1, 2, {}, still[:1]))
    assert doubling._advice(run) == nothing
    run._note(Progress(Step.RESTING, 1, 2, {}, still))
    run._note(Progress(Step.READYING, 1, 2, {}, (), 1, 3))
    assert "--withdraw" in doubling._advice(run)
    run._note(Progress(Step.CLEANING, 2, 2, {}, (), 2, 6))
    assert doubling._advice(run) == "the number is set; run it again to watch the cleaning up"
    resting = "1 -> 2 partitions: nothing is begun; one that was withdrawn is not over: "
    assert story == [
        resting + still[0],
        resting + "; ".join((*still[:3], "and 1 more")),
        "1 -> 2 partitions: new partitions make ready, 1 of 3 ready",
        "2 partitions: the number is set; what moved is cleaned up, 2 of 6 cleaned up",
    ]


def test_a_doubling_that_was_only_finished_does_not_read_like_one(
    capsys: pytest.CaptureFixture[str],
) -> None:  # R9
    doubling._tell(doubling._answer(Step.DONE, 2, (), resumed=True), "partitions of brokers")
    assert "the doubling to 2 partitions of brokers that was begun is complete; run it again" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("up", "--simple", "--proxies", "2"), "--simple: not together with --proxies"),
        (("up", "--dev", "--partitions", "3"), "--partitions: must be a power of two"),
        (("up",), "access.keys"),
        (("double",), "--yes: missing; the partitions of brokers would be doubled"),
        (("double", "--yes", "--timeout", "nan"), "--timeout"),
        (("double", "--yes", "--replicas", "0"), "--replicas: must be 1 or above"),
        (("double", "--yes", "--registry", "memory"), "--registry: memory is of one process"),
        (("double", "--yes", "--registry", "redis://x", "--data", "y"), "not together with"),
        (("double", "--yes", "--registry", "kubernetes://a.b.svc"), "knows members only"),
        (("double", "--yes", "--system", "A/B"), "rooms.system"),
        (("weigh",), "say --proxy, --broker or --measured"),
        (("weigh", "--measured", "--proxy", "1=1"), "--measured: say either that, or weights"),
        (("weigh", "--proxy", "=2"), "--proxy: '=2' is not ID=WEIGHT or NODE=WEIGHT"),
        (("weigh", "--broker", "1=nan"), "--broker: '1=nan' is not ID=WEIGHT"),
        (("weigh", "--broker", "1=1", "--broker", "1=2"), "--broker: '1' is there twice"),
        (("members", "topic:x"), "NAME: topic: is not a room's"),
        (("members", "x", "-n", "-1"), "-n: must be 0 or above"),
        (("members", "room:"), "NAME: a room's name is not empty"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_named(arguments: tuple[str, ...], named: str) -> None:
    refused = run_here("rooms", *arguments)
    assert refused.returncode == 2, refused.stderr
    assert named in refused.stderr.replace("\n", " ")
