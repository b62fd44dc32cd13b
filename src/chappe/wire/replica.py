"""What nodes say to each other about the journals of brokers, and their copies (Q10).

    replica                                          master of an epoch
       <----------------- Invite ---------------------
       ------ Follow: which epochs its copy has ------>
       <--- Following: where the two logs part --------
       <------------ Batches, Batches, .. -------------   bounded by what `received` says
       ------------ Appended: flushed so far --------->

Whoever hears of an epoch that is over answers Superseded, with the newer one.
"""

from __future__ import annotations

from chappe.wire.nodeop import NodeOp


class Masters(NodeOp, tag=93):
    """The brokers this node is master of, each with its epoch: all of them."""

    brokers: list[tuple[str, int]]


class Invite(NodeOp, tag=94):
    """You are to follow this broker, whose master this node is."""

    broker: str
    epoch: int


class Follow(NodeOp, tag=95):
    """This node has a copy from `start` to `end`: each epoch of it with the position of its
    beginning, and the highest epoch that it has heard of."""

    broker: str
    epoch: int
    epochs: list[tuple[int, int]]
    start: int
    end: int


class Following(NodeOp, tag=96):
    """Cut your copy back to `lsn`; or, with `anew`, begin it there, in the epoch `base_epoch`.

    `end` is how far the master's log is.
    """

    broker: str
    epoch: int
    lsn: int
    end: int
    anew: bool = False
    base_epoch: int = 0


class Batches(NodeOp, tag=97):
    """A part of the log, from `lsn` on; with `more`, the last batch goes on in the next op.

    What is before `start` is not kept any more.
    """

    broker: str
    epoch: int
    lsn: int
    data: bytes
    more: bool = False
    start: int = 0


class Appended(NodeOp, tag=98):
    """All below `lsn` is on this node's disk, all below `received` in its memory.

    With `stopped` it copies no more, and wants to be invited again a little later.
    """

    broker: str
    epoch: int
    lsn: int
    received: int
    stopped: bool = False


class Superseded(NodeOp, tag=99):
    """The epoch that you spoke of is over: this one is newer."""

    broker: str
    epoch: int


class Inquire(NodeOp, tag=100):
    """What do you know of this broker?"""

    number: int
    broker: str


class Standing(NodeOp, tag=101):
    """The highest epoch heard of and its master; the copy's own last epoch, its end, and whether
    nothing of it is known to be missing or damaged."""

    number: int
    broker: str
    epoch: int
    owner: str
    last: int
    end: int
    whole: bool


REPLICA_OPS: tuple[type[NodeOp], ...] = (
    Masters,
    Invite,
    Follow,
    Following,
    Batches,
    Appended,
    Superseded,
    Inquire,
    Standing,
)
