"""How hard the property tests try: a little in every run, a lot for the proof."""

import os

import pytest
from hypothesis import settings

from tests.servers import (
    dns_server,
    redis_cluster,
    redis_server,
    redis_trio,
    zookeeper_server,
)

__all__ = ["dns_server", "redis_cluster", "redis_server", "redis_trio", "zookeeper_server"]

# No deadline: how long an example takes on a busy machine is no property of the code.
settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=2000)
settings.load_profile("full" if os.environ.get("CHAPPE_PROOF") == "full" else "quick")


class Telling:
    """Tells of a failure when it happens: a run that is ended from outside has said it then."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal = config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what failed below the line of its file."""
        if report.failed and self._terminal is not None:
            self._terminal.write_line(f"\n{report.nodeid} ({report.when}):")
            self._terminal.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Telling(config), "telling")
