"""Which Spark a run uses, and what is said when there is none; no Spark is started here."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.address import hide
from chappe.pipeline.java import check_java, pass_on
from chappe.pipeline.session import SessionOptions, SparkFailed, SparkUnreachable, session
from tests.cli.process import CHAPPE, environment, run, run_here
from tests.pipeline.traffic import DAY, Node, World, save


def install_java(tmp_path: Path, says: str, code: int = 0) -> Path:
    """A Java that tells its version as given."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023-09-19 LTS', 21)],
)
def test_a_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install_java(tmp_path, says)))
    assert check_java() == version


@pytest.mark.parametrize(
    ("says", "code", "told"),
    [
        ('openjdk version "1.8.0_392"', 0, "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "is Java 11"),
        ("Segmentation fault", 139, "does not tell its version"),
    ],
)
def test_a_java_that_will_not_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, code: int, told: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install_java(tmp_path, says, code)))
    with pytest.raises(ConfigError, match=rf"{told}.*openjdk-17-jre-headless") as error:
        check_java()
    assert str(tmp_path) in str(error.value)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="does not run"):
        check_java()


def test_what_java_says_of_itself_is_not_passed_on() -> None:
    (said, says), (passed, on) = os.pipe(), os.pipe()
    lines = [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        "26/11/16 12:00:00 ERROR Executor: Exception in task",
        "Picked up JAVA_TOOL_OPTIONS: -Dx=y",
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes",
        "java.lang.OutOfMemoryError: WARNING: Java heap space",
    ]
    os.write(says, "\n".join(lines).encode())
    os.close(says)
    pass_on(said, on)
    os.close(on)
    with open(passed) as told:
        assert told.read().splitlines() == [lines[1], lines[4]]


def test_a_java_that_ends_at_once_says_why_first(tmp_path: Path) -> None:
    says = 'openjdk version "17"'
    home = install_java(tmp_path, says)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n[ $1 = -version ] && echo '{says}' && exit\necho so >&2; exit 1\n")
    done = run("pipeline", "run", *places(tmp_path), JAVA_HOME=str(home))
    assert done.returncode == 1
    _journals, *said = done.stderr.splitlines()
    assert said[0] == "so"
    assert said[-1].startswith("chappe: Spark did not start")


def places(tmp_path: Path) -> tuple[str, ...]:
    """Where a run finds events, and makes tables."""
    world = World(Node("one"))
    world.start("one", DAY)
    save(world.rows, tmp_path / "events")
    return "--events", str(tmp_path / "events"), "--tables", str(tmp_path / "tables")


def test_a_machine_without_java_is_told_how_to_get_it(tmp_path: Path) -> None:
    kept = {name: value for name, value in environment().items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [CHAPPE, "pipeline", "run", *places(tmp_path)],
        env=kept | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"needs Java.*apt-get install openjdk-17-jre-headless", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["pyspark", "deltalake", "pyarrow"])
@pytest.mark.parametrize("command", ["run", "trace", "report"])
def test_an_installation_without_the_extra_is_told_how_to_get_it(
    tmp_path: Path, command: str, missing: str
) -> None:
    (tmp_path / "paths" / "_delta_log").mkdir(parents=True)
    words = {
        "run": ["pipeline", "run", "--events", str(tmp_path), "--tables", str(tmp_path)],
        "trace": ["trace", "77", "--tables", str(tmp_path)],
        "report": ["report", "--tables", str(tmp_path), "--out", str(tmp_path / "x.html")],
    }
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from chappe.cli.main import main; sys.argv[1:] = {words[command]!r}; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"needs the package {missing}" in done.stderr
    assert "pip install 'chappe[pipeline]'" in done.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"master": "local", "remote": "sc://x"}, "--master and --remote"),
        ({"remote": "http://x"}, "--remote"),
        ({"memory": "much"}, "--memory"),
        ({"memory": "0g"}, "--memory"),
        ({"memory": "511m"}, "--memory: 511m is less than the 512m it needs"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        SessionOptions(**options)


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_spark_that_is_not_there_is_named_at_once(scheme: str) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can come to listen there.
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        url = f"{scheme}://{place}"
        options = SessionOptions(remote=url) if scheme == "sc" else SessionOptions(master=url)
        with pytest.raises(SparkUnreachable, match=place), session(options):
            pass


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"http://host/;token={SECRET}",
        f"host:15002/;token={SECRET}",
        f"me:{SECRET}@host",
        f"sc:me:{SECRET}@host",
        f"sc://host:port/;token={SECRET}",
        f"sc://host:1;token={SECRET}",
        f"sc://host;token={SECRET}",
        f"sc://me:{SECRET}@host:port",
        f"sc://me:{SECRET}@",
        f"sc://me:a/{SECRET}@host",
        f"sc://?token={SECRET}",
    ],
)
def test_an_address_that_is_none_is_named_without_its_token(url: str) -> None:
    with pytest.raises(ConfigError) as error, session(SessionOptions(remote=url)):
        pass
    assert "does not start with sc://" in str(error.value) or "not the addr" in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "asks", [f"/;token={SECRET}", f"/{SECRET}", f"/;{SECRET}", f"/;a=b=;{SECRET}"]
)
def test_a_spark_that_is_not_there_is_named_without_the_token(
    asks: str,
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{server.getsockname()[1]}"
        options = SessionOptions(remote=f"sc://me:{SECRET}@{place}{asks}")
        with pytest.raises(SparkUnreachable, match=place) as error, session(options):
            pass
        assert SECRET not in str(error.value)
        assert SECRET not in hide(f"bad: {options.remote} {asks}", options.remote or "")


def test_what_spark_says_of_an_address_is_told_without_its_token() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        # It asks for what follows the slash to be pairs, and quotes it.
        url = f"sc://127.0.0.1:{server.getsockname()[1]}/;{SECRET}"
        with pytest.raises(SparkFailed) as error, session(SessionOptions(remote=url)):
            pass
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("url", ["sc://", "sc://host:port"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address"), session(SessionOptions(remote=url)):
        pass


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--events", "none"], "--events"),
        (["--events", ".", "--once"], "--once"),
        (["--events", ".", "--every", "0"], "--every"),
        (["--events", ".", "--sla-ms", "0"], "--sla-ms"),
        (["--events", ".", "--tables", "/dev/null/x"], "--tables"),
    ],
)
def test_a_run_names_the_option_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here("pipeline", "run", "--tables", "tables", *arguments)
    assert done.returncode == 2
    assert named in done.stderr
