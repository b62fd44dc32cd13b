"""Memory: what a connection that does nothing costs a server."""

from __future__ import annotations

import resource

from benchmarks.bench import JSON, PACKED, SUBJECTS, Bench, Subject
from benchmarks.figure import Promise, Table, figure

_CONNECTIONS = 15_000
_CONNECTIONS_QUICK = 500
_UNDER_WAY = 64
# Twice Chappe's heartbeat and some: every session has been asked for a sign of life by then.
_REST_S = 12.0
_REST_PEER_S = 3.0
_SPARE_DESCRIPTORS = 500
_KB = 1024
_PROMISES = {
    PACKED: Promise("resident kB per idle connection, packed on TCP,", 3.0, at_most=True),
    JSON: Promise("resident kB per idle connection, WebSocket,", 9.0, 6.0, at_most=True),
}


class Memory:
    """Measures resident memory per idle connection, each server fresh."""

    name = "memory"

    def steps(self, bench: Bench) -> int:
        return len(bench.present())

    def measure(self, bench: Bench) -> list[Table]:
        connections = _CONNECTIONS_QUICK if bench.quick else _affordable()
        table = Table(
            f"{connections:,} idle connections",
            "Growth of the server's resident memory (proportional set size) divided by the "
            "connections, in kB of 1,024 bytes. Each has introduced itself and answers "
            "heartbeats; no compression. Chappe's can be reached by their address; the peers' "
            "have subscribed to nothing. One fresh server per line.",
            ["server", "kB per connection", "server before, MB", "server after, MB"],
        )
        for subject in bench.present(SUBJECTS):
            bench.advance(f"idle connections: {subject.label}")
            before, after = _hold(bench, subject, connections)
            each = figure([(after - before) / connections / _KB])
            megabytes = [f"{size / _KB**2:.1f}" for size in (before, after)]
            table.rows.append([subject.label, each.show(), *megabytes])
            if subject in _PROMISES:
                table.verdicts.append(_PROMISES[subject].judge(each))
        return [table]


def _hold(bench: Bench, subject: Subject, connections: int) -> tuple[int, int]:
    server = bench.recipes[subject.server].start()
    try:
        before = server.resident_bytes()
        with bench.load.idle(server, subject.protocol, connections, _UNDER_WAY):
            bench.rest(_REST_S if subject.ours else _REST_PEER_S)
            return before, server.resident_bytes()
    finally:
        server.stop()


def _affordable() -> int:
    """As many connections as the limit on descriptors allows a client and a server each."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_CONNECTIONS, soft - _SPARE_DESCRIPTORS)
