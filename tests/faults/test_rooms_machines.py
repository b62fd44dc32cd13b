"""The three machines of docs/rooms.md, set up and used by the commands that stand there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.processes import END_S, LINE_S

from .namespaces import Machine, Segment

pytestmark = pytest.mark.timeout(240)

PAGE = (Path(__file__).parents[2] / "docs" / "rooms.md").read_text()
ADDRESSES = ("10.0.0.11", "10.0.0.12", "10.0.0.13")
# Chappe and what else a page calls by its name; a wide terminal.
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def commands(where: str) -> list[str]:
    """The blocks of commands that are for somewhere, in their order."""
    return re.findall(rf"```sh\n# {re.escape(where)}\n(.*?)```", PAGE, re.DOTALL)


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + LINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


class Place:
    """A machine, the folder in which its operator works, and what runs there."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self._log = folder / "log"
        self._said = folder / "said"
        self._shells: list[subprocess.Popen[bytes]] = []

    def begin(self, script: str) -> None:
        """Run commands that stay, in a group of their own, so that all of it can be ended."""
        with self._said.open("ab") as said, self._log.open("ab") as log, self.machine.inside():
            shell = subprocess.Popen(
                ["/bin/sh", "-c", f"{script}\nwait"],
                cwd=self.folder,
                env=os.environ | {"PATH": PATH, "COLUMNS": "200"},
                stdout=said,
                stderr=log,
                start_new_session=True,
            )
        self._shells.append(shell)

    def run(self, script: str) -> str:
        """Run commands one after the other; each must succeed."""
        with self.machine.inside():
            done = subprocess.run(
                ["/bin/sh", "-e", "-c", script],
                cwd=self.folder,
                env=os.environ | {"PATH": PATH, "COLUMNS": "200"},
                capture_output=True,
                text=True,
                timeout=2 * END_S,
                check=False,
            )
        assert done.returncode == 0, f"{script}{done.stdout}{done.stderr}{self.log()}"
        return done.stdout

    def said(self) -> str:
        return self._said.read_text()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """Let all that runs here die at once, as machines do."""
        for shell in self._shells:
            # Nobody has waited for it, so its number is nobody else's.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(END_S)
        self._shells = []


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    with ExitStack() as stack:
        segment = Segment()
        stack.callback(segment.close)
        places = {}
        for address in ADDRESSES:
            place = Place(segment.machine(address), tmp_path_factory.mktemp("machine"))
            stack.callback(place.end)
            places[address] = place
        first = places[ADDRESSES[0]]
        (once,) = commands("once")
        first.run(once)
        (config,) = re.findall(r"```toml\n# chappe.toml\n(.*?)```", PAGE, re.DOTALL)
        for place in places.values():
            (place.folder / "chappe.toml").write_text(config)
            for secret in ("cluster.secret", "main.key"):
                (place.folder / secret).write_bytes((first.folder / secret).read_bytes())
        for address, place in places.items():
            place.begin(commands(f"on {address}")[0])
        for place in places.values():
            wait_for(lambda place=place: place.said().count("ready {") == 2, place.log)  # type: ignore[misc]
        yield places


def test_the_example_of_three_machines_works_as_written(places: dict[str, Place]) -> None:
    _, second, third = places.values()
    (_, listens), (_, speaks) = (commands(f"on {address}") for address in ADDRESSES[1:])
    (anywhere,) = commands("anywhere")
    made, _, listen = listens.partition("\n")
    second.run(made)
    second.begin(listen)
    ask = (
        "chappe rooms members room:42 --token-file alice.token --http http://10.0.0.12:7401 --json"
    )
    wait_for(lambda: json.loads(second.run(ask))["n"] == 1, second.log)
    third.run(speaks)
    wait_for(lambda: "good morning" in second.said(), second.log)
    shown = third.run(anywhere)
    assert all(f"back-{number}" in shown for number in (1, 2, 3)), shown
    assert "2 partitions of brokers" in shown, shown


def answered(place: Place, ask: str) -> bool:
    """Whether one is in the room; of brokers that have just gone nobody knows for two beats."""
    said = place.run(f"{ask} 2>&1 || true")
    if said.startswith("{"):
        return bool(json.loads(said)["n"] == 1)
    assert "no broker of room:43 answered in time" in said, said
    return False


def test_a_machine_may_go_and_rooms_go_on(places: dict[str, Place]) -> None:
    first, second, third = places.values()
    third.end()
    second.begin(commands(f"on {ADDRESSES[1]}")[1].partition("\n")[2].replace("room:42", "room:43"))
    ask = (
        "chappe rooms members room:43 --token-file alice.token --http http://10.0.0.12:7401 --json"
    )
    wait_for(lambda: answered(second, ask), second.log)
    speak = commands(f"on {ADDRESSES[2]}")[1].replace(ADDRESSES[2], ADDRESSES[0])
    first.run(speak.replace("room:42", "room:43").replace("good morning", "we go on"))
    wait_for(lambda: "we go on" in second.said(), second.log)
