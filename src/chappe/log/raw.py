"""Raw batches: what a replica gets from its master, checked before any of it is kept."""

from __future__ import annotations

from chappe.errors import BadRequest, Forbidden
from chappe.log.batch import Batch, Damaged, Torn, read_batch


def check_raw(data: bytes, lsn: int, epoch: int, *, begins: bool) -> list[Batch]:
    """Read whole batches that continue a log at a position.

    Raises BadRequest when they are damaged, cut, of another position or of two segments, and
    Forbidden when their epoch is lower than the log's. `begins`: they have to begin a segment.
    """
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        batch = read_batch(data, at)
        if isinstance(batch, Torn):
            raise BadRequest(f"batches: cut at {lsn + at}")
        if isinstance(batch, Damaged):
            raise BadRequest(f"batches: damaged at {lsn + at}: {batch.reason}")
        if batch.lsn != lsn + at:
            raise BadRequest(f"batches: position {batch.lsn} where {lsn + at} should be")
        if batch.epoch < epoch:
            raise Forbidden(f"epoch {batch.epoch} is over, this log is in {epoch}")
        if batch.first and at:
            raise BadRequest(f"batches: another segment begins at {batch.lsn}")
        epoch = batch.epoch
        batches.append(batch)
        at += len(batch.data)
    if not batches:
        raise BadRequest("batches: none")
    if begins and not batches[0].first:
        raise BadRequest(f"batches: no segment begins at {lsn}")
    return batches
