"""Counts of all workers: each sample once, labelled; who is missing is said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from chappe.node import gathering
from chappe.node.gathering import SOCKET, Gathering
from chappe.node.unix import listen
from tests.loop import on_loop


def counts(sessions: float, sent: float) -> list[Metric]:
    messages = CounterMetricFamily("chappe_messages", "Messages taken", labels=["op"])
    messages.add_metric(["send"], sent)
    return [GaugeMetricFamily("chappe_sessions", "Sessions", value=sessions), messages]


def samples(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    found = [sample for family in families for sample in family.samples]
    named = {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for s in found}
    assert len(named) == len(found)
    return named


def folders_of(tmp_path: Path, *names: str) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in names}
    for folder in folders.values():
        folder.mkdir()
    return folders


@on_loop
async def test_each_worker_tells_what_all_of_them_have_counted(tmp_path: Path) -> None:
    folders = folders_of(tmp_path, "w1", "w2")
    one, two = Gathering("w1", folders), Gathering("w2", folders)
    await one.start(lambda: counts(1, 10))
    await two.start(lambda: counts(2, 20))
    expected = {
        ("chappe_worker_up", "w1"): 1.0,
        ("chappe_worker_up", "w2"): 1.0,
        ("chappe_sessions", "w1"): 1.0,
        ("chappe_sessions", "w2"): 2.0,
        ("chappe_messages_total", "send", "w1"): 10.0,
        ("chappe_messages_total", "send", "w2"): 20.0,
    }
    assert samples(await one.gather(counts(1, 10))) == expected
    families = await two.gather(counts(2, 20))
    assert samples(families) == expected
    # A family must not appear twice, or the scrape as a whole is refused.
    assert len({family.name for family in families}) == len(families)
    assert {family.name: family.type for family in families}["chappe_messages"] == "counter"
    one.stop()
    two.stop()


@on_loop
async def test_who_is_not_there_hangs_or_talks_nonsense_is_down_and_delays_nobody(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(gathering, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(gathering, "COUNTS_BYTES_MAX", 1000)
    folders = folders_of(tmp_path, "here", "absent", "hangs", "nonsense", "endless")

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xc1")
        writer.close()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x90" * 5000)
        writer.close()

    hanging = listen(folders["hangs"] / SOCKET)
    servers = [
        await asyncio.start_unix_server(talk, sock=listen(folders[name] / SOCKET))
        for name, talk in (("nonsense", nonsense), ("endless", endless))
    ]
    found = samples(await Gathering("here", folders).gather(counts(1, 1)))
    assert [found["chappe_worker_up", name] for name in folders] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert found["chappe_sessions", "here"] == 1.0
    hanging.close()
    for server in servers:
        server.close()
