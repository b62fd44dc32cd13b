"""Apps that are removed or switched off: their devices are told, and their sessions end (P10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chappe.push.app import PushApp
from chappe.wire.push import PushError
from tests.loop import on_loop
from tests.push.comet.rig import APP, Rig, codes


async def _remove(rig: Rig) -> None:
    await rig.states.meta.remove_app(APP)


async def _disable(rig: Rig) -> None:
    app: PushApp = (await rig.states.meta.apps([APP]))[APP]
    await rig.states.meta.put_app(msgspec.structs.replace(app, enabled=False), new=False)


@pytest.mark.parametrize("end", [_remove, _disable])
@on_loop
async def test_sessions_of_an_app_that_is_removed_or_switched_off_end(end: Any) -> None:  # P10
    rig = Rig()
    devices = [await rig.live() for _ in range(70)]
    joining = await rig.login()
    await rig.pass_s(1)
    assert not any(device.session.closed for device in devices)
    await end(rig)
    # While the store is away nobody is ended.
    rig.away(True, "meta")
    await rig.pass_s(1)
    assert not any(device.session.closed for device in devices)
    rig.away(False, "meta")
    await rig.pass_s(1)
    for device in [*devices, joining]:
        assert codes(device.heard())[-1:] == [PushError.CLIENT_NOT_FOUND]
        assert device.session.closed
    assert not rig.comets[0].audience.apps
    assert await rig.states.route.find([device.client for device in devices]) == {}


@on_loop
async def test_many_apps_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.push.comet.apps.APPS_AT_ONCE", 2)
    rig = Rig()
    device = await rig.live()
    for other in "abcde":
        rig.comets[0].audience.apps[other] = 1
    device.session.app = "e"
    for _ in range(3):
        assert not device.session.closed
        await rig.pass_s(1)
    assert device.session.closed
