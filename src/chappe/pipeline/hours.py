"""Hours and minutes. Tables are split by hour; all times are microseconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as fn

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US


def hour_of(us: Column) -> Column:
    """The hour of a time, as tables are split by it."""
    # By the number and not by the session's time zone: hours are UTC whoever reads.
    day = fn.date_add(fn.lit("1970-01-01").cast("date"), fn.floor(us / (24 * HOUR_US)).cast("int"))
    hour = fn.floor(us / HOUR_US) % 24
    return fn.concat(day.cast("string"), fn.lit("T"), fn.lpad(hour.cast("string"), 2, "0"))


def hour_us(hour: str) -> int:
    """When an hour begins."""
    return int(datetime.fromisoformat(f"{hour}:00:00+00:00").timestamp()) * 1_000_000


def hour_name(us: int) -> str:
    """The hour of a time."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H")


def hours_after(hours: Iterable[str], count: int) -> set[str]:
    """These hours and so many after each."""
    begins = [hour_us(hour) for hour in hours]
    return {hour_name(begin + n * HOUR_US) for begin in begins for n in range(count + 1)}


def hour_names(hours: Iterable[int]) -> set[str]:
    """Hours by their numbers."""
    return {hour_name(hour * HOUR_US) for hour in hours}


def and_before(hours: Iterable[str]) -> set[str]:
    """These hours and the one before each."""
    return {hour_name(hour_us(hour) - n * HOUR_US) for hour in hours for n in (0, 1)}


def around(hours: Iterable[str]) -> set[str]:
    """These hours, the one before each and the one after."""
    return and_before(hours_after(hours, 1))
