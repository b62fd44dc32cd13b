"""The simulated disk: as a real one while the power is on, and what a crash may leave of it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import StorageError
from chappe.log.fs import Fs, OsFs
from chappe.simulation import Simulation
from chappe.simulation.disk import SimDisk
from chappe.simulation.files import SECTOR_BYTES, PowerCut, SimFs
from chappe.simulation.trace import Trace

FOLDER = "/data/log"
FULL = os.strerror(errno.ENOSPC)
NAMES = ("a", "b", "c")

# What is done to the files, each with a name, data and a number.
Step = tuple[str, str, bytes, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "sync", "sync_dir", "cut", "remove", "rename"]),
        st.sampled_from(NAMES),
        st.binary(min_size=1, max_size=40),
        st.integers(0, 30),
    ),
    max_size=30,
)


def make_fs(seed: int = 0, **options: int) -> SimFs:
    fs = SimFs(Random(seed), Trace(lambda: 0.0), **options)
    fs.make_dirs(FOLDER)
    return fs


def take_step(fs: Fs, folder: str, step: Step) -> None:
    what, name, data, number = step
    path = f"{folder}/{name}"
    if what == "sync_dir":
        fs.sync_dir(folder)
    elif what == "append":
        file = fs.open_append(path)
        file.append(data)
        file.close()
    elif fs.exists(path):
        take_step_on_a_file(fs, folder, path, what, number)


def take_step_on_a_file(fs: Fs, folder: str, path: str, what: str, number: int) -> None:
    match what:
        case "sync":
            file = fs.open_append(path)
            file.sync()
            file.close()
        case "cut":
            fs.truncate(path, min(number, fs.size(path)))
        case "remove":
            fs.remove(path)
        case "rename":
            fs.rename(path, f"{folder}/{NAMES[number % len(NAMES)]}")


def content_of(fs: Fs, folder: str) -> dict[str, bytes]:
    return {name: fs.read(f"{folder}/{name}", 0, 10_000) for name in fs.list(folder)}


@given(steps)
@settings(deadline=None, max_examples=60)
def test_while_the_power_is_on_it_is_as_a_real_one(taken: list[Step]):
    simulated = make_fs()
    with tempfile.TemporaryDirectory() as folder:
        for step in taken:
            take_step(simulated, FOLDER, step)
            take_step(OsFs(), folder, step)
            assert content_of(simulated, FOLDER) == content_of(OsFs(), folder)


class Model:
    """What may be on the platter: per file its states since the last sync, likewise the names."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.states: dict[int, list[bytes]] = {}
        self.names: list[dict[str, int]] = [{}]
        self._next = 0

    def take(self, step: Step) -> None:
        what, name, data, number = step
        if what == "sync_dir":
            self.names = [dict(self.files)]
        elif what == "append":
            if name not in self.files:
                self._next += 1
                self.states[self._next] = [b""]
                self._name({**self.files, name: self._next})
            states = self.states[self.files[name]]
            states.append(states[-1] + data)
        elif name in self.files:
            self._take_on_a_file(what, name, number)

    def _take_on_a_file(self, what: str, name: str, number: int) -> None:
        file = self.files[name]
        last = self.states[file][-1]
        if what in ("sync", "cut"):
            self.states[file] = [last if what == "sync" else last[: min(number, len(last))]]
            return
        files = {other: f for other, f in self.files.items() if other != name}
        if what == "rename":
            files[NAMES[number % len(NAMES)]] = file
        self._name(files)

    def _name(self, files: dict[str, int]) -> None:
        self.files = files
        self.names.append(files)

    def allows(self, found: dict[str, bytes]) -> bool:
        return any(
            names.keys() == found.keys()
            and all(self._allows_content(names[name], found[name]) for name in names)
            for names in self.names
        )

    def _allows_content(self, file: int, content: bytes) -> bool:
        """One of its states, the last append to it perhaps torn or with a hole."""
        states = self.states[file]
        if content in states:
            return True
        for before, after in pairwise(states):
            begins = content.startswith(before) and len(content) <= len(after)
            torn = begins and after.startswith(content)
            holed = begins and len(content) == len(after) and 0 in content[len(before) :]
            if torn or holed:
                return True
        return False


