"""How hard the property tests try: a little in every run, a lot for the proof."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.servers import (
    dns_server,
    redis_cluster,
    redis_server,
    redis_trio,
    zookeeper_server,
)

__all__ = ["dns_server", "redis_cluster", "redis_server", "redis_trio", "zookeeper_server"]

# Before anybody imports them: what they assert is shown as what a test asserts.
pytest.register_assert_rewrite("tests.faults.stories", "tests.faults.load")

# Whoever runs tests in the background may have them ignore Ctrl-C, and what they start with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes to make or to run on a busy machine is no property of the code.
UNTIMED = [HealthCheck.too_slow]
settings.register_profile("quick", deadline=None, max_examples=30, suppress_health_check=UNTIMED)
settings.register_profile("full", deadline=None, max_examples=2000, suppress_health_check=UNTIMED)
settings.load_profile("full" if os.environ.get("CHAPPE_PROOF") == "full" else "quick")

# There are hundreds of nodes, and each would start a process to copy its events: those that are
# tested for it are told to.
os.environ.setdefault("CHAPPE_EVENTS_ENABLED", "false")


class Telling:
    """Tells of a failure when it happens: a run that is ended from outside has said it then."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what failed below the line of its file."""
        # Not there yet when plugins are configured, and never in a worker of a parallel run.
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.nodeid} ({report.when}):")
            terminal.write_line(report.longreprtext)


# The folders whose files take longest. A worker of a parallel run takes a file at a time, and the
# others would wait for one that began last.
SLOW_FIRST = (
    "pipeline",
    "benchmarks",
    "faults",
    "simulation",
    "cli",
    "events",
    "node",
    "contract",
    "cluster",
    "edge",
    "queues",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what is slow at the beginning."""
    rank = {folder: at for at, folder in enumerate(SLOW_FIRST)}
    tests = Path(__file__).parent
    items.sort(key=lambda item: rank.get(item.path.relative_to(tests).parts[0], len(rank)))


class Shared(LoadFileScheduling):
    """Gives a worker of a parallel run a file at a time, and one of them all that share a session
    of Spark: each worker would start another."""

    def _split_scope(self, nodeid: str) -> str:
        folder = "tests/pipeline/"
        return folder if nodeid.startswith(folder) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shared | None:
    return Shared(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None, item: pytest.Item) -> Iterator[None]:
    """Have what the tests of a file left open found when it ends; the next test that starts shows
    it. Else it is found, and is an error, in whatever test runs when Python happens to look."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Telling(config), "telling")
