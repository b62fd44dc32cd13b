"""The process that copies: orders come in as lines, and each gets its answer.

    python -m chappe.node.copier FOLDER

FOLDER is where to, unless an order says another. The process ends with its standard input. It is
one of its own since Arrow, in a thread, would keep the event loop from running; and it gives way to
everything else on the machine.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from chappe.errors import StorageError
from chappe.log.parquet.copier import Copier
from chappe.log.parquet.order import (
    EVENTS,
    QUEUES,
    REASON_MAX,
    Copied,
    Order,
    decode_order,
    encode_line,
)
from chappe.node.eventtables import event_copier
from chappe.queues.parquet.tables import queue_copier

_NICE = 10
# Messages are nobody else's by default; a group may be let in.
_UMASK = 0o027


_COPIERS: dict[str, Callable[[Path], Copier]] = {QUEUES: queue_copier, EVENTS: event_copier}


def serve(orders: BinaryIO, answers: BinaryIO, folder: Path) -> None:
    """Answer orders until there are no more."""
    for line in orders:
        try:
            copied = _copy(decode_order(line), folder)
        except (OSError, StorageError, pa.ArrowException) as error:
            copied = Copied(error=f"{type(error).__name__}: {error}"[:REASON_MAX])
        answers.write(encode_line(copied) + b"\n")
        answers.flush()


def _copy(order: Order, folder: Path) -> Copied:
    copier = _COPIERS[order.kind](Path(order.folder) if order.folder else folder)
    copied = copier.copy(order)
    if order.kind == EVENTS:
        # A log is cut into many small segments, and nobody asks for those that are gone.
        copier.forget(order)
    return copied


def main() -> None:
    """Serve standard input."""
    os.nice(_NICE)
    os.umask(_UMASK)
    # When the node is gone nobody waits for the answer.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    pa.set_cpu_count(1)
    serve(sys.stdin.buffer, sys.stdout.buffer, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
