"""Progress of long work, as a person at a terminal sees it; and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import CHAPPE, TIMEOUT_S, Served, environment, serving
from tests.processes import kill

MESSAGES = 3_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node"), "--dev") as served:
        yield served


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export that takes several requests to import."""
    file = tmp_path_factory.mktemp("export") / "lines"
    options = {"volatile": True, "attempts_max": 1}
    every = [{"queue": {"queue": "queue:many", "options": options}}]
    every += [{"message": {"data": number}} for number in range(MESSAGES)]
    every.append({"end": {"messages": MESSAGES}})
    file.write_text("".join(json.dumps(line) + "\n" for line in every))
    return file


class Terminal:
    """A command whose standard error is a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.shown = ""

    def until(self, wanted: str) -> None:
        """Read on until something is shown."""
        deadline = time.monotonic() + TIMEOUT_S
        while not re.search(wanted, self.shown):
            assert self._read(deadline), f"{wanted} is not in {self.shown!r}"

    def end(self) -> tuple[int, str]:
        """Its exit code and what it printed, once all was shown."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline):
            pass
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, output.decode()

    def _read(self, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self._screen, select.POLLIN)
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        try:
            data = os.read(self._screen, 65_536) if ready else b""
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(node: Served, *arguments: str) -> Iterator[Terminal]:
    """Run `chappe queue` as in a terminal, with standard output piped elsewhere."""
    screen, other = pty.openpty()
    process = subprocess.Popen(
        [CHAPPE, "queue", *arguments, "--http", node.http],
        env=environment() | {"TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other,
    )
    os.close(other)
    try:
        yield Terminal(process, screen)
    finally:
        kill(process)
        os.close(screen)


def test_long_work_shows_how_far_it_is(node: Served, lines: Path, tmp_path: Path) -> None:  # Q13
    with terminal(node, "import", str(lines), "--to", "shown") as work:
        code, output = work.end()
    assert (code, output.split(": ")[0]) == (0, "ok queue:shown"), (output, work.shown)
    assert re.search(rf"importing .*{MESSAGES + 2}/{MESSAGES + 2}", work.shown), work.shown
    file = tmp_path / "out"
    with terminal(node, "export", "shown", "--out", str(file), "--lines") as work:
        assert work.end()[0] == 0
    assert re.search(rf"exporting .*/{MESSAGES}", work.shown), work.shown
    # They become dead letters, and are sent again.
    taken = node.run_here("queue", "consume", "shown", "-n", "600", "--no-ack")
    assert taken.returncode == 0, taken.stderr
    with terminal(node, "dead", "replay", "shown", "--all") as work:
        assert work.end() == (0, "ok 600 dead letters sent again\n"), work.shown
    assert re.search(r"replaying .*600/600", work.shown), work.shown


def test_a_script_is_shown_none(node: Served, lines: Path) -> None:
    work = node.run("queue", "import", str(lines), "--to", "script")
    assert (work.returncode, work.stderr) == (0, "")


def test_an_import_that_is_interrupted_says_how_to_go_on(node: Served, tmp_path: Path) -> None:
    # From a pipe that does not end: it is in the middle whenever it is interrupted.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with terminal(node, "import", str(pipe), "--to", "broken") as work, pipe.open("w") as feed:
        feed.write('{"queue": {"queue": "queue:x", "options": {"volatile": true}}}\n')
        feed.writelines(f'{{"message": {{"data": {number}}}}}\n' for number in range(1_200))
        feed.flush()
        work.until(r"importing .*1000/")
        work.process.send_signal(signal.SIGINT)
        code, output = work.end()
    assert (code, output) == (130, "")
    assert "Traceback" not in work.shown
    resume = re.search(r"--resume (import-\w+:1001)", work.shown)
    assert resume, work.shown
    # The first line of a file, and what did not go in.
    rest = tmp_path / "rest"
    first = '{"queue": {"queue": "queue:x", "options": {"volatile": true}}}\n'
    rest.write_text(
        first + "".join(f'{{"message": {{"data": {number}}}}}\n' for number in range(1_200))
    )
    more = ("--to", "broken", "--partial", "--resume", resume[1])
    again = node.run_here("queue", "import", str(rest), *more)
    assert again.returncode == 0, again.stderr
    shown = node.run_here("queue", "show", "broken", "--json")
    assert json.loads(shown.stdout)["depth"] == 1_200


def test_an_export_that_is_interrupted_leaves_no_file(
    node: Served, lines: Path, tmp_path: Path
) -> None:
    assert node.run_here("queue", "import", str(lines), "--to", "left").returncode == 0
    file = tmp_path / "out"
    with terminal(node, "export", "left", "--out", str(file)) as work:
        work.until("exporting")
        work.process.send_signal(signal.SIGINT)
        code, _ = work.end()
    # It may have been done just before.
    assert (code, file.exists()) in ((130, False), (0, True))
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * file.exists()
    assert "Traceback" not in work.shown
    # The cursor is there again.
    assert work.shown.rfind("\x1b[?25h") >= work.shown.rfind("\x1b[?25l")
