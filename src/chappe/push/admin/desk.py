"""The desk: all that app servers, devices and administrators ask of push, in one place."""

from __future__ import annotations

from collections.abc import Callable

from chappe.clock import Clock
from chappe.events.pushrecorder import PushRecorder
from chappe.ids import PrefixedIds
from chappe.push.admin.apps import Apps
from chappe.push.admin.clients import Clients
from chappe.push.admin.counting import Counting
from chappe.push.admin.gate import SignedGate
from chappe.push.admin.handing import Handing
from chappe.push.admin.jobs import Jobs
from chappe.push.admin.notes import Notes
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.rates import Rates
from chappe.push.admin.sending import Sending
from chappe.push.admin.targets import Targets
from chappe.push.admin.topics import Topics
from chappe.push.comets import Comets
from chappe.push.identity import Identity
from chappe.push.provider import NoProvider, Provider
from chappe.push.seal import Seal
from chappe.push.state.states import States
from chappe.push.web.clicks import Clicks
from chappe.push.web.tokens import Tokens
from chappe.push.webpush.webpush import WebPush


class PushDesk:
    """What a process answers that is `web` or `admin` (P1)."""

    def __init__(
        self,
        states: States,
        comets: Comets,
        seal: Seal,
        identity: Identity,
        *,
        ids: PrefixedIds,
        clock: Clock,
        entropy: Callable[[int], bytes],
        recorder: PushRecorder,
        provider: Provider | None = None,
        webpush: WebPush | None = None,
        options: DeskOptions | None = None,
    ) -> None:
        self.options = options = options or DeskOptions()
        provider = provider or webpush or NoProvider()
        rates = Rates(clock)
        handing = Handing(states, comets, options.batch)
        counting = Counting(states, recorder)
        self.apps = Apps(states.meta, seal, clock, entropy)
        self.gate = SignedGate(self.apps, states.meta, clock)
        self.clients = Clients(states, comets, counting)
        self.tokens = Tokens(
            states.user,
            self.clients,
            comets,
            identity,
            ids=ids,
            clock=clock,
            entropy=entropy,
            rates=rates,
            options=options,
        )
        self.topics = Topics(states, self.clients, comets, clock, options)
        targets = Targets(states, self.clients)
        self.sending = Sending(
            states,
            targets,
            handing,
            counting,
            provider,
            ids=ids,
            clock=clock,
            rates=rates,
            options=options,
        )
        self.notes = Notes(states, targets, handing, counting, provider, self.sending, clock)
        self.jobs = Jobs(states.meta)
        self.clicks = Clicks(states.meta, self.tokens, counting)
        self.subscriptions = webpush.desk(self.tokens) if webpush is not None else None
