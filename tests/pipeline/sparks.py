"""Sparks of tests' own, from the package that pip installs: a cluster, a server of Connect.

They are gone when the one who started them is, however that happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

import chappe.pipeline
from tests.processes import kill
from tests.servers import free_port

Process = subprocess.Popen[bytes]
HOME = Path(pyspark.__file__).parent
_LOGGING = Path(chappe.pipeline.__file__).with_name("log4j2.properties")
_START_S = 240.0

# A test's few rows are done before Java has compiled anything well: compile quickly. To compile a
# query takes longer, too, than to interpret it.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": f"{JAVA} -Dlog4j2.configurationFile=file:{_LOGGING}",
    "spark.executor.extraJavaOptions": JAVA,
    # As sessions of `chappe pipeline` have it.
    "spark.python.daemon.module": "chappe.pipeline.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def environment(folder: Path) -> dict[str, str]:
    """What makes any Spark that is started with it one for small tests."""
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A standalone cluster: a master, and workers with `work-N` for a folder; the master's URL."""
    launch = str(HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    at = ("--host", "127.0.0.1", "--webui-port", "0")
    port = str(free_port())
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = f"{deploy}.master.Master"
        process = _start(stack, folder, launch, master, *at, "--port", port)
        _wait_until_said(process, folder, "I have been elected leader")
        for n in range(1, workers + 1):
            size = ("--cores", "1", "--memory", "512m", "--work-dir", str(folder / f"work-{n}"))
            worker = f"{deploy}.worker.Worker"
            process = _start(stack, folder, launch, worker, *at, *size, url)
        _wait_until_said(process, folder, "Successfully registered with master", workers)
        yield url


def connect_settings() -> dict[str, str]:
    """What makes a session a server of Spark Connect, at a port of its own."""
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(free_port()),
    }


def _start(stack: ExitStack, folder: Path, *command: str) -> Process:
    """Start a process of Spark's that ends with the stack, or with this process."""
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--", *command],
            env=os.environ | environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    stack.callback(kill, process)
    return process


def _wait_until_said(process: Process, folder: Path, word: str, times: int = 1) -> None:
    deadline = time.monotonic() + _START_S
    log = folder / "spark.log"
    while log.read_text().count(word) < times:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)  # a log file gives no sign when it grows
