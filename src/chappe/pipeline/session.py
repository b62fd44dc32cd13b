"""The session of Spark that a run uses: on this machine, on a cluster, or through Connect."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from chappe.clock import SystemClock
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.address import hide, places, shown
from chappe.pipeline.java import check_java, start_java

# A Spark that is there takes a connection at once; its own client would try for minutes.
_REACH_S: Final = 10.0
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_MEMORY: Final = re.compile(r"([1-9]\d*)([mg])")
# With how many cores and, maybe, how often a task is tried; or where a cluster is.
_MASTER: Final = re.compile(r"local(\[(\*|[1-9]\d*)(,\d+)?\])?$|spark://.|yarn$|k8s://.")
# Spark itself refuses to start with less than 450 MB, at length.
_MEMORY_MIN_MB: Final = 512


class SparkUnreachable(ChappeError):
    """No Spark answers where one was said to be."""


class SparkFailed(ChappeError):
    """Spark was there, and could not do what it was asked."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Which Spark to use. Raises ConfigError for options that make no sense."""

    # `local[N]`, `spark://host:port`: whatever Spark calls a master.
    master: str | None = None
    # `sc://host:port`: a server of Spark Connect; no Java is needed here then.
    remote: str | None = None
    # Of the process that plans, and on this machine also computes: enough for ten million events.
    memory: str = "2g"

    def __post_init__(self) -> None:
        if self.master and self.remote:
            raise ConfigError("--master and --remote: only one of them says where Spark is")
        if self.master and not _MASTER.match(self.master):
            raise ConfigError(
                f"--master: {shown(self.master)} is none of local, local[N], local[*], "
                "spark://HOST:PORT, yarn, k8s://URL"
            )
        if self.remote and not self.remote.startswith(("sc://", "local")):
            raise ConfigError(f"--remote: {shown(self.remote)} does not start with sc://")
        size = _MEMORY.fullmatch(self.memory)
        if size is None:
            raise ConfigError(f"--memory: {self.memory} is not a size such as 800m or 2g")
        if int(size[1]) * (1024 if size[2] == "g" else 1) < _MEMORY_MIN_MB:
            raise ConfigError(
                f"--memory: {self.memory} is less than the {_MEMORY_MIN_MB}m it needs"
            )

    @property
    def local(self) -> bool:
        """Whether all of Spark is one process here."""
        return not self.remote and (self.master or "local").startswith("local")


@contextmanager
def session(
    options: SessionOptions,
    progress: Callable[[str, float], None] = lambda _stage, _seconds: None,
) -> Iterator[SparkSession]:
    """A session that ends with the block.

    Raises ConfigError without Java, SparkUnreachable, and SparkFailed for whatever Spark raises in
    the block.
    """
    clock = SystemClock()
    begun = clock.monotonic()
    needs_java = not (options.remote or "").startswith("sc://")
    if needs_java:
        check_java()
    url = options.remote or options.master or ""
    _check_reachable(url)
    # Workers of Spark must be the Python that everything is installed in.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with _quiet():
        try:
            with _same_interrupt():
                spark = _start(options)
        except (PySparkException, Py4JError) as error:
            raise SparkFailed(f"Spark did not start: {hide(told(error), url)}") from error
        progress("start of Spark", clock.monotonic() - begun)
        try:
            try:
                yield spark
            except KeyboardInterrupt:
                if not options.remote:
                    # In another thread, as this one was in the midst of talking to Java.
                    other = threading.Thread(target=_interrupt, args=(spark,))
                    other.start()
                    other.join()
                raise
            finally:
                with warnings.catch_warnings():
                    # Listeners of a stream over Connect that was interrupted are gone with it.
                    warnings.simplefilter("ignore", UserWarning)
                    spark.stop()
        except (PySparkException, Py4JError) as error:
            problem = hide(told(error), url)
            raise SparkFailed(f"Spark failed: {problem}; the next run goes on") from error


def _interrupt(spark: SparkSession) -> None:
    """End what is under way, which would say at length that it ends in the middle."""
    with suppress(PySparkException, Py4JError):
        spark.sparkContext.setLogLevel("OFF")
        for query in spark.streams.active:
            query.stop()


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Keep what Ctrl-C does: Spark's own handler would talk to Java in the midst of talking to it;
    that jobs end is seen to by the end of the session."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the bridge to Java not log what it raises as well; at Ctrl-C it shows where it was."""
    root, bridge = logging.getLogger(), logging.getLogger("py4j")
    before = bridge.level
    root.addFilter(_of_others)
    bridge.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(_of_others)
        bridge.setLevel(before)


def _of_others(record: logging.LogRecord) -> bool:
    """Whether a record is not of the bridge's, which logs some as if they were nobody's."""
    return "py4j" not in Path(record.pathname).parts


def _start(options: SessionOptions) -> SparkSession:
    settings = _settings(options)
    if options.remote:
        builder = SparkSession.builder.remote(options.remote)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    conf = SparkConf().setAll(list(settings.items())).setMaster(options.master or "local[*]")
    # There is one Java for a process, which outlives a session.
    if SparkContext._gateway is None:
        SparkContext(conf=conf, gateway=start_java(conf))
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _settings(options: SessionOptions) -> dict[str, str]:
    """What a session is told; a server of Connect has settings of its own for the rest."""
    settings = {"spark.app.name": "chappe pipeline", "spark.sql.session.timeZone": "UTC"}
    if options.remote:
        return settings
    settings |= {
        "spark.driver.memory": options.memory,
        "spark.python.daemon.module": "chappe.pipeline.daemon",
        # A run tells its progress itself, and needs no port.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A batch that is in the middle of something else than Spark's work is not waited for.
        "spark.sql.streaming.stopTimeout": "10s",
    }
    if "SPARK_CONF_DIR" not in os.environ:
        # Unless somebody has settings of their own, Spark says what went wrong and nothing else.
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile=file:{_LOGGING}"
    if options.local:
        # Nobody else has to reach it, and the machine's own name may lead nowhere.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _check_reachable(url: str) -> None:
    """Raise SparkUnreachable if nobody listens there; of several masters one is enough."""
    problems = []
    for host, port in list(places(url)):
        try:
            socket.create_connection((host, port), _REACH_S).close()
        except OSError as error:
            problems.append(f"{host}:{port} ({error})")
        else:
            return
    if problems:
        raise SparkUnreachable(f"no Spark answers at {', '.join(problems)}")


def told(error: Exception) -> str:
    """What an error says first; of one of Java's, what Java says."""
    first, _, rest = str(error).strip().partition("\n")
    if first.startswith("An error occurred while calling") and rest:
        first = rest.lstrip(": ").partition("\n")[0]
    return first or type(error).__name__
