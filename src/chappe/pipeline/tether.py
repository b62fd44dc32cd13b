"""A tether between a stream that a server of Spark Connect runs and the client that began it.

The server handles batches by itself, and would go on when the client was killed; whoever came next
would work on the same tables at the same time. So the client holds a lock for as long as its
process lives, a batch begins only while that is held, and is seen to be under way by a lock of its
own. Both are files beside the tables, which client and server see anyhow; and so is what a batch
did, which the client tells.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from chappe.errors import ChappeError

_CLIENT = "_client"
_BATCH = "_batch"
_DONE = "_done"


class ClientGone(ChappeError):
    """Whoever began the stream is not there any more."""


@dataclass(frozen=True)
class Tether:
    """The server's end of it; can be sent there."""

    tables: Path
    token: str

    @classmethod
    def tie(cls, tables: Path) -> Self:
        """Hold a stream of these tables to this process. The lock goes with the process, and not
        before: nothing else tells a server of one that was killed."""
        tables = tables.absolute()
        tables.mkdir(parents=True, exist_ok=True)
        token = uuid.uuid4().hex
        client = os.open(tables / _CLIENT, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(client, fcntl.LOCK_SH)
        os.ftruncate(client, 0)
        os.pwrite(client, token.encode(), 0)
        # Nobody waits any more for what was done for another client.
        shutil.rmtree(tables / _DONE, ignore_errors=True)
        return cls(tables, token)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Be seen at work. Raises ClientGone if nobody waits for it any more."""
        with held(self.tables):
            self._check_client()
            yield

    def report(self, run: int, did: dict[str, Any]) -> None:
        """Leave word for the client of what a run did."""
        place = self.tables / _DONE
        place.mkdir(exist_ok=True)
        # What was found to be spoiled is told also where there was no run, maybe several times.
        name = f"{run:012}-{uuid.uuid4().hex}"
        aside = place / f".{name}"
        aside.write_text(json.dumps(did))
        aside.replace(place / f"{name}.json")

    def reports(self) -> Iterator[dict[str, Any]]:
        """What runs did since this was asked last, each told once."""
        for file in sorted((self.tables / _DONE).glob("*.json")):
            did = json.loads(file.read_bytes())
            file.unlink()
            yield did

    def _check_client(self) -> None:
        with (self.tables / _CLIENT).open("rb") as client:
            if client.read().decode() != self.token or _free(client.fileno()):
                raise ClientGone(f"{self.tables}: the client that began this stream is gone")


@contextmanager
def held(tables: Path) -> Iterator[None]:
    """Keep batches from beginning. Raises ChappeError if one is under way."""
    with (tables / _BATCH).open("ab") as lock:
        if not _free(lock.fileno()):
            raise ChappeError(f"{tables}: a stream is still at work on these tables")
        yield


def _free(lock: int) -> bool:
    """Whether nobody else had it; it is ours then, until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
