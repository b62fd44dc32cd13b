"""What a machine's files hold: in its memory, on its platter, and what is between the two."""

from __future__ import annotations


class Inode:
    """What a file holds: in the cache, on the platter, and what is between the two."""

    __slots__ = ("cache", "dirty", "platter")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        # Writes as (offset, data), and cuts as (size, None), in order.
        self.dirty: list[tuple[int, bytes | None]] = []

    def settle(self, count: int) -> None:
        """Let the first of what is under way reach the platter, and forget the rest."""
        for offset, data in self.dirty[:count]:
            if data is None:
                del self.platter[offset:]
            else:
                _put(self.platter, offset, data)
        self.dirty.clear()

    def write(self, offset: int, data: bytes) -> None:
        """Change the cache."""
        self.dirty.append((offset, data))
        _put(self.cache, offset, data)


def _put(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Folder:
    """What a folder holds: in the cache, on the platter, and the changes between the two."""

    __slots__ = ("cache", "dirty", "platter")

    def __init__(self) -> None:
        self.cache: dict[str, Inode] = {}
        self.platter: dict[str, Inode] = {}
        self.dirty: list[dict[str, Inode | None]] = []

    def change(self, names: dict[str, Inode | None]) -> None:
        self.dirty.append(names)
        _rename(self.cache, names)

    def inodes(self) -> list[Inode]:
        """All files that may be here after a crash, each once, in an order that a seed repeats."""
        named = [inode for names in self.dirty for inode in names.values() if inode is not None]
        return list(dict.fromkeys([*self.platter.values(), *named]))

    def settle(self, count: int) -> None:
        for names in self.dirty[:count]:
            _rename(self.platter, names)
        self.dirty.clear()


def _rename(entries: dict[str, Inode], names: dict[str, Inode | None]) -> None:
    for name, inode in names.items():
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode
