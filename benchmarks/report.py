"""The report: the machine, the servers, every table, and what to keep in mind."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figure import Chart, Table

_NOTES = """\
## How to read this

- Servers and load run on one machine over loopback and share its cores, so rates are lower than on
  two machines, and a rate says as much about the load as about the server. The CPU time of the
  server's processes (`clock_getcpuclockid`) is the figure to compare.
- Closed loops: a sender waits for deliveries before it sends more, so nothing is dropped and nobody
  is measured in overload. The pipelined works give every server the chance to join what goes to one
  connection into one write; one at a time shows what it costs when there is nothing to join.
- The servers take turns within each repetition. Figures are medians, with the smallest and the
  largest in brackets; ratios are taken repetition by repetition.
- The work is the same, what it means is not. Chappe checks rights, stamps each message with an id
  and a time and tells who sent it. NATS, Redis and Mosquitto (quality of service 0) forward the
  payload under its subject. Between pairs a peer has a subject with one subscriber for each.
- The packed form can say several ops in one frame, and the load does: what it writes at once, half
  a window, is one frame. "One op a frame" is the same work from a client that does not.
- JSON deliveries are longer than packed ones by about 60 bytes, and WebSocket frames are unmasked
  on receipt; both are in the figures.
- Two nodes, or two workers, and the load are three busy processes. On a machine with two cores they
  take turns, so a rate there is lower than what the same CPU time gives on a machine with more.
- Queues: every producer, consumer and protocol is the same C program, which writes half a window at
  once and acknowledges together what it read together, each message by itself. A run ends when all
  was delivered and acknowledged, and fails if a message is missing or comes twice. Rates depend on
  the disk: `fdatasync` may take 0.2 ms or 5. JetStream syncs each message on its own, the others
  sync what came together. A message that is done is forgotten by Chappe, RabbitMQ and JetStream (a
  work queue); Redis keeps it in its stream.
- Recording: promises are judged by instructions, which are the same whoever else uses the machine,
  and say nothing of caches; by the clock, beside what a process differs from itself ("nothing"), it
  may look cheaper or dearer by several per cent.
- Rooms: a million deliveries a second are more than two cores can do one by one. All servers join
  what goes to one connection when they fall behind, Redis and Chappe alike, so there a lower CPU
  time and a longer way go together: both are to be read. Ten messages a second show what one
  costs when there is nothing to join. Redis forwards a payload under its subject; Chappe sends it
  by a proxy and a broker, authenticated, in order and once, and knows who is in the room.
- Many rooms: the load is five sessions at a time that wait for their answers, so that nothing is
  told again because an answer was late.
- Push: a note is encrypted for each device and goes out in a write of its own, and so does the
  answer to each acknowledgement, which MQTT does without: most of the CPU time is the kernel's. The
  load is some Python processes that use raw sockets. Its devices all say what a device says; one in
  200 checks signatures and decrypts, too.
- Keys: to write to a socket, and to wake who reads it, is the kernel's work and the same for all;
  one message at a time there is hardly anything else in it. Sixteen at once are one write to each
  session from Chappe, but behind a middleware that wants to see each of them, and sixteen from
  python-socketio. What Redis and the bus take for a message is divided by 500 deliveries.
- One Chappe worker is one Python process on one core. NATS uses all cores: its CPU time is the sum.
"""


def compose(tables: Sequence[Table], versions: Mapping[str, str], *, quick: bool) -> str:
    """The whole report in Markdown."""
    parts = ["# Results\n", _circumstances(versions)]
    if quick:
        parts.append("**A quick run: a fraction of the work, once. Do not quote it.**\n")
    shown: set[Chart] = set()
    for table in tables:
        if table.chart is not None and table.chart not in shown:
            shown.add(table.chart)
            parts.append(table.chart.markdown())
        parts.append(table.markdown())
    return "\n".join([*parts, _NOTES])


def put_in(report: str, tables: Sequence[Table]) -> str:
    """A report with these tables in place of the same ones, or behind all others; each says when
    and of what it was measured, as that is not what the report's head says."""
    head, *sections = re.split(r"^(?=## )", report, flags=re.MULTILINE)
    of_title = {section.partition("\n")[0]: section for section in sections}
    of_title.pop(_NOTES.partition("\n")[0], None)
    shown: set[Chart] = set()
    for table in tables:
        title, _, rest = table.markdown().partition("\n")
        if table.chart is not None and table.chart.whole and table.chart not in shown:
            shown.add(table.chart)
            rest = f"\n{table.chart.markdown()}{rest}"
        of_title[title] = f"{title}\n\n*Measured by itself: {_moment()}.*\n{rest}\n"
    return "".join([head, *of_title.values(), _NOTES])


def _moment() -> str:
    load = f"load average {os.getloadavg()[0]:.2f}"
    return f"{_now()}, commit {_commit()}, {load} in the last minute"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _circumstances(versions: Mapping[str, str]) -> str:
    rows = {
        "made by": f"`{_command()}`",
        "at": _now(),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {_memory()}",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load average": f"{os.getloadavg()[0]:.2f} in the last minute of the run",
    }
    rows |= versions
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines) + "\n"


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


def _commit() -> str:
    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return run.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.[cph]*"
    )
    return f"{commit}, with changes" if changed else commit


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _memory() -> str:
    found = re.search(r"^MemTotal:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return f"{int(found.group(1)) / 1024**2:.0f} GB" if found else "unknown memory"
