"""`chappe rooms up` on a machine of its own, for stories of rooms over many machines."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from chappe.client import connect

from .namespaces import Machine, datagrams_overrun
from .process import COMMAND, NodeProcess
from .rooms_layout import OPTIONS
from .trio import PATIENCE_S, First, until


class RoomsUp(NodeProcess):
    """A layout by one command, whose processes are children of it."""

    def __init__(self, machine: Machine, folder: Path, *flags: str) -> None:
        self.outside = machine
        self._flags = flags
        super().__init__(folder, "[events]\nenabled = false\n")

    def start(self) -> None:
        self._command = [COMMAND, "rooms", "up", *self._command[2:], *self._flags]
        with self.outside.inside():
            super().start()
        self.ready: dict[str, Any] = json.loads(self.first_line.removeprefix("ready "))

    def client(self, name: str, at: int, *others: int) -> Any:
        """Somebody at a gateway; one that knows others goes there when this one is gone."""
        urls = [self.ready["gateways"][each]["websocket"] for each in (at, *others)]
        return connect(urls, as_=f"user:{name}", options=OPTIONS, rng=First())

    def partitions(self) -> int:
        """How many there are, as the first gateway knows."""
        return int(self._metric(self.ready["http"], "chappe_rooms_partition_num"))

    def double(self) -> dict[str, Any]:
        """Have twice as many partitions."""
        with self.outside.inside():
            done = subprocess.run(
                [COMMAND, "rooms", "double", "--data", str(self.data), "--yes", "--json"],
                capture_output=True,
                text=True,
                timeout=3 * PATIENCE_S,
                check=False,
            )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.log()}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def overrun(self) -> int:
        """Datagrams that came faster than processes took them."""
        return datagrams_overrun(self.outside)

    async def whole(self) -> None:
        """Wait until every proxy can serve every partition."""
        processes: dict[str, dict[str, str]] = self.ready["processes"]
        proxies = [one["http"] for name, one in processes.items() if name.startswith("proxy")]

        def served() -> bool:
            numbers = {self._metric(http, "chappe_rooms_served") for http in proxies}
            return numbers == {self.partitions()}

        await until(served, "every partition is served")

    def _metric(self, http: str, name: str) -> float:
        """The sum of a metric that one of the processes tells of itself."""
        parts = urlsplit(http)
        with (
            self.outside.inside(),
            closing(HTTPConnection(parts.hostname or "", parts.port, timeout=30)) as connection,
        ):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        families = text_string_to_metric_families(text)
        found = {s.value for family in families for s in family.samples if s.name == name}
        return max(found, default=0.0)
