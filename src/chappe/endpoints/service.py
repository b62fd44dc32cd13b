"""A service (H18): requests queue to its providers, the least busy first.

    request --> waiting --(a provider is free)--> in hand --respond--> answered
                   ^                                 |
                   +----- idempotent ----------------+ its provider is gone
                                                     +--> unreachable, at once

A call is open until it is answered, and never longer than its time limit. A provider has a bounded
number in hand; what it has in hand counts until it responds, even if who asked is gone, so that
nobody can make it do more at once by asking and leaving.

No clock and no sessions here: time is an argument, an Exchange does what is to be done.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from chappe.endpoints.limits import ServiceLimits
from chappe.endpoints.provider import Call, Calls, Provider, Roster
from chappe.errors import Overload, RequestError, Unreachable

if TYPE_CHECKING:
    from chappe.hub.session import Session


class Exchange(Protocol):
    """Where a service's decisions are carried out."""

    def hand_over(self, session: Session, call: Call) -> bool:
        """Ask a provider; False when there is no room to."""
        ...

    def failed(self, call: Call, error: RequestError, *, outcome_unknown: bool) -> None:
        """Tell who asked that no answer comes; unknown when a provider may have acted on it."""
        ...


class Service:
    """The providers of one service, and what waits for them."""

    def __init__(
        self, address: str, limits: ServiceLimits, calls: Calls, exchange: Exchange
    ) -> None:
        self.address = address
        # How many providers take requests; with none the service is to be reclaimed.
        self.active = 0
        self._limits = limits
        self._calls = calls
        self._exchange = exchange
        self._providers: dict[Session, Provider] = {}
        self._roster = Roster(limits.in_flight_max)
        self._waiting: OrderedDict[str, Call] = OrderedDict()
        self._bytes = 0
        self._woken: list[Any] | None = None

    def __contains__(self, session: Session) -> bool:
        return session in self._providers

    def provide(self, session: Session, now: float) -> None:
        """Let a session take requests."""
        provider = self._providers.get(session)
        if provider is None:
            provider = self._providers[session] = Provider(self, session)
        elif not provider.retired:
            return
        provider.retired = False
        self.active += 1
        self._roster.place(provider)
        self._hand_out(now)

    def withdraw(self, session: Session) -> bool:
        """Let a session take no more; what it has in hand it may still answer. False if it does
        not provide."""
        provider = self._providers.get(session)
        if provider is None or provider.retired:
            return False
        self._retire(provider)
        if not provider.calls:
            del self._providers[session]
        self._fail_waiting()
        return True

    def leave(self, session: Session, now: float) -> None:
        """A provider is gone: who may be served by another is, the others are told at once."""
        provider = self._providers.pop(session, None)
        if provider is None:
            return
        if not provider.retired:
            self._retire(provider)
        for call in reversed(list(provider.calls.values())):
            self._release(call)
            if call.requester is None:
                self._close(call)
            elif self._may_repeat(call):
                self._wait_in_front(call)
            else:
                reason = f"a provider of {self.address} went away before it answered"
                self._fail(call, Unreachable(reason), outcome_unknown=True)
        self._fail_waiting()
        if self._woken is None and self._waiting:
            # Many may leave together, as when a link breaks: what waits must not be given to one
            # that goes in the same turn.
            self._woken = self._calls.deadlines.add(now, self)

    def lapse(self, now: float) -> None:
        """All who leave together have left: hand out what waits."""
        self._woken = None
        self._hand_out(now)

    def request(self, call: Call, requester: Session, timeout_s: float, now: float) -> None:
        """Give a call to a provider, or let it wait for one; raises Unreachable or Overload."""
        if not self.active:
            raise Unreachable(f"{self.address} has no provider")
        if len(self._waiting) >= self._limits.waiting_max:
            raise Overload(f"{len(self._waiting)} requests wait for {self.address} already")
        if self._bytes + len(call.payload) > self._limits.bytes_max:
            raise Overload(f"the requests to {self.address} hold {self._bytes} bytes already")
        self._bytes += len(call.payload)
        self._calls.open(call, requester, now + timeout_s)
        self._waiting[call.id] = call
        self._hand_out(now)

    def answered(self, call: Call, now: float) -> None:
        """A call's provider responded."""
        provider = self._release(call)
        self._close(call)
        self.resume(provider, now)

    def abandon(self, call: Call) -> None:
        """Who asked is gone: nothing waits for it, and nothing is repeated for it."""
        self._calls.disown(call)
        self._forget_payload(call)
        if call.provider is None:
            del self._waiting[call.id]
            self._close(call)

    def expire(self, call: Call, now: float) -> None:
        """A call's time is over."""
        if call.provider is None:
            del self._waiting[call.id]
            reason = f"no provider of {self.address} was free in time"
            # One that was repeated has been with a provider before.
            self._fail(call, Overload(reason), outcome_unknown=call.attempts > 0)
            return
        provider = self._release(call)
        if call.requester is None:
            self._close(call)
        else:
            reason = f"{self.address} did not answer in time"
            self._fail(call, Overload(reason), outcome_unknown=True)
        self._settle(provider)
        self._hand_out(now)

    def resume(self, provider: Provider, now: float) -> None:
        """A provider shows that it reads, or is to be tried again."""
        if provider.stalled is not None:
            self._calls.deadlines.cancel(provider.stalled)
            provider.stalled = None
        self._settle(provider)
        self._hand_out(now)

    def _hand_out(self, now: float) -> None:
        while self._waiting and (provider := self._roster.next()) is not None:
            _, call = self._waiting.popitem(last=False)
            call.provider = provider
            provider.calls[call.id] = call
            if self._exchange.hand_over(provider.session, call):
                call.attempts += 1
                if not call.idempotent:
                    self._forget_payload(call)
            else:
                self._release(call)
                self._wait_in_front(call)
                until = now + self._limits.stall_s
                provider.stalled = self._calls.deadlines.add(until, provider)
            self._roster.place(provider)

    def _settle(self, provider: Provider) -> None:
        """Find a provider its new place, after it has one call less in hand."""
        if self._providers.get(provider.session) is not provider:
            return
        if provider.retired and not provider.calls:
            del self._providers[provider.session]
        else:
            self._roster.place(provider)

    def _retire(self, provider: Provider) -> None:
        provider.retired = True
        self.active -= 1
        self._roster.remove(provider)
        if provider.stalled is not None:
            self._calls.deadlines.cancel(provider.stalled)
            provider.stalled = None

    def _release(self, call: Call) -> Provider:
        provider = call.provider
        assert provider is not None, "only what is in hand is released"
        call.provider = None
        del provider.calls[call.id]
        return provider

    def _may_repeat(self, call: Call) -> bool:
        return call.idempotent and call.attempts < self._limits.attempts_max

    def _wait_in_front(self, call: Call) -> None:
        self._waiting[call.id] = call
        self._waiting.move_to_end(call.id, last=False)

    def _fail_waiting(self) -> None:
        """With no provider left, tell everybody who waits for one."""
        while self._waiting and not self.active:
            _, call = self._waiting.popitem(last=False)
            error = Unreachable(f"{self.address} has no provider any more")
            self._fail(call, error, outcome_unknown=call.attempts > 0)

    def _fail(self, call: Call, error: RequestError, *, outcome_unknown: bool) -> None:
        self._close(call)
        self._exchange.failed(call, error, outcome_unknown=outcome_unknown)

    def _close(self, call: Call) -> None:
        self._forget_payload(call)
        self._calls.close(call)

    def _forget_payload(self, call: Call) -> None:
        self._bytes -= len(call.payload)
        call.payload = b""
