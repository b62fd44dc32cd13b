"""The package itself: what `import chappe` gives, and what it costs to say it."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_client_does_not_load_what_a_hub_is_made_of() -> None:
    assert run("import chappe, sys; print('chappe.hub.hub' in sys.modules)") == "False"


def test_the_hub_and_the_blocking_face_are_there_when_they_are_asked_for() -> None:
    told = run("import chappe; print(chappe.Hub.__name__, chappe.blocking.connect.__name__)")
    assert told == "Hub connect"


def test_what_is_not_there_is_said_not_to_be() -> None:
    code = "import chappe\ntry:\n    chappe.nothing\nexcept AttributeError as e:\n    print(e)"
    assert run(code) == "module 'chappe' has no attribute 'nothing'"


def test_a_device_is_there_when_it_is_asked_for_and_loads_http_only_to_ask_the_web() -> None:
    told = run(
        "import chappe, sys; print(chappe.device.Device.__name__, 'httpx' in sys.modules,"
        " 'chappe.push' in sys.modules)"
    )
    assert told == "Device False False"
