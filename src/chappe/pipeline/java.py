"""Java, which Spark runs on: whether there is one that will do, and how it is started.

What Java says of itself when it starts is of no use to who runs a pipeline: that a module of it is
new, or which options it was given. What Spark says is passed on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from chappe.errors import ConfigError

# The oldest Java that Spark 4 runs on, and where Debian has it.
JAVA_MIN: Final = 17
JAVA_PACKAGE: Final = "openjdk-17-jre-headless"

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_OF_ITSELF: Final = re.compile(rb"WARNING: |Picked up |[\w ()-]* VM warning: ")
# A line is passed on when it ends, or when it is this long.
_LINE_MAX: Final = 64 << 10
_LAST_WORDS_S: Final = 5.0
_STDERR: Final = 2


def check_java() -> int:
    """Which Java is there; raises ConfigError that says how to get one that Spark runs on."""
    java = _find_java()
    if java is None:
        raise ConfigError(_please("Spark needs Java, and there is none"))
    try:
        told = subprocess.run(  # noqa: S603, the one that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(_please(f"Spark needs Java, and {java} does not run ({error})")) from None
    found = _VERSION.search(told.stderr + told.stdout)
    if told.returncode != 0 or found is None:
        raise ConfigError(_please(f"Spark needs Java, and {java} does not tell its version"))
    version = int(found[1])
    if version < JAVA_MIN:
        raise ConfigError(_please(f"Spark needs Java {JAVA_MIN}, and {java} is Java {version}"))
    return version


def _find_java() -> str | None:
    """The Java that Spark starts: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def _please(problem: str) -> str:
    return (
        f"{problem}: install Java {JAVA_MIN} or newer "
        f"(Debian: apt-get install {JAVA_PACKAGE}) or set JAVA_HOME; --remote needs none here"
    )


def start_java(conf: SparkConf) -> Any:
    """Start Java with Spark in it; it ends with this process. What it says goes to standard error,
    but for what it says of itself."""
    said, says = os.pipe()
    passing = threading.Thread(target=pass_on, args=(said, _STDERR), daemon=True)
    passing.start()
    try:
        return launch_gateway(conf, {"stderr": says})  # type: ignore[no-untyped-call]
    except PySparkException:
        os.close(says)
        says = -1
        # It is gone: its last words come before what is said of that.
        passing.join(_LAST_WORDS_S)
        raise
    finally:
        if says >= 0:
            os.close(says)


def pass_on(said: int, to: int) -> None:
    """Write what Java says to a file, line by line, until it ends."""
    with open(said, "rb", buffering=0) as lines:
        while line := lines.readline(_LINE_MAX):
            if not _OF_ITSELF.match(line):
                os.write(to, line)
