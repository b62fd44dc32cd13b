"""How fast a run is beside one shuffle of the same rows by message, written to Parquet.

    python -m tests.pipeline.speed ROWS FOLDER

Prints seconds, seconds of CPU of Spark's process, and the ratio that must not exceed 2.5; then what
a run costs after one per cent more has come. Both are done twice, as the first warms Spark up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.schema import EVENT
from chappe.pipeline.session import SessionOptions, session
from tests.pipeline.bulk import write


def cpu_s(spark: SparkSession) -> float:
    """What Spark's process has used so far."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(spark: SparkSession, name: str, work: Callable[[], object]) -> tuple[float, float]:
    begun, cpu = monotonic(), cpu_s(spark)
    work()
    took = monotonic() - begun, cpu_s(spark) - cpu
    sys.stdout.write(f"{name:12} {took[0]:8.1f} s {took[1]:8.1f} s of CPU\n")
    return took


def main(rows: int, folder: Path) -> None:
    events = folder / "events"
    write(events, rows)
    with session(SessionOptions(master="local[2]")) as spark:
        read = spark.read.schema(EVENT).option("recursiveFileLookup", "true")

        def shuffle() -> None:
            shuffled = read.parquet(str(events)).repartition(max(8, rows // 400_000), "message")
            shuffled.write.mode("overwrite").parquet(str(folder / "shuffled"))

        for attempt in ("first", "second"):
            base = measure(spark, "shuffle", shuffle)
            tables = folder / f"tables-{attempt}"
            whole = measure(spark, "run", lambda at=tables: run(spark, [events], at))
            sys.stdout.write(f"ratio {whole[0] / base[0]:.2f}, of CPU {whole[1] / base[1]:.2f}\n")
        write(events, rows // 100, hours=1, seed=2, first=24)
        more = measure(spark, "1 % more", lambda: run(spark, [events], tables))
        sys.stdout.write(f"share {more[1] / whole[1]:.3f} of CPU\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
