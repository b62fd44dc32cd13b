"""`make setup` brings Java where it may, and says so where it may not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
JAVA = "openjdk-17-jre-headless"


@pytest.mark.parametrize(
    ("user", "installs", "told", "did"),
    [
        (0, True, f"installing {JAVA}\n", f"update -qq\ninstall -y -qq {JAVA}\n"),
        (0, False, f"could not install {JAVA}: please do it by hand (for the pipeline", "update"),
        (1000, True, f"please install, as root: apt-get install {JAVA} (for the pipeline", ""),
    ],
)
def test_java_is_installed_by_root_and_named_to_others(
    tmp_path: Path, user: int, installs: bool, told: str, did: str
) -> None:
    log = tmp_path / "log"
    log.touch()
    programs = {
        "dpkg-query": "exit 1",
        "id": f"echo {user}",
        "apt-get": f'echo "$1 $2 $3 $5" | xargs >> {log}; exit {0 if installs else 1}',
    }
    for name, does in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    done = make(PATH=f"{tmp_path}:{os.environ['PATH']}", JAVA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert log.read_text().startswith(did)


def test_a_java_that_will_do_is_left_as_it_is(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    done = make(JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")


def make(**more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "java"],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if "MAKE" not in name} | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