@given(steps, st.integers(0, 1_000_000))
@settings(deadline=None, max_examples=300)
def test_a_crash_keeps_what_was_synced_and_a_beginning_of_the_rest(taken: list[Step], seed: int):
    fs, model = make_fs(seed), Model()
    for step in taken:
        take_step(fs, FOLDER, step)
        model.take(step)
    fs.crash()
    found = content_of(fs, FOLDER)
    assert model.allows(found), (found, model.names, model.states)
    # What is there now is there for good.
    fs.crash()
    assert content_of(fs, FOLDER) == found


def after_a_crash(prepare: Callable[[SimFs], None], name: str = "a") -> set[bytes | None]:
    """What many crashes leave of a file; None when it is not there."""
    found = set()
    for seed in range(200):
        fs = make_fs(seed)
        prepare(fs)
        fs.crash()
        found.add(content_of(fs, FOLDER).get(name))
    return found


def test_every_prefix_of_an_unsynced_append_may_be_left_and_nothing():
    def prepare(fs: SimFs) -> None:
        file = fs.open_append(f"{FOLDER}/a")
        fs.sync_dir(FOLDER)
        file.append(b"abc")

    found = after_a_crash(prepare)
    assert {b"", b"a", b"ab", b"abc", bytes(3)} == found


def test_a_sector_of_an_unsynced_append_may_be_zeros():
    data = b"x" * (3 * SECTOR_BYTES)

    def prepare(fs: SimFs) -> None:
        file = fs.open_append(f"{FOLDER}/a")
        fs.sync_dir(FOLDER)
        file.append(data)

    found = after_a_crash(prepare)
    holed = {one for one in found if one is not None and len(one) == len(data) and 0 in one}
    assert len(holed) == 3


def test_a_synced_file_may_vanish_until_its_folder_is_synced():
    def prepare(fs: SimFs) -> None:
        file = fs.open_append(f"{FOLDER}/a")
        file.append(b"abc")
        file.sync()

    def prepare_well(fs: SimFs) -> None:
        prepare(fs)
        fs.sync_dir(FOLDER)

    assert after_a_crash(prepare) == {None, b"abc"}
    assert after_a_crash(prepare_well) == {b"abc"}


def test_a_file_that_is_written_as_a_whole_is_the_old_one_or_the_new_one():
    found: set[bytes | None] = set()
    for steps_left in range(1, 6):
        for seed in range(20):
            fs = make_fs(seed)
            fs.write(f"{FOLDER}/a", b"old")
            fs.cut(steps_left)
            with pytest.raises(PowerCut):
                fs.write(f"{FOLDER}/a", b"new")
            with pytest.raises(PowerCut):
                fs.read(f"{FOLDER}/a", 0, 3)
            fs.crash()
            found.add(content_of(fs, FOLDER)["a"])
    assert found == {b"old", b"new"}


def test_what_a_failed_sync_left_unwritten_counts_as_written():
    def prepare(fs: SimFs) -> None:
        file = fs.open_append(f"{FOLDER}/a")
        fs.sync_dir(FOLDER)
        file.append(b"abc")
        fs.fail_sync()
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()
        assert fs.read(f"{FOLDER}/a", 0, 9) == b"abc"
        file.append(b"def")
        file.sync()

    assert after_a_crash(prepare) == {b"abcdef", b"\0\0\0def"}


def test_a_full_disk_takes_a_part_and_says_so():
    fs = make_fs(capacity=10)
    file = fs.open_append(f"{FOLDER}/a")
    file.append(b"1234567")
    with pytest.raises(OSError, match=FULL):
        file.append(b"89abcd")
    assert fs.read(f"{FOLDER}/a", 0, 99) == b"123456789a"
    assert file.size == 7
    with pytest.raises(OSError, match=FULL):
        file.allocate(11)
    fs.capacity = 20
    file.append(b"xyz")
    file.allocate(20)
    assert fs.read(f"{FOLDER}/a", 0, 99) == b"1234567xyz" + bytes(10)


