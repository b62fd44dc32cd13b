"""Several processes on one port: each may die, and whoever is connected goes on (`--workers`)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import chappe.blocking
from chappe.blocking import Client
from chappe.client import Message
from chappe.errors import Unreachable
from chappe.ids import NODE_MAX, SEQUENCE_BITS

from .process import COMMAND, Api, NodeProcess

# They are a cluster, too, and whoever leaves one says so for two beats of rooms.
CONFIG = "workers = 2\ndrain_s = 1.0\n[rooms]\nbeat_s = 0.25\n"
# Longer than anything here takes on a busy machine; nothing waits so long when all is well.
WAIT_S = 60.0
PORTS = ("--port", "0", "--http-port", "0", "--tcp-port", "0")


class Workers(NodeProcess):
    """`chappe serve --workers 2`, and its children by name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, CONFIG)

    def child(self, name: str, but: int = 0) -> int:
        """The process that fills a place and is ready, once it is another than that."""
        ready = re.compile(rf"child\.ready +child={name} pid=(\d+)")
        for _ in waiting(f"{name} was not ready"):
            pids = [int(pid) for pid in ready.findall(self.log())]
            if pids and pids[-1] != but:
                return pids[-1]
        raise AssertionError

    def stop(self) -> None:
        """Drain it, and see that all of them ended by themselves."""
        super().stop()
        assert "child.killed" not in self.log()

    def children(self) -> list[int]:
        """All that are alive now."""
        pid = self._process.pid
        return [int(pid) for pid in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def waiting(reason: str) -> Iterator[None]:
    """Look again and again, for as long as it may take: what other processes do is no event."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
    raise AssertionError(reason)


def gone(pids: list[int]) -> None:
    """Wait until none of these processes is there, nor a zombie of one."""
    for _ in waiting(f"some of {pids} are still there"):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return


def on_each_worker(node: NodeProcess, stack: ExitStack) -> dict[int, Client]:
    """Connect users until one is on each worker, whose number is part of the ids that it gives."""
    clients: dict[int, Client] = {}
    for attempt in range(200):
        address = f"user:at-{attempt}"
        client = chappe.blocking.connect(node.addresses["websocket"], as_=address)
        client.subscribe("topic:all")
        number = (int(client.send(address, "?")) >> SEQUENCE_BITS) & NODE_MAX
        client.receive(WAIT_S)
        if number in clients:
            client.close()
            continue
        stack.callback(client.close)
        clients[number] = client
        if len(clients) == 2:
            return clients
    raise AssertionError("all connections went to one worker")


def reach_each_other(one: Client, other: Client) -> None:
    """See both get what the other sends, as a user and by a topic."""
    for sender, receiver in ((one, other), (other, one)):
        deliver(sender, receiver)
        deliver(receiver, sender)
    for reader in (one, other):
        # Once more: who came back a moment ago may still be about to.
        reader.subscribe("topic:all")
    for publisher in (one, other):
        publisher.publish("topic:all", publisher.address)
        for reader in (one, other):
            assert next_from(reader, "topic:all").data == publisher.address


def deliver(sender: Client, receiver: Client) -> None:
    """Send until it is taken: who came back a moment ago may not be known everywhere yet."""
    for _ in waiting(f"{receiver.address} could not be reached"):
        with suppress(Unreachable):
            sender.send(receiver.address, "hello")
            break
    assert next_from(receiver, receiver.address).data == "hello"


def next_from(client: Client, to: str) -> Message:
    """The next message to an address."""
    while (message := client.receive(WAIT_S)).to != to:
        pass
    return message


def ask(node: NodeProcess, path: str, body: object) -> Any:
    """Make a request on a connection of its own, so that any worker may get it."""
    api = Api(node)
    status, answer = api.request("POST", path, json.dumps(body).encode())
    api.close()
    assert status == 200, answer
    return json.loads(answer)


def all_counted(api: Api) -> bool:
    """Whether both workers are said to be up, and to have sessions."""
    names = ("worker-1", "worker-2")
    up = [api.metric("worker_up", worker=name) for name in names]
    sessions = [api.metric("sessions", edge="websocket", worker=name) for name in names]
    return up == [1.0, 1.0] and all(sessions)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    node = Workers(tmp_path)
    yield node
    node.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a `chappe serve` that is to end by itself."""
    return subprocess.run(
        [COMMAND, "serve", "--dev", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_one_ready_line_says_where_all_of_them_are(workers: Workers) -> None:
    assert workers.addresses["workers"] == 2
    assert set(workers.addresses) == {"websocket", "http", "tcp", "comet", "workers"}
    assert len(workers.children()) == 3
    api = Api(workers)
    assert api.request("GET", "/readyz")[0] == 200
    api.close()


def test_users_and_topics_reach_across_the_workers(workers: Workers) -> None:
    with ExitStack() as stack:
        one, other = on_each_worker(workers, stack).values()
        reach_each_other(one, other)
        assert (one.reconnects, other.reconnects) == (0, 0)


def test_a_worker_that_is_killed_is_replaced_and_its_clients_go_on(workers: Workers) -> None:
    with ExitStack() as stack:
        clients = on_each_worker(workers, stack)
        killed = workers.child("worker-1")
        os.kill(killed, signal.SIGKILL)
        assert workers.child("worker-1", but=killed) in workers.children()
        for _ in waiting("its client did not come back"):
            if clients[0].reconnects:
                break
        assert clients[1].reconnects == 0
        reach_each_other(*clients.values())
        assert "end=SIGKILL" in workers.log()


def test_a_worker_that_is_told_to_drain_is_replaced_too(workers: Workers) -> None:
    drained = workers.child("worker-2")
    os.kill(drained, signal.SIGTERM)
    assert workers.child("worker-2", but=drained) in workers.children()


def test_a_keeper_that_is_killed_is_replaced_and_the_workers_go_on(workers: Workers) -> None:
    with ExitStack() as stack:
        clients = on_each_worker(workers, stack)
        before = set(workers.children())
        killed = workers.child("keeper")
        os.kill(killed, signal.SIGKILL)
        replaced = workers.child("keeper", but=killed)
        assert set(workers.children()) == before - {killed} | {replaced}
        reach_each_other(*clients.values())
        assert [client.reconnects for client in clients.values()] == [0, 0]
        # The new keeper knows the workers again: one that comes is linked to the one that stayed.
        died = workers.child("worker-1")
        os.kill(died, signal.SIGKILL)
        workers.child("worker-1", but=died)
        for _ in waiting("its client did not come back"):
            if clients[0].reconnects:
                break
        reach_each_other(*clients.values())


def test_a_polled_session_is_found_whichever_worker_a_poll_reaches(workers: Workers) -> None:
    opened = ask(workers, "/v1/poll", {"as": "user:poller"})
    acknowledged = {}
    for number in range(20):
        ask(workers, "/v1/send", {"to": "user:poller", "data": number})
        answer = ask(workers, "/v1/poll", {"session": opened["session"], **acknowledged})
        acknowledged = {"ack": answer["batch"]}
        assert [message["data"] for message in answer["messages"]] == [number]


def test_any_worker_tells_what_all_have_counted(workers: Workers) -> None:
    with ExitStack() as stack:
        on_each_worker(workers, stack)
        for _ in range(10):
            with closing(Api(workers)) as api:
                # One that is too busy to answer in time is missing from a scrape.
                for _ in waiting("not all workers were counted"):
                    if all_counted(api):
                        break


def test_a_worker_that_does_not_answer_is_missing_from_the_counts_and_said_to_be(
    workers: Workers,
) -> None:
    stopped = workers.child("worker-2")
    os.kill(stopped, signal.SIGSTOP)
    try:
        up = {"worker-1": 1.0, "worker-2": 0.0}
        # Connections that the kernel hands to the stopped one wait there.
        for _ in waiting("no scrape reached the worker that lives"):
            api = Api(workers, timeout_s=3.0)
            try:
                found = {name: api.metric("worker_up", worker=name) for name in up}
            except TimeoutError:
                continue
            finally:
                api.close()
            assert found == up
            break
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_sigterm_ends_all_of_them_and_more_change_nothing(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    children = workers.children()
    with chappe.blocking.connect(workers.addresses["websocket"], as_="user:here"):
        while workers.running:
            workers.terminate()
            time.sleep(0.005)
    workers.stop()
    gone(children)
    assert not (workers.data / "keeper.sock").exists()


def test_an_interrupt_of_the_whole_group_is_one_clean_end(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    children = workers.children()
    for pid in children:
        os.kill(pid, signal.SIGINT)
    workers.interrupt()
    workers.stop()
    gone(children)
    # Nobody was taken for dead, and nobody was replaced.
    assert "SIGINT" not in workers.log()


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    children = workers.children()
    workers.kill()
    gone(children)
    # And whatever they held is free.
    workers.start()
    workers.stop()


def test_a_port_that_is_somebody_elses_is_an_error_and_leaves_nobody(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ["--workers", "2", *PORTS, "--tcp-port", port, "--data", str(tmp_path)]
        ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    # Not even when the other shares its port with those like it.
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", int(port)))
        other.listen()
        assert run(*arguments).returncode == 2


def test_a_data_folder_in_use_is_an_error(workers: Workers) -> None:
    ended = run("--workers", "2", *PORTS, "--data", str(workers.data))
    assert ended.returncode == 2
    assert "is in use by another node" in ended.stderr


def test_a_store_that_cannot_be_opened_is_told_and_leaves_nobody(tmp_path: Path) -> None:
    (tmp_path / "chappe.db").write_bytes(b"this is no database" * 1000)
    ended = run("--workers", "2", *PORTS, "--data", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "file is not a database" in ended.stderr
    begun = [int(pid) for pid in re.findall(r"child\.begun .*pid=(\d+)", ended.stderr)]
    assert begun
    gone(begun)


@pytest.mark.parametrize("number", ["0", "-1", "257", "two"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(tmp_path: Path, number: str) -> None:
    ended = run(f"--workers={number}", *PORTS, "--data", str(tmp_path))
    assert ended.returncode == 2
    assert "workers" in ended.stderr


def test_logs_say_which_process_it_was(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    workers.stop()
    for name in ("worker-1", "worker-2"):
        assert re.search(rf"drain\.end +process={name}", workers.log())
