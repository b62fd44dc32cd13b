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
import time
from collections.abc import Callable
from datetime import UTC, datetime
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
from chappe.log.parquet.retention import let_go
from chappe.node.eventtables import event_copier
from chappe.queues.parquet.tables import queue_copier

_NICE = 10
# Messages are nobody else's by default; a group may be let in.
_UMASK = 0o027


# How often it is looked for what is to go; and when that was, by node.
_LOOK_S = 300.0
_looked: dict[str, float] = {}

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
        _let_go(order)
    return copied


def _let_go(order: Order) -> None:
    """Look for files that are kept no longer: now and then, as there may be many."""
    now = time.monotonic()
    if now - _looked.get(order.broker, -_LOOK_S) >= _LOOK_S:
        _looked[order.broker] = now
        let_go(Path(order.folder), order.broker, order.retention, datetime.now(UTC))


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
