"""The desk with real comets: what is asked over there is what devices get here."""

from __future__ import annotations

from chappe.events.pushrecorder import PushRecorder
from chappe.ids import PrefixedIds
from chappe.push.admin.clients import Which
from chappe.push.admin.desk import PushDesk
from chappe.push.admin.notes import Change
from chappe.push.admin.order import Aim, Order
from chappe.push.app import Limits
from chappe.push.job import Tally
from chappe.push.note import RETRACT
from chappe.push.web.clicks import Click
from chappe.wire.push import PushError
from tests.loop import on_loop
from tests.push.comet.rig import IDENTITY, Device, Rig, codes, entropy
from tests.push.desks import SEAL


class Town:
    """A desk, comets, and an app with devices."""

    @classmethod
    async def make(cls, comets=2):
        town = cls()
        town.rig = rig = Rig(comets)
        town.desk = PushDesk(
            rig.states,
            rig,
            SEAL,
            IDENTITY,
            ids=PrefixedIds(9, rig.clock.wall_ms),
            clock=rig.clock,
            entropy=entropy,
            recorder=PushRecorder(rig.recorder),
        )
        town.app, _ = await town.desk.apps.create("town", open=True, limits=Limits())
        return town

    async def device(self, name, comet=1, user=None):
        """A device that took its token at the desk, and is connected."""
        ticket = await self.desk.tokens.give_open(self.app, name)
        if user is not None:
            await self.desk.clients.bind(self.app.key, user, Which(ticket.client))
        device = await self.rig.live((ticket.client, ticket.token), comet)
        device.heard()
        return device

    async def send(self, content=b"hi", order=None, **aim):
        order = Order(aim=Aim(**aim), content=content, **(order or {}))
        sent = await self.desk.sending.send(self.app, order)
        await self.rig.rest()
        return sent

    async def tally(self, sent):
        await self.rig.pass_s(2)
        return (await self.desk.jobs.find(self.app, sent.job))[1]


@on_loop
async def test_a_job_is_counted_from_the_send_to_the_click():  # P9
    town = await Town.make()
    here = await town.device("here", comet=2)
    away = await town.desk.tokens.give_open(town.app, "away")
    sent = await town.send(b"hello", devices=("here", "away"))
    assert (sent.aimed, sent.sent, sent.offline) == (2, 1, 1)
    ((message, content),) = here.read()
    assert (message.id, message.job_id, content) == (sent.note, sent.job, b"hello")
    here.ack(sent.note)
    clicks = [Click(message.job_id, message.id)]
    assert await town.desk.clicks.click(here.client, here.token, clicks) == 1
    assert await town.tally(sent) == Tally(aimed=2, sent=1, arrived=1, clicked=1, offline=1)
    late = await town.rig.live((away.client, away.token))
    assert late.ids() == [sent.note]
    late.ack(sent.note)
    assert await town.tally(sent) == Tally(aimed=2, sent=2, arrived=2, clicked=1, offline=1)


@on_loop
async def test_a_revoked_token_ends_the_connection_that_came_with_it():  # P5, P10
    town = await Town.make()
    device = await town.device("phone")
    other = await town.desk.tokens.give(town.app, "phone")
    await town.desk.tokens.revoke(town.app, other.token)
    await town.rig.rest()
    assert not device.sink.ended, "it came with another one"
    await town.desk.tokens.revoke(town.app, device.token)
    await town.rig.rest()
    assert device.sink.ended == "closed"
    assert codes(device.heard()) == [PushError.TOKEN_EXPIRED]


@on_loop
async def test_a_client_that_is_removed_is_cut_off_everywhere():
    town = await Town.make()
    device = await town.device("phone", comet=2)
    await town.desk.clients.remove(town.app.key, Which(device="phone"))
    await town.rig.rest()
    assert device.sink.ended


@on_loop
async def test_a_note_is_taken_back_from_a_device_that_has_not_acknowledged_it():  # P7
    town = await Town.make()
    quick, slow = await town.device("quick"), await town.device("slow", comet=2)
    sent = await town.send(devices=("quick", "slow"))
    quick.ack(*quick.ids())
    await town.rig.rest()
    slow.ids()
    assert await town.desk.notes.cancel(town.app, sent.note) == 1
    await town.rig.rest()
    ((message, content),) = slow.read()
    assert (message.type, content) == (RETRACT, sent.note.encode())
    assert quick.ids() == []
    tally = await town.tally(sent)
    assert (tally.arrived, tally.dropped) == (1, 1)


@on_loop
async def test_a_note_is_replaced_on_a_device_that_has_not_acknowledged_it():  # P7
    town = await Town.make()
    device = await town.device("phone")
    sent = await town.send(b"old", devices=("phone",))
    device.ids()
    new = await town.desk.notes.replace(town.app, sent.note, Change(content=b"new"))
    await town.rig.rest()
    got = [(message.type, content) for message, content in device.read()]
    assert got == [(0, b"new"), (RETRACT, sent.note.encode())]
    device.ack(new.note)
    assert (await town.tally(new)).arrived == 1


@on_loop
async def test_a_topic_that_others_give_a_device_is_its_own_at_once():  # P8
    town = await Town.make()
    device = await town.device("phone", comet=2)
    await town.desk.topics.subscribe(town.app.key, Which(device="phone"), ["news"])
    await town.rig.rest()
    sent = await town.send(b"hot", topic="news")
    assert (sent.aimed, sent.sent) == (1, 1)
    assert [content for _, content in device.read()] == [b"hot"]
    assert await town.desk.notes.cancel(town.app, sent.note) == 1
    await town.rig.rest()
    ((message, content),) = device.read()
    assert (message.type, content) == (RETRACT, sent.note.encode())
    await town.desk.topics.unsubscribe(town.app.key, Which(device="phone"), ["news"])
    await town.desk.topics.subscribe(town.app.key, Which(device=(await _other(town))), ["news"])
    await town.rig.rest()
    await town.send(topic="news")
    assert device.ids() == []


async def _other(town):
    await town.desk.tokens.give(town.app, "tablet")
    return "tablet"


@on_loop
async def test_a_note_for_once_is_taken_back_where_it_was_not_seen():  # P8
    town = await Town.make()
    phone = await town.device("phone", user="alice")
    tablet = await town.device("tablet", comet=2, user="alice")
    sent = await town.send(users=("alice",), order={"once": True})
    assert phone.ids() == tablet.ids() == [sent.note]
    phone.ack(sent.note)
    await town.rig.pass_s(2)
    ((message, content),) = tablet.read()
    assert (message.type, content) == (RETRACT, sent.note.encode())


@on_loop
async def test_a_device_of_an_app_that_is_switched_off_does_not_get_in():  # P10
    town = await Town.make()
    ticket = await town.desk.tokens.give_open(town.app, "phone")
    await town.desk.apps.change(town.app.key, enabled=False)
    device = Device(town.rig.comets[0], ticket.client, ticket.token)
    device.auth()
    await town.rig.rest()
    assert len(codes(device.heard())) == 1
    assert device.sink.ended


@on_loop
async def test_devices_of_an_app_that_is_removed_or_switched_off_are_told_within_a_second():  # P10
    for end in ("remove", "disable"):
        town = await Town.make()
        devices = [await town.device(f"d{comet}", comet=comet) for comet in (1, 2)]
        if end == "remove":
            await town.desk.apps.remove(town.app.key)
        else:
            await town.desk.apps.change(town.app.key, enabled=False)
        await town.rig.pass_s(1)
        for device in devices:
            assert codes(device.heard()) == [PushError.CLIENT_NOT_FOUND]
            assert device.sink.ended
