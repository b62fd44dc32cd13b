"""Tokens: who gets one, what it says, and how it ends."""

from __future__ import annotations

import base64

import pytest

from chappe.errors import BadRequest, Forbidden, Overload, Throttled, Unreachable
from chappe.push.admin.clients import Which
from chappe.push.admin.options import DeskOptions
from chappe.push.token import token_digest
from chappe.push.unproven import Unproven
from chappe.push.web.clicks import Click
from chappe.wire.pushlink import Close, Why
from tests.push.desks import with_bench

WEEK_MS = 7 * 24 * 3600 * 1000


def test_a_device_gets_what_it_needs_to_connect():  # P5, P10, P11
    async def main(bench):
        app = await bench.app()
        ticket = await bench.desk.tokens.give_open(app, "phone-1")
        assert ticket.comet in {card.address for card in bench.comets.living().values()}
        assert ticket.expires_ms == bench.clock.ms + WEEK_MS
        assert len(base64.b64decode(ticket.identity)) == 32
        digest = token_digest(ticket.token)
        (holder,) = await bench.states.user.tokens([digest], bench.clock.ms)
        assert holder == (ticket.client, ticket.expires_ms)
        again = await bench.desk.tokens.give_open(app, "phone-1")
        assert (again.client, again.comet) == (ticket.client, ticket.comet)
        assert again.token != ticket.token

    with_bench(main)


def test_the_devices_of_a_closed_app_are_sent_to_its_own_server():  # P10
    async def main(bench):
        app = await bench.app(open=False)
        with pytest.raises(Forbidden, match="own server"):
            await bench.desk.tokens.give_open(app, "phone-1")
        assert (await bench.desk.tokens.give(app, "phone-1")).client.startswith("c")

    with_bench(main)


@pytest.mark.parametrize("device", ["", "a b", "ö", "d" * 129, "a\n"])
def test_a_device_id_is_visible_ascii(device):
    async def main(bench):
        with pytest.raises(BadRequest, match="device"):
            await bench.desk.tokens.give(await bench.app(), device)

    with_bench(main)


def test_without_a_comet_nothing_is_made():
    async def main(bench):
        app = await bench.app()
        bench.comets.away = {1, 2}
        with pytest.raises(Overload, match="comet"):
            await bench.desk.tokens.give(app, "phone-1")
        assert await bench.states.user.count_clients(app.key) == 0

    with_bench(main)


def test_an_app_has_as_many_devices_as_it_may():
    async def main(bench):
        app = await bench.app(devices_max=2)
        for device in ("a", "b", "a"):
            await bench.desk.tokens.give(app, device)
        with pytest.raises(Throttled, match="2 devices"):
            await bench.desk.tokens.give(app, "c")
        await bench.desk.clients.remove(app.key, Which(device="a"))
        await bench.desk.tokens.give(app, "c")

    with_bench(main)


def test_devices_of_an_open_app_take_tokens_at_a_rate():
    async def main(bench):
        app = await bench.app()
        for n in range(2):
            await bench.desk.tokens.give_open(app, f"d{n}")
        with pytest.raises(Throttled):
            await bench.desk.tokens.give_open(app, "d2")
        await bench.desk.tokens.give(app, "d2")

    with_bench(main, options=DeskOptions(tokens_per_s=2))


def test_a_revoked_token_is_refused_and_its_connection_closed():  # P5
    async def main(bench):
        app = await bench.app()
        ticket = await bench.desk.tokens.give(app, "a")
        other = await bench.desk.tokens.give(app, "a")
        assert await bench.desk.tokens.revoke(app, ticket.token) == ticket.client
        for _, op in bench.comets.told:
            assert op == Close(ticket.client, Why.REVOKED, digest=token_digest(ticket.token))
        # All are told: it may be logging in anywhere.
        assert [server for server, _ in bench.comets.told] == [1, 2]
        with pytest.raises(Unproven):
            await bench.desk.tokens.holder(ticket.client, ticket.token)
        assert await bench.desk.tokens.holder(other.client, other.token) == app.key
        with pytest.raises(Unreachable):
            await bench.desk.tokens.revoke(app, ticket.token)

    with_bench(main)


def test_all_tokens_of_a_client_are_revoked_together():
    async def main(bench):
        app = await bench.app()
        tickets = [await bench.desk.tokens.give(app, "a") for _ in range(3)]
        assert await bench.desk.tokens.revoke_all(app, Which(device="a")) == (
            tickets[0].client,
            3,
        )
        assert bench.comets.told == [
            (server, Close(tickets[0].client, Why.REVOKED)) for server in (1, 2)
        ]
        for ticket in tickets:
            with pytest.raises(Unproven):
                await bench.desk.tokens.holder(ticket.client, ticket.token)

    with_bench(main)


def test_a_token_is_good_for_a_week_and_for_its_own_client():
    async def main(bench):
        app = await bench.app()
        ticket = await bench.desk.tokens.give(app, "a")
        other = await bench.client(app, "b")
        with pytest.raises(Unproven):
            await bench.desk.tokens.holder(other, ticket.token)
        bench.clock.ms += WEEK_MS - 1
        assert await bench.desk.tokens.holder(ticket.client, ticket.token) == app.key
        bench.clock.ms += 1
        with pytest.raises(Unproven):
            await bench.desk.tokens.holder(ticket.client, ticket.token)

    with_bench(main)


def test_an_app_cannot_revoke_anothers_tokens():
    async def main(bench):
        one, other = await bench.app("one"), await bench.app("other")
        ticket = await bench.desk.tokens.give(one, "a")
        with pytest.raises(Unreachable):
            await bench.desk.tokens.revoke(other, ticket.token)
        with pytest.raises(Unreachable):
            await bench.desk.tokens.revoke_all(other, Which(client=ticket.client))
        assert await bench.desk.tokens.holder(ticket.client, ticket.token) == one.key
        assert not bench.comets.told

    with_bench(main)


def test_a_click_is_counted_once_for_each_client_and_only_in_its_app():  # P9
    async def main(bench):
        app, other = await bench.app("one"), await bench.app("other")
        tickets = [await bench.desk.tokens.give(app, device) for device in "ab"]
        stranger = await bench.desk.tokens.give(other, "a")
        sent = await bench.send(app, devices=["a", "b"])
        click = Click(sent.job, sent.note)
        wrong = Click(sent.job, "p0100000ffffffff")
        click_all = bench.desk.clicks.click
        assert await click_all(tickets[0].client, tickets[0].token, [click, click, wrong]) == 1
        assert await click_all(tickets[0].client, tickets[0].token, [click]) == 0
        assert await click_all(tickets[1].client, tickets[1].token, [click]) == 1
        assert await click_all(stranger.client, stranger.token, [click]) == 0
        with pytest.raises(Unproven):
            await click_all(tickets[0].client, tickets[1].token, [click])
        assert (await bench.tally(app, sent.job)).clicked == 2
        clicked = bench.tells.of("push_clicked")
        assert [row["client"] for row in clicked] == [ticket.client for ticket in tickets]

    with_bench(main)


def test_a_click_counts_long_after_the_note_is_forgotten():
    async def main(bench):
        app = await bench.app()
        await bench.client(app, "a")
        sent = await bench.send(app, devices=["a"])
        bench.clock.pass_s(3 * 24 * 3600)
        assert not await bench.states.message.bodies([sent.note])
        ticket = await bench.desk.tokens.give(app, "a")
        clicks = [Click(sent.job, sent.note)]
        assert await bench.desk.clicks.click(ticket.client, ticket.token, clicks) == 1

    with_bench(main)
