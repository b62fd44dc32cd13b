"""Allowances: rate limits that cost a subtraction per message.

A session is given messages and bytes in advance, in small shares from its own buckets and its
app's. Only when a share is used up does anybody look at a clock.
"""

from __future__ import annotations

from chappe.errors import Overload
from chappe.hub.app import App
from chappe.hub.bucket import Bucket
from chappe.hub.options import Rate
from chappe.hub.session import UNBOUNDED, Session

# A hundredth of a second's worth: an idle session holds back little of its app's share.
_SHARES_PER_S = 100


class Allowances:
    """The buckets that one session draws on."""

    __slots__ = ("_byte_share", "_bytes", "_message_share", "_messages")

    def __init__(self, rate: Rate, app: App, now: float) -> None:
        self._messages = _buckets(rate.messages_per_s, app.message_bucket, now)
        self._bytes = _buckets(rate.bytes_per_s, app.byte_bucket, now)
        self._message_share = _share(rate.messages_per_s, app.quota.messages_per_s)
        self._byte_share = _share(rate.bytes_per_s, app.quota.bytes_per_s)

    @property
    def bounded(self) -> bool:
        """Whether any bucket limits this session."""
        return bool(self._messages or self._bytes)

    def start(self, session: Session) -> None:
        """Give a new session nothing where a bucket will have to be asked."""
        session.message_allowance = 0 if self._messages else UNBOUNDED
        session.byte_allowance = 0 if self._bytes else UNBOUNDED

    def refill(self, session: Session, now: float) -> None:
        """Give the session its next share; its allowances are below zero by what it just used.

        Raises Overload, and takes nothing, when a bucket is empty.
        """
        if session.message_allowance < 0:
            session.message_allowance = _draw(
                self._messages, session.message_allowance, self._message_share, now, "messages"
            )
        if session.byte_allowance < 0:
            try:
                session.byte_allowance = _draw(
                    self._bytes, session.byte_allowance, self._byte_share, now, "bytes"
                )
            except Overload:
                session.byte_allowance = 0
                raise

    def give_back(self, session: Session) -> None:
        """Return what a closing session did not use."""
        for buckets, left in (
            (self._messages, session.message_allowance),
            (self._bytes, session.byte_allowance),
        ):
            for bucket in buckets:
                bucket.give_back(max(0, left))


def _buckets(per_s: int, of_app: Bucket | None, now: float) -> tuple[Bucket, ...]:
    own = (Bucket(per_s, now),) if per_s else ()
    return (*own, of_app) if of_app else own


def _share(*rates: int) -> int:
    return max(1, min((rate for rate in rates if rate), default=0) // _SHARES_PER_S)


def _draw(buckets: tuple[Bucket, ...], debt: int, share: int, now: float, unit: str) -> int:
    """Pay a debt and take a share on top if there is one; returns the new allowance."""
    wanted = share - debt
    for at, bucket in enumerate(buckets):
        taken = bucket.take(wanted, now)
        if taken < -debt:
            bucket.give_back(taken)
            for earlier in buckets[:at]:
                earlier.give_back(wanted)
            raise Overload(f"rate limit: more {unit} a second than allowed")
        for earlier in buckets[:at]:
            earlier.give_back(wanted - taken)
        wanted = int(taken)
    return wanted + debt
