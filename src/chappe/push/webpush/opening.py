"""Web Push put together."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from chappe.clock import Clock
from chappe.events.pushrecorder import PushRecorder
from chappe.push.seal import Seal
from chappe.push.state.states import States
from chappe.push.webpush.courier import Courier
from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.service import PushServices, Resolve, resolve
from chappe.push.webpush.subscriptions import Subscriptions
from chappe.push.webpush.vapid import load_vapid
from chappe.push.webpush.webpush import WebPush


async def open_webpush(
    states: States,
    seal: Seal,
    *,
    clock: Clock,
    entropy: Callable[[int], bytes],
    rng: Random,
    recorder: PushRecorder,
    options: WebPushOptions,
    resolve: Resolve = resolve,
) -> WebPush:
    """A provider that has not started yet; raises StorageError."""
    vapid = await load_vapid(states.meta, seal, entropy, options.contact)
    return WebPush(
        states,
        Subscriptions(states, seal),
        Courier(PushServices(options, resolve), vapid, clock, entropy),
        clock=clock,
        rng=rng,
        recorder=recorder,
        options=options,
    )
