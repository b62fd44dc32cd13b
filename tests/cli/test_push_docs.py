"""What the pages about push tell people to type works as it is written, in that order."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer

from chappe.cli.main import app as cli
from tests.cli.process import Served, run_here, serving, started
from tests.cli.test_rooms import waiting

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
# Those of other machines than the one that a reader tries things out on; tested as a whole in
# tests/faults/test_push_deployment.py.
ELSEWHERE = "push.example.org"


def commands(page: str) -> list[list[str]]:
    """The commands about push, in order, without the program's name."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    found = [
        shlex.split(line, comments=True)[1:]
        for block in blocks
        for line in block.splitlines()
        if re.match(r"(\.venv/bin/)?chappe push ", line) and ELSEWHERE not in line
    ]
    assert found
    return found


class Reader:
    """Types what a page says, with the ids that the answers before have shown."""

    def __init__(self, node: Served, folder: Path, stack: ExitStack) -> None:
        self._node = node
        self._folder = folder
        self._stack = stack
        self._ids: dict[str, str] = {}
        self.listened: list[Path] = []

    def type(self, command: list[str]) -> None:
        said = [self._ids.get(word, word) for word in command]
        assert not {"KEY", "CLIENT", "NOTE", "JOB"} & set(said), command
        said = [str(self._folder / word) if word.endswith(".secret") else word for word in said]
        if said[1] == "listen":
            self._listen(said)
            return
        done = run_here(*said, "--http", self._node.http, "--json")
        assert done.returncode == 0, (command, done.stderr)
        self._learn(json.loads(done.stdout.splitlines()[-1]))

    def _listen(self, command: list[str]) -> None:
        log = self._folder / f"listen-{len(self.listened)}"
        self.listened.append(log)
        process = started(*command, "--http", self._node.http, log=log)
        self._stack.enter_context(process)
        for _ in waiting("the device did not connect"):
            if "connected" in log.read_text():
                return

    def _learn(self, answer: dict[str, Any]) -> None:
        for field in ("key", "client", "note", "job"):
            if isinstance(answer.get(field), str):
                self._ids[field.upper()] = answer[field]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", "--dev") as served:
        yield served


@pytest.mark.parametrize("page", ["README.md", "docs/push.md"])
def test_what_a_page_says_to_type_works(page: str, node: Served, tmp_path: Path) -> None:
    with ExitStack() as stack:
        reader = Reader(node, tmp_path, stack)
        for command in commands(page):
            reader.type(command)
        assert reader.listened


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, f"{name} {word}")
    if not hasattr(command, "commands"):
        yield name, command


def test_every_command_of_push_is_in_the_reference_with_its_flags() -> None:
    everywhere = {"--app", "--secret-file", "--http", "--token-file", "--ca", "--json", "--help"}
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    found = dict(leaves(commands["push"], "chappe push"))
    assert len(found) > 20
    for name, command in found.items():
        (row,) = re.findall(rf"^\| `{name}(?: [^`]*)?` \|.*$", REFERENCE, re.MULTILINE)
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert everywhere & set(parameter.opts) or any(
                    re.search(rf"{option}\b", row) for option in parameter.opts
                ), (name, parameter.opts)
