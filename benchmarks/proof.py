"""`make proof`: every proof at its full count, one for each core, written down in PROOF.md.

A proof that has passed at this commit is not run again: stop it, start it again, and it goes on
where it was. With words, as in `make proof ONLY=rooms`, only those are run whose names have one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[1]
STATE = ROOT / ".proof.json"
REPORT = ROOT / "benchmarks" / "PROOF.md"
# A seed that fails is printed with the command that replays it.
PROOFS = {
    "hub invariants from seeds": "tests/simulation/test_hub.py",
    "planted faults are noticed": "tests/simulation/test_invariants.py",
    "SDK fleets from seeds": "tests/simulation/test_client.py",
    "clusters from seeds": "tests/simulation/test_cluster.py",
    "faults planted in clusters are noticed": "tests/simulation/test_cluster_invariants.py",
    "rooms from seeds": "tests/simulation/test_rooms.py",
    "faults planted in rooms are noticed": "tests/simulation/test_rooms_invariants.py",
    "queues on a crashing disk from seeds": "tests/simulation/test_queue.py",
    "faults planted in queues are noticed": "tests/simulation/test_queue_invariants.py",
    "journals on a crashing disk from seeds": "tests/simulation/test_journal.py",
    "replicas from seeds, and faults planted in them": "tests/queues/replication",
    "client alone from seeds": "tests/client/test_simulated.py",
    "clients of services and queues from seeds": "tests/client/test_simulated_application.py",
    "meshes of links from seeds": "tests/cluster/test_mesh_simulated.py",
    "decoders against mutated bytes": "tests/fuzzing",
    "properties of the wire": "tests/wire",
    "bad input, floods, exhaustion, nodes that die": "tests/faults",
    "queues: the power is cut": "tests/faults/test_power_cut.py",
    "queues: nodes are killed": "tests/faults/test_queue_killed.py",
    "queues: disks fail, are slow, are full": "tests/faults/test_disk.py",
    "queues: logs are cut and damaged": "tests/faults/test_damage.py",
    "queues: masters are killed, paused, cut off": "tests/faults/test_replication.py",
    "rooms: machines that lose datagrams, die, sleep": "tests/faults/test_rooms.py",
    "rooms: doubled under load": "tests/faults/test_rooms_growth.py",
    "rooms: two systems that share routers": "tests/faults/test_rooms_systems.py",
    "rooms: three machines as the document sets them up": "tests/faults/test_rooms_machines.py",
    "rooms: layouts that one command starts": "tests/cli/test_rooms.py",
    "push: processes, devices and Redis die, stop, sleep": "tests/faults/test_push.py",
    "keys: replicas are killed, sleep, Redis forgets": "tests/faults/test_bus.py",
    "push: apps are nothing to each other": "tests/edge/http/test_http_push_tenants.py",
    "one suite on every edge": "tests/contract",
    "HTTP requests made from the description": "tests/edge/http/test_http_description.py",
    "tables: each step is what a plain reading says": "tests/pipeline",
    "tables: runs that are interrupted anywhere": "tests/pipeline/test_increments.py",
    "tables: wherever Spark is, and killed there": "tests/pipeline/test_places.py",
    "tables: a cluster whose nodes are killed": "tests/pipeline/test_live.py",
}


@dataclass(frozen=True)
class Outcome:
    """How one proof ended."""

    commit: str
    passed: bool
    summary: str
    seconds: float
    # What was measured on the way: of what, and the figures.
    figures: list[tuple[str, dict[str, float | str | None]]] = field(default_factory=list)


def main() -> int:
    """Run what has not passed at this commit; return 0 when all that were asked for have."""
    console = Console()
    words = sys.argv[1:]
    asked = [name for name in PROOFS if not words or any(word in name for word in words)]
    if not asked:
        console.print(f"[red]no proof is called so[/], but {', '.join(PROOFS)}")
        return 2
    commit = _commit()
    outcomes = _load()
    running: dict[Future[Outcome], str] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as cores:
        for name in asked:
            known = outcomes.get(name)
            if known and known.passed and known.commit == commit and not commit.endswith("+"):
                console.print(f"[green]passed before[/] {name}")
            else:
                running[cores.submit(_run, PROOFS[name], commit)] = name
        with console.status(f"{len(running)} proofs to run"):
            for done in as_completed(running):
                name = running[done]
                outcomes[name] = done.result()
                mark = "[green]passed[/]" if outcomes[name].passed else "[bold red]FAILED[/]"
                console.print(f"{mark} {name}: {outcomes[name].summary}")
                STATE.write_text(json.dumps({n: asdict(o) for n, o in outcomes.items()}, indent=1))
                _write(outcomes)
    return 0 if all(outcomes[name].passed for name in asked) else 1


def _run(path: str, commit: str) -> Outcome:
    begin = time.monotonic()
    # What has a proof of its own is not proved twice.
    others = [f"--ignore={other}" for other in PROOFS.values() if Path(path) in Path(other).parents]
    with tempfile.NamedTemporaryFile("r") as file:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--timeout",
                "3600",
                "-o",
                "faulthandler_timeout=3700",
                path,
                *others,
            ],
            cwd=ROOT,
            env=os.environ | {"CHAPPE_PROOF": "full", "CHAPPE_FIGURES": file.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        told = [json.loads(line) for line in file]
    if done.returncode:
        sys.stdout.write(done.stdout)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
    summary = re.sub(r" in [\d.]+s.*", "", last.strip("= "))
    figures = [(one["what"], one["figures"]) for one in told]
    seconds = round(time.monotonic() - begin, 1)
    return Outcome(commit, done.returncode == 0, summary, seconds, figures)


def _commit() -> str:
    """The commit under proof; with a plus when the tree has changes on top of it."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "tests", "fuzzing")
    return head + ("+" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _load() -> dict[str, Outcome]:
    if not STATE.exists():
        return {}
    return {name: Outcome(**kept) for name, kept in json.loads(STATE.read_text()).items()}


def _write(outcomes: dict[str, Outcome]) -> None:
    rows = [
        f"| {name} | `{path}` | {'passed' if o.passed else '**failed**'} | {o.summary} "
        f"| {o.seconds:g} s | {o.commit} |"
        for name, path in PROOFS.items()
        if (o := outcomes.get(name))
    ]
    REPORT.write_text(
        "# Proof\n\nWritten by `make proof`: each proof at its full count (`CHAPPE_PROOF=full`). "
        "Seeds are consecutive and fixed\nin the tests named; a failing one prints the command "
        "that replays it. A `+` behind a commit means that\nthe tree had changes on top of it.\n\n"
        "| proof | tests | outcome | count | time | commit |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
        + _figures(outcomes)
    )


def _figures(outcomes: dict[str, Outcome]) -> str:
    rows = [
        f"| {what} | {', '.join(f'{name} {value}' for name, value in figures.items())} |"
        for proof in PROOFS
        if (o := outcomes.get(proof))
        for what, figures in o.figures
    ]
    if not rows:
        return ""
    return "\n## Figures\n\nTimes in seconds unless their names say otherwise.\n\n" + (
        "| of | measured |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
