"""Depth: what many messages that wait cost a node in memory, and how soon it is back with them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

from benchmarks.bench import PACKED, Bench
from benchmarks.figure import Promise, Table, figure
from benchmarks.queues import PAYLOAD_BYTES, new_name
from benchmarks.server import Server, ServerError, start_chappe

# As many as make a log of 1 GB, and as many as must not cost memory.
_COUNTS = (0, 5_500_000, 10_000_000)
_COUNTS_QUICK = (0, 20_000, 40_000)
_WINDOW = 512
_MB = 1024**2
_GB = 1e9
_LOG_GB = 1.0
_BACK = Promise(f"seconds to ready with a log of {_LOG_GB:g} GB", 5.0, at_most=True)
_MEMORY = Promise(f"resident MB with {_COUNTS[-1]:,} messages waiting,", 300.0, at_most=True)


class Depth:
    """Fills a queue step by step, and kills and starts the node at each."""

    name = "depth"

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = counts

    def steps(self, bench: Bench) -> int:
        return len(self._steps(bench))

    def measure(self, bench: Bench) -> list[Table]:
        table = Table(
            "Queues: many messages waiting",
            f"{PAYLOAD_BYTES}-byte messages in one queue that nobody takes from, sent with "
            "flush `never`. The node is killed with each count, and started again: seconds until "
            "its `ready` line, when it serves the queue, and its resident memory then.",
            ["messages", "log, GB", "MB", "seconds to ready", "MB then"],
        )
        with tempfile.TemporaryDirectory(prefix="chappe-depth-") as folder:
            _fill_and_start(bench, Path(folder), self._steps(bench), table)
        return [table]

    def _steps(self, bench: Bench) -> Sequence[int]:
        return self._counts or (_COUNTS_QUICK if bench.quick else _COUNTS)


def _fill_and_start(bench: Bench, folder: Path, counts: Sequence[int], table: Table) -> None:
    config, data, name = folder / "never.toml", folder / "data", new_name()
    config.write_text('[journal]\nflush = "never"\n')
    data.mkdir()
    command = f"{bench.chappe} --config {config}"
    server = start_chappe(command, data)
    try:
        held = 0
        for count in counts:
            bench.advance(f"depth: {count:,} messages")
            if count:
                options = (PAYLOAD_BYTES, _WINDOW, count - held)
                sent = bench.load.queue(server, PACKED.protocol, name, "fill", *options)
                held += int(sent["messages"])
            filled = server.resident_bytes() / _MB
            server.kill()
            size = sum(f.stat().st_size for f in data.rglob("*.log")) / _GB
            server = start_chappe(command, data)
            _check(server, name, held)
            back = server.resident_bytes() / _MB
            row = [f"{held:,}", f"{size:.2f}", f"{filled:.0f}", f"{server.ready_s:.2f}"]
            table.rows.append([*row, f"{back:.0f}"])
            if size >= _LOG_GB and not table.verdicts:
                table.verdicts.append(_BACK.judge(figure([server.ready_s])))
            if count == _COUNTS[-1]:
                table.verdicts.append(_MEMORY.judge(figure([max(filled, back)])))
    finally:
        server.stop()


def _check(server: Server, name: str, count: int) -> None:
    """See that all are there: a node that forgets is soon ready."""
    with urlopen(f"http://127.0.0.1:{server.ports['http']}/v1/queues?as=user:me") as answer:
        depths = {one["queue"]: one["depth"] for one in json.load(answer)["queues"]}
    if depths.get(f"queue:{name}", 0) != count:
        raise ServerError(f"of {count:,} messages {depths} are there")
