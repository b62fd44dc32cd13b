"""Faults to plant in a broker: each is a mistake that somebody could have made."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from chappe.log import batch as batch_module
from chappe.log.journal import Journal
from chappe.log.recovery import Recovery
from chappe.log.writer import Writer
from chappe.queues import reader as reader_module
from chappe.queues import snapshot as snapshot_module
from chappe.queues.delays import Delays
from chappe.queues.group import Group
from chappe.queues.intake import Intake
from chappe.queues.letters import Letters
from chappe.queues.local import LocalStorage
from chappe.queues.producers import Producers
from chappe.queues.queue import Queue
from chappe.queues.reader import Reader
from chappe.queues.record import Done, Tried
from chappe.queues.retries import Retries
from chappe.queues.state import QueueState

Method = Callable[..., Any]


class Fault(NamedTuple):
    """What is planted where, and within how many seeds it has to be noticed."""

    name: str
    owner: Any
    method: str
    plant: Callable[[Method], Method]
    seeds: int


def never(original: Method) -> Method:
    return lambda *args, **options: None


def tell_before_the_flush(original: Method) -> Method:
    def append(self: Journal, records: Any, done: Any, **how: Any) -> int:
        lsn: int = original(self, records, None, **how)
        if done is not None:
            self._flushing._timer.call_soon(done, None)
        return lsn

    return append


def tell_before_the_commit(original: Method) -> Method:
    def after(self: Queue, told: Any, refused: Any = None) -> None:
        original(self, lambda: None, None)
        told()

    return after


def same_checksum_for_all(original: Method) -> Method:
    return lambda *parts: 0


def one_try_more(original: Method) -> Method:
    def make(self: Queue, state: QueueState, *args: Any) -> None:
        options = state.options
        state.options = msgspec.structs.replace(options, attempts_max=options.attempts_max + 1)
        original(self, state, *args)

    return make


def try_for_ever(original: Method) -> Method:
    """Where the limit is looked at when a message comes again, let there be none."""

    def try_again(self: Retries, item: Any) -> None:
        state = item.group.queue.state
        options = state.options
        state.options = msgspec.structs.replace(options, attempts_max=1_000)
        try:
            original(self, item)
        finally:
            state.options = options

    return try_again


def forget_producers(original: Method) -> Method:
    def known(self: LocalStorage) -> list[QueueState]:
        states: list[QueueState] = original(self)
        for state in states:
            state.producers.clear()
        return states

    return known


def write_no(kind: type) -> Callable[[Method], Method]:
    """Commit everything but records of a kind."""

    def plant(original: Method) -> Method:
        def commit(self: LocalStorage, state: Any, records: Any, done: Any) -> None:
            original(self, state, [one for one in records if type(one) is not kind], done)

        return commit

    return plant


def need_no_mark(original: Method) -> Method:
    def make(self: Reader, *args: Any) -> None:
        original(self, *args)
        self.granted = 1 << 60

    return make


def say_taken_back(original: Method) -> Method:
    def cancel(self: Delays, message: int, told: Any, refused: Any) -> None:
        if message in self._queue.state.delayed_seqs:
            told()
        else:
            original(self, message, told, refused)

    return cancel


def release_without_looking(original: Method) -> Method:
    """What is taken back while it is being read is delivered all the same."""

    def release(self: Delays, seq: int) -> Any:
        got = original(self, seq)
        self._leaving.discard(seq)
        entry = self._queue.state.delayed.get(seq)

        def got_anyway(found: Any) -> None:
            if entry is not None and seq not in self._queue.state.delayed:
                self._queue.state.delayed[seq] = entry
            got(found)

        return got_anyway

    return release


def begin_without_delayed(original: Method) -> Method:
    def make(self: Delays, queue: Queue) -> None:
        held, queue.state.delayed = queue.state.delayed, {}
        original(self, queue)
        queue.state.delayed = held

    return make


def leave_the_tail(original: Method) -> Method:
    def read(self: Recovery, segment: Any) -> Any:
        truncate, self._fs.truncate = self._fs.truncate, lambda path, size: None  # type: ignore[method-assign]
        try:
            yield from original(self, segment)
        finally:
            self._fs.truncate = truncate  # type: ignore[method-assign]

    return read


def snapshot_without_open(original: Method) -> Method:
    def groups(state: QueueState) -> Any:
        found = {
            (group, lane): progress.open
            for group in state.groups.values()
            for lane, progress in group.progress.items()
        }
        for group, lane in found:
            group.progress[lane].open = set()
        try:
            return original(state)
        finally:
            for (group, lane), entries in found.items():
                group.progress[lane].open = entries

    return groups


def overlook_a_failed_sync(original: Method) -> Method:
    def sync(self: Writer) -> None:
        try:
            original(self)
        except OSError as error:
            if error.errno != errno.EIO:
                raise

    return sync


def trim_what_is_there(original: Method) -> Method:
    return lambda self, lsn: original(self, self.flushed)


def take_keyed_ones_as_plain(original: Method) -> Method:
    """In a run, whatever else of its key is in hand."""

    def take_plain(self: Reader, n: int, bytes_max: int) -> Any:
        keys = {message.seq: message.key for message in self._window}
        for message in self._window:
            message.key = None
        taken = original(self, n, bytes_max)
        for message in (*taken, *self._window):
            message.key = keys[message.seq]
        return taken

    return take_plain


def done_before_the_commit(original: Method) -> Method:
    """A message that is handed back is done with."""

    def give_back(self: Group, item: Any, now: float, *args: Any, **options: Any) -> None:
        self.ack(item, now)

    return give_back


FAULTS = [
    Fault("acknowledged before the flush", Journal, "append", tell_before_the_flush, 10),
    Fault("answered before the commit", Queue, "after", tell_before_the_commit, 10),
    Fault("no checksum", batch_module, "_checksum", same_checksum_for_all, 40),
    Fault("torn tail not cut", Recovery, "_read", leave_the_tail, 20),
    Fault("retried into success", Writer, "sync", overlook_a_failed_sync, 60),
    Fault("trimmed too early", Journal, "trim", trim_what_is_there, 10),
    Fault("one try more", Queue, "__init__", one_try_more, 10),
    Fault("tries without end after a crash", Retries, "try_again", try_for_ever, 10),
    Fault("attempts not written", LocalStorage, "commit", write_no(Tried), 10),
    Fault("mark not ahead", Reader, "__init__", need_no_mark, 10),
    Fault("cursor not written", LocalStorage, "commit", write_no(Done), 10),
    Fault("no dedup", Producers, "known", never, 10),
    Fault("dedup forgotten at a start", LocalStorage, "known", forget_producers, 20),
    Fault("order of keys ignored", Intake, "_key", never, 10),
    Fault("taken back and delivered", Delays, "cancel", say_taken_back, 10),
    Fault("taken back too late", Delays, "_release", release_without_looking, 60),
    Fault("delayed lost at a start", Delays, "__init__", begin_without_delayed, 10),
    Fault("snapshot without open entries", snapshot_module, "_groups", snapshot_without_open, 10),
    Fault("dead letter dropped", Letters, "bury", never, 10),
    Fault("filter ignored", reader_module, "wants", lambda original: lambda *_: True, 10),
    Fault("order of keys ignored in runs", Reader, "take_plain", take_keyed_ones_as_plain, 20),
    Fault("handed back is done", Group, "give_back", done_before_the_commit, 10),
]
