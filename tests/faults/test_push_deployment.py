"""The example deployment of push as it ships: under supervisor, behind nginx, on Redis (P14)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.process import environment, run, run_here, started
from tests.node.certificate import make_certificate
from tests.processes import kill, read_line
from tests.servers import RedisServer, free_port, missing

DEPLOYMENT = Path(__file__).parents[2] / "examples" / "push-deployment"
FILES = ("chappe.toml", "supervisord.conf", "nginx.conf")
CHAPPE = str(Path(sys.executable).with_name("chappe"))
# Where those of the example tell how they are.
COMETS = ("7431", "7432")
COUNT = 30
# Longer than anything here takes on a busy machine.
WAIT_S = 60.0


class Deployment:
    """The files of the example, with the places and ports of this test, and what runs of them."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.folder = folder
        for name in ("etc", "log", "run", "lib"):
            (folder / name).mkdir()
        for name in ("cluster.secret", "main.key"):
            assert run("token", "key", str(folder / "etc" / name)).returncode == 0
        self.ca, _ = make_certificate(folder / "etc")
        self._ports: dict[str, int] = {}
        for name in FILES:
            text = (DEPLOYMENT / name).read_text()
            (folder / "etc" / name).write_text(self._here(text, redis))
        self.http = f"https://127.0.0.1:{self._port('443')}"
        self.token = folder / "token"
        key = str(folder / "etc" / "main.key")
        made = run("token", "create", "--key-file", key, "--as", "user:ops", "--admin", "*")
        self.token.write_text(made.stdout)

    def _port(self, of_the_example: str) -> int:
        return self._ports.setdefault(of_the_example, free_port())

    def _here(self, text: str, redis: RedisServer) -> str:
        for theirs, mine in (
            ("redis://10.0.0.11:6379", redis.url),
            ("10.0.0.21", "127.0.0.1"),
            ("push.example.org", "127.0.0.1"),
            ("allow 10.0.0.0/8", "allow 127.0.0.0/8"),
            ("/opt/chappe/bin/chappe", CHAPPE),
            ("/etc/chappe", f"{self.folder}/etc"),
            ("/var/lib/chappe", f"{self.folder}/lib"),
            ("/var/log/chappe", f"{self.folder}/log"),
            ("/var/log/nginx", f"{self.folder}/log"),
            ("/run/", f"{self.folder}/run/"),
            ("/run/chappe/", "/run/"),
            # Limits of this machine are what they are.
            ("minfds=200000", "minfds=1024"),
            ("worker_rlimit_nofile 400000;", ""),
            ("worker_connections 200000", "worker_connections 512"),
            ("worker_processes auto", "worker_processes 1"),
        ):
            text = text.replace(theirs, mine)
        port = r"(?<![\d.])(74[1-5]\d|443)(?=[\s;\"])"
        return re.sub(port, lambda found: str(self._port(found.group())), text)

    @contextmanager
    def running(self) -> Iterator[None]:
        etc = self.folder / "etc"
        supervisor = ["supervisord", "-n", "-c", str(etc / "supervisord.conf")]
        nginx = ["nginx", "-c", str(etc / "nginx.conf")]
        with self._process(*supervisor), self._process(*nginx, "-g", "daemon off;"):
            self.wait("was not ready", self._is_ready)
            yield

    @contextmanager
    def _process(self, *command: str) -> Iterator[None]:
        log = (self.folder / "log" / f"{command[0]}.out").open("wb")
        with log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(), cwd=self.folder
            )
        try:
            yield
        finally:
            # Not killed at once: it has others to end.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(WAIT_S)
            kill(process)

    def _is_ready(self) -> bool:
        """Whether devices of an app would be let in: there is a web, an admin and both comets."""
        asked = self.push("app", "list")
        return asked.returncode == 0 and all(
            "ready {" in file.read_text() if file.exists() else False
            for file in (self.folder / "log" / f"comet-{n}.log" for n in (1, 2))
        )

    def push(self, *arguments: str) -> Any:
        common = ("--http", self.http, "--ca", str(self.ca), "--token-file", str(self.token))
        return run_here("push", *arguments, *common, "--json")

    def answer(self, *arguments: str) -> dict[str, Any]:
        done = self.push(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}\n{self.logs()}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def wait(self, reason: str, look: Any) -> None:
        deadline = time.monotonic() + WAIT_S
        while not look():
            assert time.monotonic() < deadline, f"{reason}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"{each.name}:\n{each.read_text()[-1500:]}" for each in files)

    def sessions(self, port: str) -> int:
        """How many devices the comet with this HTTP port of the example has; 0 if it is away."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port(port)}/metrics") as answer:
                text = answer.read().decode()
        except OSError:
            return 0
        return int(float(re.findall(r"^chappe_push_clients (\S+)", text, re.MULTILINE)[0]))

    def control(self, *words: str) -> str:
        conf = str(self.folder / "etc" / "supervisord.conf")
        command = ["supervisorctl", "-c", conf, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    for program, package in (("nginx", "nginx"), ("supervisord", "supervisor")):
        if shutil.which(program) is None:
            raise missing(package)
    redis = RedisServer(tmp_path / "redis")
    try:
        made = Deployment(tmp_path, redis)
        with made.running():
            yield made
    finally:
        redis.kill()


def test_the_example_deployment_runs_as_it_ships(deployment: Deployment) -> None:  # P1, P11, P14
    secret, log = deployment.folder / "secret", deployment.folder / "log" / "fleet"
    key = deployment.answer("app", "create", "news", "--secret-to", str(secret))["key"]
    where = ("--app", key, "--http", deployment.http, "--ca", str(deployment.ca))
    fleet = ("push", "devices", *where, "--secret-file", str(secret), "--json")
    flags = ("--count", str(COUNT), "--topics", "all", "--notes", str(3 * COUNT))
    with started(*fleet, *flags, log=log) as process:
        assert process.stdout is not None
        assert '"phase": "logged in"' in read_line(process.stdout), deployment.logs()
        assert all(map(deployment.sessions, COMETS))
        assert send(deployment, key)["sent"] == COUNT
        # One that dies is replaced; its devices come back to it, or to the other.
        os.kill(int(deployment.control("pid", "comet-1")), signal.SIGKILL)
        deployment.wait("devices did not come back", lambda: all_are_there(deployment))
        assert send(deployment, key)["aimed"] == COUNT
        # One that is stopped sends them to the other, which has all of them then.
        assert "stopped" in deployment.control("stop", "comet-2")
        deployment.wait("devices did not move", lambda: all_are_there(deployment))
        assert deployment.sessions(COMETS[0]) == COUNT
        send(deployment, key)
        told = json.loads(read_line(process.stdout))
        # Some may have met an error while a comet was gone.
        assert process.wait(WAIT_S) == bool(told["errors"])
    assert (told["phase"], told["notes"], told["logged_in"]) == ("end", 3 * COUNT, COUNT)


def send(deployment: Deployment, key: str) -> dict[str, Any]:
    return deployment.answer("send", "--topic", "all", "--data", "x", "--app", key)


def all_are_there(deployment: Deployment) -> bool:
    """Whether comets that live have all devices: each process tells how many it has."""
    return sum(map(deployment.sessions, COMETS)) == COUNT
