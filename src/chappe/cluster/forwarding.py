"""Forwarding: messages to users on other nodes, and the verdicts that come back (H11, H12).

    route hit:  forward --> taken                                        ok
                        --> returned, unreachable: delete the route, and look once more
                        --> silence until the time limit                 overload, outcome unknown
    route miss: ask every node --> one has it: forward
                               --> all miss, or the time is over         unreachable

Nothing here is a future: a verdict finds its request by a number, in a table that is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chappe.cluster.peer import Peer
from chappe.cluster.pending import Awaited, Pending, PendingRun
from chappe.cluster.verdicts import Verdicts
from chappe.endpoints.user import Users
from chappe.errors import Overload, RequestError, Unreachable, request_error
from chappe.hub.answer import Answer, RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.fanout import runs_of
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.node import (
    FORGET_REFUSED,
    RETURN_REFUSED,
    Find,
    Forward,
    Found,
    Returned,
    Taken,
    ToHome,
)

if TYPE_CHECKING:
    from chappe.cluster.routes import Routes

# Messages that wait for one search.
_WAITING_MAX = 1000
_SEARCHES_MAX = 100_000
# How long it is remembered that nobody has an address: strangers who write to users that are not
# there must not make every node work for each message. Whoever comes online is known at once.
MISSING_S = 1.0
_MISSING_MAX = 100_000

Key = tuple[str, str]


class Search:
    """An address that every node was asked for."""

    __slots__ = ("due", "expected", "key", "questions", "tells", "waiting")

    def __init__(self, key: Key, due: float) -> None:
        self.key = key
        self.due = due
        # Whether to wait, all the same, for a node whose link is not up yet.
        self.expected = False
        self.questions: dict[Peer, int] = {}
        self.waiting: list[tuple[Message, Answer]] = []
        self.tells: list[Callable[[bool], None]] = []


class Forwarding:
    """Takes messages to the nodes where their receivers are."""

    def __init__(
        self, hub: Hub, users: Users, routes: Routes, now: Callable[[], float], timeout_s: float
    ) -> None:
        self._hub = hub
        self._users = users
        self._routes = routes
        self._now = now
        self._timeout_s = timeout_s
        self._number = 0
        self._searches: dict[Key, Search] = {}
        self._asked: dict[int, Search] = {}
        # Oldest first.
        self._missing: dict[Key, float] = {}
        # One for each peer, since they hold nothing.
        self._silent_runs: dict[Peer, tuple[_SilentRun]] = {}
        self.peers: Callable[[], Iterable[Peer]] = tuple
        # Whether somebody may be on a node whose link is not up yet.
        self.expected: Callable[[str, str], bool] = _nobody
        self.finds = 0

    def send(self, app: App, user: str, message: Message, answer: Answer) -> None:
        """Take a message to a user on other nodes; raises RequestError if that is known at once."""
        there = app.routes.get(user, ())
        peer = there[0] if len(there) == 1 else None
        if isinstance(peer, Peer) and peer.up and isinstance(answer, SilentAnswer | RequestAnswer):
            self._gather(app, peer, message, answer)
        elif not any(peer.up for peer in there if isinstance(peer, Peer)):
            self._look(app.name, user, (message, answer), None)
        else:
            self._hub.fanout.end()  # what is gathered came before this
            self._forward(app.name, there, message, answer, last=False)

    def _gather(
        self, app: App, peer: Peer, message: Message, answer: SilentAnswer | RequestAnswer
    ) -> None:
        """Begin a run to a user on one other node, which more of the same may join."""
        peer.check_room()
        fanout, to = self._hub.fanout, message.to
        if isinstance(answer, RequestAnswer):
            asking = _AskingRun(self, peer, answer)
            relays = (asking,)
            fanout.begin(app, to, (), promised=True, relays=relays, elsewhere=True, asking=asking)
        else:
            runs = self._silent_runs.get(peer)
            if runs is None:
                runs = self._silent_runs[peer] = (_SilentRun(self, peer),)
            fanout.begin(app, to, (), promised=True, relays=runs, elsewhere=True)
        fanout.add(message, None)

    def forward_run(self, peer: Peer, app: str, messages: list[Message], first: int) -> None:
        """Take a run to its receiver's node, or look for the receiver if that has just gone."""
        if peer.up:
            peer.forward_all(app, messages, first)
        else:
            self._return_unsent(peer, Forward(app, first, messages))

    def forward_requests(
        self, peer: Peer, app: str, messages: list[Message], session: Session, requests: list[int]
    ) -> None:
        """Take a run of a session's requests to its receiver's node; their verdicts come back."""
        due = self._now() + self._timeout_s
        pending = PendingRun(self._hub, session, requests, messages, due)
        self.forward_run(peer, app, messages, peer.await_all(pending, len(messages)))

    def _forward(
        self, app: str, there: Iterable[object], message: Message, answer: Answer, *, last: bool
    ) -> None:
        peers = [peer for peer in there if isinstance(peer, Peer) and peer.up]
        if not peers:
            raise Unreachable(f"{message.to} was on a node that has just gone")
        pending = Pending(answer, len(peers), self._now() + self._timeout_s, last=last)
        refusal: RequestError | None = None
        went_to: list[str] = []
        for peer in peers:
            try:
                peer.forward(app, message, pending)
                went_to.append(peer.name)
            except Overload as error:
                pending.nodes -= 1
                refusal = error
        if refusal is not None and not pending.nodes:
            raise refusal
        self._hub.recorder.forwarded(app, (message,), "", went_to, promised=True)

    def serve(self, peer: Peer, op: Forward) -> None:
        """Deliver what a peer forwarded, and send the verdicts back."""
        app, verdicts = self._hub.apps.get(op.app), Verdicts(peer, op.app, op.first)
        users = self._users
        for run in runs_of(op.messages):
            if len(run) > 1 and app is not None and users.deliver_run_here(app, run):
                verdicts.took(len(run))
                continue
            for message in run:
                try:
                    if app is None:
                        raise Unreachable(f"{message.to} is not online")
                    users.deliver_here(app, message)
                    verdicts.took(1)
                except RequestError as error:
                    if (
                        op.first == FORGET_REFUSED
                        and app is not None
                        and isinstance(error, Overload)
                    ):
                        users.missed_here(app, message.to)
                    self._hub.recorder.declined(op.app, (message,), error.code)
                    verdicts.refused(message, error)
        verdicts.tell()

    def taken(self, peer: Peer, op: Taken) -> None:
        """A peer took messages."""
        pop, nodes = peer.pending.pop, op.nodes
        for number in range(op.first, op.first + op.count):
            pending = pop(number, None)
            if pending is not None:
                pending.take(number, nodes)

    def returned(self, peer: Peer, op: Returned) -> None:
        """A peer refused a message: another one may have its receiver."""
        error = request_error(op.error, op.reason, outcome_unknown=op.unknown)
        awaited = peer.pending.pop(op.number, None) if op.number else None
        pending = awaited.one(op.number) if awaited is not None else None
        if op.number and pending is None:
            return  # its time was over
        stale = isinstance(error, Unreachable) and (pending is None or not pending.topic)
        if stale:
            user = self._forget_route(peer, op.app, op.message)
            again = pending is None or pending.may_repeat
            if again and user is not None:
                silent = SilentAnswer(self._hub, op.app)
                self._look_again(op.app, user, op.message, pending.answer if pending else silent)
                return
        if pending is None:
            self._hub.recorder.refused(op.app, error.code)
        elif pending.open:
            pending.fail(error)

    def _forget_route(self, peer: Peer, name: str, message: Message) -> str | None:
        app = self._hub.apps.get(name)
        if app is None:
            return message.to if message.to.startswith("user:") else None
        try:
            user = self._users.user_of(app, message.to)
        except RequestError:
            return None
        # Of an avatar that node may not have heard yet: whether its user is there is asked.
        if user == message.to:
            self._routes.remove(app, user, peer)
        return user

    def _look_again(self, app: str, user: str, message: Message, answer: Answer) -> None:
        try:
            self._look(app, user, (message, answer), None)
        except RequestError as error:
            answer.fail(error)

    def ask_online(self, app: App, user: str, tell: Callable[[bool], None]) -> None:
        """Tell whether any other node has a user; raises Overload."""
        try:
            self._look(app.name, user, None, tell)
        except Unreachable:
            tell(False)

    def _look(
        self,
        app: str,
        user: str,
        waiting: tuple[Message, Answer] | None,
        tell: Callable[[bool], None] | None,
    ) -> None:
        """Ask every node for a user; raises Unreachable when there is none to ask, or Overload."""
        key = (app, user)
        search = self._searches.get(key)
        if search is None:
            search = self._begin(key)
        if waiting is not None:
            if len(search.waiting) >= _WAITING_MAX:
                raise Overload(f"too many messages wait until {user} is found")
            search.waiting.append(waiting)
        if tell is not None:
            if len(search.tells) >= _WAITING_MAX:
                raise Overload(f"too many wait until {user} is found")
            search.tells.append(tell)

    def _begin(self, key: Key) -> Search:
        app, user = key
        peers = [peer for peer in self.peers() if peer.up]
        until = self._missing.get(key)
        expected = self.expected(app, user)
        if (not peers and not expected) or (until is not None and self._now() < until):
            raise Unreachable(f"{user} is not online")
        if len(self._searches) >= _SEARCHES_MAX:
            raise Overload("too many users are being looked for")
        search = self._searches[key] = Search(key, self._now() + self._timeout_s)
        search.expected = expected
        self.finds += 1
        for peer in peers:
            self._number += 1
            search.questions[peer] = self._number
            self._asked[self._number] = search
            peer.tell(Find(self._number, app, user))
        return search

    def find(self, peer: Peer, op: Find) -> None:
        """Answer a peer that looks for somebody; one who is here is announced to all again."""
        app = self._hub.apps.get(op.app)
        here = app is not None and op.address in app.endpoints
        if app is not None and here:
            self._routes.announce(app, op.address)
        peer.tell(Found(op.number, here))

    def found(self, peer: Peer, op: Found) -> None:
        """A peer answered; the first that has the user ends the search, as does the last."""
        search = self._asked.pop(op.number, None)
        if search is None:
            return
        search.questions.pop(peer, None)
        if op.here:
            self._routes.add(peer, *search.key)
        elif peer.synced:  # until then its table is still on its way, and may be younger
            name, user = search.key
            app = self._hub.apps.get(name)
            if app is not None:
                self._routes.remove(app, user, peer)
        if op.here or not (search.questions or search.expected):
            self._end(search)

    def online(self, app: App, user: str) -> None:
        """A user has come: whoever looks for it has found it."""
        key = (app.name, user)
        self._missing.pop(key, None)
        search = self._searches.get(key)
        if search is not None:
            self._end(search)

    def _end(self, search: Search) -> None:
        name, user = search.key
        if self._searches.get(search.key) is not search:
            return  # a route that it found ended it already
        del self._searches[search.key]
        for number in search.questions.values():
            self._asked.pop(number, None)
        app = self._hub.apps.get(name)
        there = app.routes.get(user) if app is not None else None
        here = app is not None and user in app.endpoints
        if not there and not here:
            self._remember_missing(search.key)
        for tell in search.tells:
            tell(bool(there) or here)
        for message, answer in search.waiting:
            try:
                if app is not None and here:
                    self._users.deliver_here(app, message)
                    answer.ok()
                    for relay in there or ():
                        relay.relay(name, [message], promised=True)
                elif there:
                    self._forward(name, there, message, answer, last=True)
                else:
                    raise Unreachable(f"{message.to} is not online")
            except RequestError as error:
                answer.fail(error)

    def _remember_missing(self, key: Key) -> None:
        self._missing[key] = self._now() + MISSING_S
        if len(self._missing) > _MISSING_MAX:
            del self._missing[next(iter(self._missing))]

    def lost(self, peer: Peer) -> None:
        """A peer is gone: what it was asked has no answer, what it was sent an unknown outcome."""
        for op in peer.unsent():
            if isinstance(op, Forward) and op.first != FORGET_REFUSED:
                self._return_unsent(peer, op)
            elif isinstance(op, ToHome) and op.silent:
                for _ in op.messages:  # surely not published, and nobody awaits them
                    self._hub.recorder.refused(op.app, Overload.code)
        self._silent_runs.pop(peer, None)
        pending, peer.pending = peer.pending, {}
        for number, awaited in pending.items():
            one = awaited.one(number)
            if one.open:
                one.fail(Overload("the receiver's node went away", outcome_unknown=True))
        for search in [s for s in self._searches.values() if peer in s.questions]:
            self._asked.pop(search.questions.pop(peer), None)
            if not (search.questions or search.expected):
                self._end(search)

    def _return_unsent(self, peer: Peer, op: Forward) -> None:
        """What was never handed to the link was surely not taken: it may be tried elsewhere."""
        for place, message in enumerate(op.messages):
            number = op.first + place if op.first > 0 else 0
            reason = f"{message.to} was on a node that has just gone"
            self.returned(peer, Returned(number, op.app, Unreachable.code, reason, message))

    def sweep(self, peers: Iterable[Peer]) -> None:
        """End what has waited for longer than the time limit."""
        now = self._now()
        for peer in peers:
            for number, pending in list(_until_due(peer.pending, now)):
                del peer.pending[number]
                one = pending.one(number)
                if one.open:
                    one.fail(Overload("no verdict in time", outcome_unknown=True))
        for search in [s for s in self._searches.values() if s.due <= now]:
            self._end(search)
        while self._missing and next(iter(self._missing.values())) <= now:
            del self._missing[next(iter(self._missing))]


