"""Five thousand connects at once are all answered, and those who were there go on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import ExitStack

import pytest

from .conftest import Witness
from .process import Api, NodeProcess, limited

ROUNDS = 5 if os.environ.get("CHAPPE_PROOF") == "full" else 1
CONNECTIONS = 5000
_HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.skipif(_HARD < CONNECTIONS + 200, reason="too few descriptors for a process here")
@pytest.mark.parametrize("form", ["websocket", "tcp"])
@pytest.mark.parametrize("number", range(ROUNDS))
def test_burst_of_connections_is_answered_while_others_are_served(
    node: NodeProcess, witness: Witness, api: Api, form: str, number: int
) -> None:
    command = [sys.executable, "-m", "tests.faults.crowd", form, node.addresses[form]]
    with (
        subprocess.Popen(
            [*limited(), *command, str(CONNECTIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        ExitStack() as after,
    ):
        after.callback(process.kill)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        exchanged = 0
        while not (line := process.stdout.readline()):
            assert process.poll() is None
            witness.notices_nothing()
            exchanged += 1
        report = json.loads(line)
        assert report["answered"] == CONNECTIONS
        assert exchanged > 0
        online = api.metric("sessions", edge=form)
        assert online == CONNECTIONS + (form == "websocket")  # and the witness
        sys.stdout.write(
            f"{CONNECTIONS / report['seconds']:.0f} {form} connects a second, "
            f"{exchanged} exchanges of others meanwhile\n"
        )
    while api.metric("sessions", edge=form) > 1:
        witness.notices_nothing()
