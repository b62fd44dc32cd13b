"""One session of Spark for all tests here, and one run over the day that they look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from tests.pipeline.day import Day
from tests.pipeline.traffic import save


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A few thousand rows: to compile a query takes longer than to interpret it.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


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
