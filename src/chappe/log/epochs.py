"""Epochs: which master wrote from where on, kept beside the segments."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.log.fs import Fs
from chappe.log.segment import unwrap_index, wrap_index

# Each is one promotion; of older ones no replica has anything left to compare.
EPOCHS_MAX = 256
_FILE = "epochs"


class Epochs:
    """The epochs of a journal with the position at which each began, oldest first."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self.path = f"{folder}/{_FILE}"
        self.all: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        """The epoch that the journal is in; 0 before the first."""
        return self.all[-1][0] if self.all else 0

    @property
    def began(self) -> int:
        """Where that epoch began."""
        return self.all[-1][1] if self.all else 0

    def begin(self, epoch: int, lsn: int) -> bool:
        """Note that an epoch begins there; whether it is a new one."""
        if epoch <= self.last:
            return False
        self.all = [*self.all, (epoch, lsn)][-EPOCHS_MAX:]
        return True

    def cut(self, lsn: int) -> bool:
        """Forget those that began at a position or after it; whether there were any."""
        before = len(self.all)
        self.all = [(epoch, start) for epoch, start in self.all if start < lsn]
        return len(self.all) < before

    def saving(self) -> Callable[[], None]:
        """What puts the file in place, blocking, as the epochs are now."""
        content = wrap_index(msgspec.json.encode(self.all))
        return lambda: self._fs.write(self.path, content)

    def save(self) -> None:
        """Put the file in place, blocking."""
        self.saving()()

    def load(self) -> bool:
        """Read the file if there is one, blocking; whether it was whole."""
        if not self._fs.exists(self.path):
            return True
        data = unwrap_index(self._fs.read(self.path, 0, self._fs.size(self.path)))
        if data is None:
            return False
        self.all = msgspec.json.decode(data, type=list[tuple[int, int]])
        return True
