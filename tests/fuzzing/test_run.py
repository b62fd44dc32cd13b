"""Each target takes a few thousand damaged inputs; and the fuzzer finds what is planted."""

import os
import subprocess
import sys
from itertools import islice

import pytest
from fuzzing.run import inputs, run
from fuzzing.target import Target, targets

from chappe.access.token import TokenAuthenticator
from chappe.errors import BadRequest, Forbidden, RemoteProtocolError

TARGETS = targets()
SEED = 20_251
COUNT = 100_000 if os.environ.get("CHAPPE_PROOF") == "full" else 2000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_declared_errors_come_out_of_damaged_input(target):
    count, failures = run(target, SEED, count=COUNT)
    assert not failures, "\n".join(map(str, failures))
    assert count == COUNT


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_examples_of_a_target_are_good_or_declared(target):
    for seed in target.seeds:
        try:
            target.read(seed)
        except target.errors as error:
            # What only the other side may say, what expands past the bound, what was never signed.
            assert isinstance(error, RemoteProtocolError | BadRequest | Forbidden)  # noqa: PT017


def test_a_seed_gives_the_same_inputs_again():
    target = TARGETS[0]
    first, again, other = (list(islice(inputs(target, seed), 300)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def crash(data: bytes) -> None:
    if b"\xff" in data:
        raise KeyError("planted")


def spin(data: bytes) -> None:
    if b"\xff" in data:
        sum(range(300_000))


def swell(data: bytes) -> None:
    if b"\xff" in data:
        bytes(5_000_000)


@pytest.mark.parametrize(
    ("read", "fault"), [(crash, "KeyError"), (swell, "memory")], ids=["crash", "memory"]
)
def test_a_planted_fault_is_found_and_shown_with_its_seed(read, fault):
    target = Target("planted", read, (b"good",), (BadRequest,), memory_bytes_max=1_000_000)
    _, failures = run(target, 5, count=3000)
    assert failures
    for failure in failures:
        assert fault in failure.fault
        assert "seed 5" in str(failure)
        assert failure.data.hex() in str(failure)
        assert next(islice(inputs(target, 5), failure.index, None)) == failure.data


def test_a_reader_that_takes_too_long_is_found(monkeypatch):
    monkeypatch.setattr("fuzzing.run.INPUT_SECONDS_MAX", 0.001)
    monkeypatch.setattr("fuzzing.run.FAILURES_MAX", 1)
    target = Target("planted", spin, (b"\xff",), (BadRequest,))
    _, (failure,) = run(target, 1, count=10)
    assert "took more than" in failure.fault


def test_the_command_runs_every_target_and_ends_well():
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing", "--seconds", "1", "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" inputs, 0 failed") == len(TARGETS)


def test_the_command_names_the_targets_there_are():
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing", "--target", "nonsense"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert "splitter" in done.stderr


def test_times_that_are_no_times_are_refused():
    token = next(t for t in TARGETS if t.name == "claims")
    assert isinstance(token.read.__self__._authenticator, TokenAuthenticator)
    for wrong in (b"NaN", b"1e999", b"9" * 400, b"-1", b"true", b'"x"', b"null"):
        with pytest.raises(Forbidden):
            token.read(token.seeds[0].replace(b"4102444800", wrong))
