"""A child: a process that was forked, and the cord that it hangs on.

A cord is a pair of sockets. The child tells over it that it is ready, or why it is not; its
end of file tells the child that its parent is gone, or wants it gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from chappe.errors import ChappeError, ClusterError, ConfigError

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
_REPORT_BYTES_MAX = 65_536


class Report(msgspec.Struct, omit_defaults=True):
    """What a child says of itself: where it is reached, or what was wrong."""

    addresses: dict[str, str] = {}
    # What it found out; may be told again and again.
    figures: dict[str, int] = {}
    failure: str | None = None
    # Whether it was an option that was wrong.
    config: bool = False

    def error(self) -> ChappeError:
        """The failure as an error, to be raised here as it was there."""
        return (ConfigError if self.config else ClusterError)(self.failure or "no reason given")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Report)


class Cord:
    """The child's end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def tell(self, report: Report) -> None:
        """Tell the parent; one that is gone hears nothing."""
        with suppress(BrokenPipeError):
            self._end.send(_encoder.encode(report))

    def on_cut(self, act: Callable[[], object]) -> None:
        """Call something, on the running loop, when the parent is gone or has let go."""
        loop = asyncio.get_running_loop()
        self._end.setblocking(False)

        def look() -> None:
            loop.remove_reader(self._end)
            act()

        # A parent says nothing: whatever can be read is the end.
        loop.add_reader(self._end, look)


# Told its cord, and how many lived in its place before.
Life = Callable[[Cord, int], None]


class Child:
    """A process from its parent's side."""

    def __init__(self, pid: int, end: socket.socket, born: float) -> None:
        self.pid = pid
        self.end = end
        self.born = born
        self.report: Report | None = None

    def hear(self) -> bool:
        """Take what the child said, once its end can be read; False when it can say no more."""
        try:
            said = self.end.recv(_REPORT_BYTES_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if said:
            self.report = _decoder.decode(said)
        return bool(said)

    def let_go(self) -> None:
        """Cut the cord, and ask it to end should it not look there."""
        self.end.shutdown(socket.SHUT_WR)
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None while it lives.

        Once it gave one it must not be asked again: the number may be another process's.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)


def fork(life: Life, before: int, now: float, close: Iterable[socket.socket]) -> Child:
    """Begin a life in a process of its own; it closes what belongs to its parent alone.

    Signals stay blocked in the child until its life unblocks them, so none is lost before somebody
    there listens, and none is taken for one of the parent's.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = os.fork()
    if pid == 0:
        ours.close()
        for end in close:
            end.close()
        _live(life, Cord(theirs), before)
    theirs.close()
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    return Child(pid, ours, now)


def _live(life: Life, cord: Cord, before: int) -> None:
    """Live, and end here: the frames above are the parent's, and so is what they would clean up."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        life(cord, before)
        status = 0
    except ChappeError as error:
        cord.tell(Report(failure=str(error), config=isinstance(error, ConfigError)))
    except BaseException:
        # Nothing is above that may see it: told as the interpreter would.
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
