"""Instructions: how many a node executes for a delivery, counted one by one.

Clocks tell of a few per cent nothing on a machine that others use. How many instructions a process
executes for the same work is the same whoever else is there, to a few in a thousand. A node runs
under Valgrind for that, some fifty times as slow, and does its work in lockstep (lockstep.py).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lockstep import Crew, Drill
from benchmarks.server import Server, ServerError, start_chappe
from benchmarks.switched import OFF, ON

_CONTROL = "callgrind_control"
_ANSWER_S = 60.0
# A signal is taken when the node comes to it.
_SWITCH_S = 0.5
_OF_A_THREAD = re.compile(r"^ +Th +\d+ +([\d,]+)", re.MULTILINE)


def can_count() -> bool:
    """Whether there is something to count with."""
    return shutil.which("valgrind") is not None and shutil.which(_CONTROL) is not None


def start_counted(command: Sequence[str], data: Path) -> Server:
    """Start a node that can be switched (switched.py), and whose instructions are counted."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-instr=no"]
    out = f"--callgrind-out-file={data.parent / 'callgrind.out'}"
    server = start_chappe(" ".join([*valgrind, out, *command]), data, events=True)
    _control(server, "--instr=on")
    return server


def switched_counts(server: Server, drill: Drill, messages: int, turns: int) -> tuple[float, float]:
    """Let it take so many turns either way; how many instructions a delivery took, off and on."""
    rounds = drill.rounds(messages)
    spent: dict[signal.Signals, list[int]] = {OFF: [], ON: []}
    crew = Crew(server, drill)
    try:
        for turn in range(-2, 2 * turns):
            # Off, on, on, off; and before that each once, so that nothing is done for the first
            # time in one of the ways only.
            way = ON if turn % 4 in (1, 2) else OFF
            os.kill(server.process.pid, way)
            before = _executed(server)
            crew.turn(rounds)
            if turn >= 0:
                spent[way].append(_executed(server) - before)
    finally:
        crew.close()
    server.settle()
    # A turn has one round more, that it begins with.
    deliveries = (rounds + 1) * drill.deliveries
    off, on = (sum(each) / len(each) / deliveries for each in spent.values())
    return off, on


def _executed(server: Server) -> int:
    """How many instructions all threads have executed; the node, which was stopped, has taken all
    signals by then, and is stopped again."""
    pid = server.process.pid
    os.kill(pid, signal.SIGCONT)
    time.sleep(_SWITCH_S)
    said = _control(server, "-e")
    os.kill(pid, signal.SIGSTOP)
    counts = [int(count.replace(",", "")) for count in _OF_A_THREAD.findall(said)]
    if not counts:
        raise ServerError(f"{_CONTROL} says nothing that can be read: {said}")
    return sum(counts)


def _control(server: Server, *words: str) -> str:
    pid = str(server.process.pid)
    done = subprocess.run(
        [_CONTROL, *words, pid], capture_output=True, text=True, timeout=_ANSWER_S, check=False
    )
    if done.returncode:
        raise ServerError(f"{_CONTROL} {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout
