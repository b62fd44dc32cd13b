"""What all workers have counted, told by whichever of them is asked.

A scrape of a shared port reaches one worker, and another one the next time: counts that jump to and
fro are of no use. So the one that is reached asks the others, each on a Unix socket in its folder,
and labels every sample with the worker that counted it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from chappe.node.unix import dial, listen

SOCKET = "counts.sock"
# Above what a node can count, whatever its traffic: labels come from small sets.
COUNTS_BYTES_MAX = 4 * 1024 * 1024
# A worker that is slower is left out; a scraper's own patience is about ten seconds.
TIMEOUT_S = 2.0


class Family(msgspec.Struct, array_like=True):
    """A family of samples on its way to another worker."""

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Family])


class Gathering:
    """One worker's part in it: it tells what it has counted, and asks the others."""

    def __init__(self, name: str, folders: Mapping[str, Path]) -> None:
        self._name = name
        self._folders = folders
        self._server: asyncio.Server | None = None

    async def start(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Tell whoever connects what is counted then; raises ConfigError."""

        async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(_encoder.encode([_packed(family) for family in collect()]))
            writer.close()

        listening = listen(self._folders[self._name] / SOCKET)
        self._server = await asyncio.start_unix_server(tell, sock=listening)

    def stop(self) -> None:
        """Tell no more."""
        if self._server is not None:
            self._server.close()

    async def gather(self, own: Iterable[Metric]) -> list[Metric]:
        """Put what the others have counted beside it; who does not answer is down."""
        names = [name for name in self._folders if name != self._name]
        answers = await asyncio.gather(*(self._ask(name) for name in names))
        told = dict(zip(names, answers, strict=True))
        told[self._name] = [_packed(family) for family in own]
        counted = {name: families for name in self._folders if (families := told[name])}
        up = GaugeMetricFamily("chappe_worker_up", "1 for a worker that answers", labels=["worker"])
        for name in self._folders:
            up.add_metric([name], float(name in counted))
        return [up, *_merged(counted)]

    async def _ask(self, name: str) -> list[Family] | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await dial(self._folders[name] / SOCKET)
                try:
                    return _decoder.decode(await _read_all(reader))
                finally:
                    writer.close()
        except (OSError, msgspec.DecodeError):
            return None


def _packed(family: Metric) -> Family:
    samples = [(sample.name, sample.labels, sample.value) for sample in family.samples]
    return Family(family.name, family.documentation, family.type, samples)


def _merged(counted: Mapping[str, list[Family]]) -> Iterable[Metric]:
    """Families of all workers, each once, its samples labelled with who counted them."""
    merged: dict[str, Metric] = {}
    for worker, families in counted.items():
        for name, documentation, kind, samples in map(msgspec.structs.astuple, families):
            metric = merged.setdefault(name, Metric(name, documentation, kind))
            for sample, labels, value in samples:
                metric.add_sample(sample, {**labels, "worker": worker}, value)
    return merged.values()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Read to the end, or as much as is sensible; what is cut off does not decode."""
    parts = []
    left = COUNTS_BYTES_MAX
    while left > 0 and (part := await reader.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