def test_room_that_was_allocated_is_written_to_without_more():
    fs = make_fs(capacity=10)
    file = fs.open_append(f"{FOLDER}/a")
    file.allocate(8)
    fs.capacity = 0
    file.append(b"12345678")
    with pytest.raises(OSError, match=FULL):
        file.append(b"9")


def test_a_flipped_bit_stays():
    fs = make_fs()
    file = fs.open_append(f"{FOLDER}/a")
    file.append(b"abc")
    file.sync()
    fs.sync_dir(FOLDER)
    fs.flip(f"{FOLDER}/a", 1, 0)
    fs.crash()
    assert content_of(fs, FOLDER) == {"a": b"acc"}


def test_a_lock_is_held_by_one_until_it_is_closed_or_the_machine_crashes():
    fs = make_fs()
    lock = fs.lock(f"{FOLDER}/lock")
    with pytest.raises(StorageError, match=FOLDER):
        fs.lock(f"{FOLDER}/lock")
    lock.close()
    fs.lock(f"{FOLDER}/lock")
    fs.crash()
    fs.lock(f"{FOLDER}/lock")


class Bench:
    """A simulated disk with a file to write to."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.loop = self.simulation.loop
        self.fs = SimFs(self.simulation.stream("fs"), self.simulation.trace)
        self.fs.make_dirs(FOLDER)
        self.file = self.fs.open_append(f"{FOLDER}/a")
        self.fs.sync_dir(FOLDER)
        self.cuts = 0
        self.disk = SimDisk(self.loop, self.simulation.stream("disk"), self.fs, self._cut)
        self.told: list[bytes] = []

    def _cut(self) -> None:
        self.cuts += 1

    def write(self, data: bytes) -> None:
        def job() -> bytes:
            self.file.append(data)
            self.file.sync()
            return data

        def done(result: bytes | None, error: OSError | None) -> None:
            assert error is None
            assert result is not None
            self.told.append(result)

        self.disk.run(job, done)


def test_jobs_are_done_in_order_and_what_was_told_outlives_a_crash():
    lefts = set()
    for seed in range(100):
        bench = Bench(seed)

        async def main(bench: Bench = bench) -> None:
            for number in range(10):
                bench.write(bytes([65 + number]))
            event = bench.loop.create_future()
            bench.loop.call_later(bench.simulation.random.uniform(0, 0.06), event.set_result, None)
            await event
            bench.disk.crash()
            bench.fs.crash()

        bench.simulation.run(main())
        left = bench.fs.read(f"{FOLDER}/a", 0, 99)
        told = b"".join(bench.told)
        assert left.startswith(told)
        assert set(left[len(told) :]) <= {65 + len(told), 0}
        lefts.add((len(left) - len(told), len(told)))
    assert {more for more, _ in lefts} == {0, 1}
    assert len({count for _, count in lefts}) > 5


def test_a_cut_while_a_job_runs_ends_everything():
    bench = Bench(3)

    async def main() -> None:
        bench.fs.cut(3)
        bench.write(b"a")
        bench.write(b"b")
        while not bench.cuts:
            future = bench.loop.create_future()
            bench.loop.call_later(0.01, future.set_result, None)
            await future

    bench.simulation.run(main())
    assert bench.told == [b"a"]
    assert bench.cuts == 1


def test_a_disk_that_is_closed_has_done_what_it_was_given():
    bench = Bench(4)

    async def main() -> None:
        for data in (b"a", b"b", b"c"):
            bench.write(data)
        bench.disk.close()
        with pytest.raises(StorageError):
            bench.write(b"d")

    bench.simulation.run(main())
    assert bench.told == [b"a", b"b", b"c"]
