"""The courier: makes one attempt to hand a parcel over, and judges what came of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from chappe.clock import Clock
from chappe.push.webpush.encryption import KEY_SEED_BYTES, SALT_BYTES, encrypt, make_key
from chappe.push.webpush.line import Parcel
from chappe.push.webpush.message import headers_of
from chappe.push.webpush.service import Answer, Blocked, Posting, Unanswered
from chappe.push.webpush.vapid import Vapid

# Not now, though the request is fine: too slow, too early, too many.
_LATER = frozenset({408, 425, 429})
_GONE = frozenset({404, 410})


class Outcome(StrEnum):
    """What became of a note for a client."""

    # The push service has it.
    HANDED = "handed"
    # The browser has taken its subscription back, and it is forgotten.
    GONE = "gone"
    TOO_LARGE = "too_large"
    # No attempt can mend it.
    REFUSED = "refused"
    # The endpoint is at an address that nothing is sent to.
    BLOCKED = "blocked"
    # Not yet.
    LATER = "later"
    # Acknowledged, or taken back, before it could be tried again.
    NEEDLESS = "needless"
    # Tried as often, or for as long, as may be.
    GAVE_UP = "gave_up"
    # There was no room for it.
    CROWDED_OUT = "crowded_out"
    # Which subscriptions there are is not known.
    UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """An outcome, what it was judged by, and when the push service wants to be asked again."""

    outcome: Outcome
    cause: str
    retry_after_s: float | None = None


class Courier:
    """Encrypts, signs, posts."""

    def __init__(
        self, services: Posting, vapid: Vapid, clock: Clock, entropy: Callable[[int], bytes]
    ) -> None:
        self.public_text = vapid.public_text
        self._services = services
        self._vapid = vapid
        self._clock = clock
        self._entropy = entropy

    async def carry(self, parcel: Parcel) -> Verdict:
        """Make one attempt."""
        subscription, now_ms = parcel.subscription, self._clock.wall_ms()
        headers = headers_of(parcel.note, subscription, now_ms)
        headers["authorization"] = self._vapid.authorization(subscription.origin, now_ms // 1000)
        body = encrypt(
            parcel.text,
            subscription.point,
            subscription.auth,
            self._entropy(SALT_BYTES),
            make_key(self._entropy(KEY_SEED_BYTES)),
        )
        try:
            return judge(await self._services.post(subscription.endpoint, headers, body))
        except Unanswered as error:
            return Verdict(Outcome.LATER, str(error))
        except Blocked as error:
            return Verdict(Outcome.BLOCKED, str(error))

    async def close(self) -> None:
        """Close connections."""
        await self._services.close()


def judge(answer: Answer) -> Verdict:
    """What an answer means (RFC 8030, sections 5 and 7.3)."""
    status, cause = answer.status, str(answer.status)
    if 200 <= status < 300:
        return Verdict(Outcome.HANDED, cause)
    if status in _GONE:
        return Verdict(Outcome.GONE, cause)
    if status == 413:
        return Verdict(Outcome.TOO_LARGE, cause)
    if status >= 500 or status in _LATER:
        return Verdict(Outcome.LATER, cause, answer.retry_after_s)
    return Verdict(Outcome.REFUSED, cause)