class _SilentRun:
    """Takes messages that nobody asked an answer for to their receiver's node."""

    __slots__ = ("_forwarding", "_peer", "name")
    full = False  # it is looked at when such a run begins

    def __init__(self, forwarding: Forwarding, peer: Peer) -> None:
        self._forwarding = forwarding
        self._peer = peer
        self.name = peer.name

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        self._forwarding.forward_run(self._peer, app, messages, RETURN_REFUSED)


class _AskingRun:
    """Takes messages that are a session's requests to their receiver's node."""

    __slots__ = ("_forwarding", "_peer", "name", "requests", "session")
    full = False  # it is looked at when such a run begins

    def __init__(self, forwarding: Forwarding, peer: Peer, answer: RequestAnswer) -> None:
        self._forwarding = forwarding
        self._peer = peer
        self.name = peer.name
        self.session = answer.session
        self.requests = [answer.request]

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        requests = self.requests
        self._forwarding.forward_requests(self._peer, app, messages, self.session, requests)


def _until_due(pending: dict[int, Awaited], now: float) -> Iterable[tuple[int, Awaited]]:
    """Those whose time is over: all have the same limit, so the oldest are due first."""
    for number, one in pending.items():
        if one.due > now:
            return
        yield number, one


def _nobody(app: str, user: str) -> bool:
    return False
