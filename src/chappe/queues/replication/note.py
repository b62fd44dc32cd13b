"""Notes: the last that a node heard of a broker's record, kept beside its journal.

A registry may forget, or step back in time; whoever has a note does not believe it then.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from chappe.log.fs import Fs
from chappe.queues.replication.record import BrokerRecord, decode_broker, encode_broker

FILE = "broker"
_CRC_BYTES = 4


class Notes:
    """One file per broker, in the folder of its journal."""

    def __init__(self, fs: Fs, folder_of: Callable[[str], str]) -> None:
        self._fs = fs
        self._folder_of = folder_of

    def read(self, broker: str) -> BrokerRecord | None:
        """The note, if there is one and it is whole. Raises OSError."""
        path = f"{self._folder_of(broker)}/{FILE}"
        if not self._fs.exists(path):
            return None
        content = self._fs.read(path, 0, self._fs.size(path))
        data = content[_CRC_BYTES:]
        if content[:_CRC_BYTES] != crc32(data).to_bytes(_CRC_BYTES):
            return None
        return decode_broker(data, path)

    def write(self, broker: str, record: BrokerRecord) -> None:
        """Put it in the place of the one before, blocking. Raises OSError."""
        folder = self._folder_of(broker)
        self._fs.make_dirs(folder)
        data = encode_broker(record)
        self._fs.write(f"{folder}/{FILE}", crc32(data).to_bytes(_CRC_BYTES) + data)
