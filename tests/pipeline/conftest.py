"""One session of Spark for all tests here, and one run over each of what most of them look at."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from tests.pipeline import pair, sparks
from tests.pipeline.day import Day
from tests.pipeline.traffic import save


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have no limit but the tests' own: Spark is slow to start, and slower where others work."""
    if item.get_closest_marker("spark"):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session, which serves Connect, too; its Java ends with this process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    for name, value in (sparks.SETTINGS | sparks.connect_settings()).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect(spark: SparkSession) -> str:
    """Where the session is reached by clients of Spark Connect."""
    return f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"


@pytest.fixture(scope="session")
def day() -> Day:
    return Day()


@pytest.fixture(scope="session")
def tables(spark: SparkSession, day: Day, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one run makes of the whole day."""
    root = tmp_path_factory.mktemp("day")
    save(day.rows, root / "events")
    run(spark, [root / "events"], root / "tables", day.options)
    return root / "tables"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What two nodes told, each in a folder of its own."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    pair.tell(one, two)
    return one, two


@pytest.fixture(scope="session")
def whole(
    spark: SparkSession, folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What one run makes of both."""
    tables = tmp_path_factory.mktemp("whole")
    run(spark, folders, tables)
    return tables
