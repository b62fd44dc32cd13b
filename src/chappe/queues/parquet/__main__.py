"""The process that copies: orders come in as lines, and each gets its answer.

    python -m chappe.queues.parquet FOLDER

It ends with its standard input. It is a process since Arrow, in a thread, would keep the event loop
from running; and it gives way to everything else on the machine.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from chappe.errors import StorageError
from chappe.queues.parquet.copier import Copier
from chappe.queues.parquet.order import REASON_MAX, Copied, decode_order, encode_line

_NICE = 10
# Messages are nobody else's by default; a group may be let in.
_UMASK = 0o027


def serve(orders: BinaryIO, answers: BinaryIO, copier: Copier) -> None:
    """Answer orders until there are no more."""
    for line in orders:
        try:
            copied = copier.copy(decode_order(line))
        except (OSError, StorageError, pa.ArrowException) as error:
            copied = Copied(error=f"{type(error).__name__}: {error}"[:REASON_MAX])
        answers.write(encode_line(copied) + b"\n")
        answers.flush()


def main() -> None:
    """Serve standard input."""
    os.nice(_NICE)
    os.umask(_UMASK)
    # When the node is gone nobody waits for the answer.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    pa.set_cpu_count(1)
    serve(sys.stdin.buffer, sys.stdout.buffer, Copier(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
