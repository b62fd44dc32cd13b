"""A node as its users have it: a process of its own, seen through sockets, signals and files."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.processes import END_S, kill, read_line

COMMAND = str(Path(sys.executable).with_name("chappe"))
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT
# A node that logs one of these met something it did not expect.
_ALARMS = ("Traceback", "Task exception", "exception was never retrieved", "Warning:")
# But for this: picows had given up on somebody's handshake when the node ended.
_UNFINISHED = (
    "Future exception was never retrieved\nfuture: <Future finished "
    "exception=TimeoutError('websocket handshake timeout')>\n"
)


def limited(descriptors: int | None = None) -> list[str]:
    """What to put before a command to give it that many descriptors, or all that it may have.

    A shell does it: Python code between fork and exec may hang for ever, as other threads are
    busy then.
    """
    limit = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return ["/bin/sh", "-c", 'ulimit -Sn "$0" && exec "$@"', str(limit)]


class NodeProcess:
    """`chappe serve` in a folder of its own, on ports of its own."""

    def __init__(
        self, folder: Path, config: str = "", *, dev: bool = True, descriptors: int | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self._config = folder / "node.toml"
        self._config.write_text(config)
        self._stderr = folder / "stderr"
        flags = ["--dev"] if dev else []
        self._command = [COMMAND, "serve", *flags, "--config", str(self._config)]
        self._command += ["--port", "0", "--http-port", "0", "--tcp-port", "0", "--comet-port", "0"]
        self._command += ["--data", str(self.data)]
        self._descriptors = descriptors
        self.start()

    def start(self) -> None:
        """Start it, anew after a death, and wait until it takes traffic."""
        self._told = False
        with self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*limited(self._descriptors), *self._command],
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.first_line = self._ready()
        self.addresses: Mapping[str, str] = json.loads(self.first_line.removeprefix("ready "))

    def _ready(self) -> str:
        assert self._process.stdout is not None
        with ExitStack() as failed:
            failed.callback(self.kill)
            try:
                line = read_line(self._process.stdout)
            except TimeoutError as error:
                line = str(error)
            if not line.startswith("ready "):
                raise AssertionError(f"the node did not start, {line!r}:\n{self.log()}")
            failed.pop_all()
        return line

    def log(self) -> str:
        """What it wrote to standard error."""
        return self._stderr.read_text(errors="replace")

    def resident_bytes(self) -> int:
        """How much of memory it holds."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def terminate(self) -> None:
        """Ask it to drain; do not wait."""
        self._told = True
        self.signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Ask it to drain as somebody at a terminal does; do not wait."""
        self._told = True
        self.signal(signal.SIGINT)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, also when it has just ended: how is for `stop` to find out.

        `Popen.send_signal` would find it out here, and nobody would be told.
        """
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet; `stop` still says how it did."""
        return os.waitid(os.P_PID, self._process.pid, _LOOK) is None

    def kill(self) -> None:
        """End it as a power cut would."""
        try:
            kill(self._process)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node cannot be killed:\n{self.log()}") from None

    def stop(self) -> None:
        """Drain it, and see that it ends well and has nothing to complain about."""
        if self._process.returncode is not None:
            return
        # A test that failed may have left it asleep.
        self.signal(signal.SIGCONT)
        if not self._told:
            self.terminate()
        status = self._reap()
        assert status == 0, f"exit status {status}:\n{self.log()}"
        said = self.log().replace(_UNFINISHED, "")
        alarms = [alarm for alarm in _ALARMS if alarm in said]
        assert not alarms, f"the node complained:\n{self.log()}"

    def _reap(self) -> int:
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node did not stop:\n{self.log()}") from None
        finally:
            self.kill()


class Api:
    """A node's HTTP API over one connection that stays open."""

    def __init__(self, node: NodeProcess, timeout_s: float = 30) -> None:
        parts = urlsplit(node.addresses["http"])
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=timeout_s
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Make a request; return its status and body."""
        self._connection.request(method, path, body, dict(headers or {}))
        response = self._connection.getresponse()
        return response.status, response.read()

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of `/metrics`; 0 for one that nothing has counted yet."""
        _, body = self.request("GET", "/metrics")
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if sample.name == f"chappe_{name}" and sample.labels == labels:
                    return float(sample.value)
        return 0.0

    def held_bytes(self) -> dict[str, int]:
        """How much waits for each address, as the node's administrator sees it."""
        _, body = self.request("GET", "/v1/sessions?limit=1000")
        return {view["address"]: view["held_bytes"] for view in json.loads(body)["sessions"]}

    def close(self) -> None:
        self._connection.close()
