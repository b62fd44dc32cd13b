"""Clients, the users they belong to, and the topics they are subscribed to from outside."""

from __future__ import annotations

import pytest

from chappe.errors import BadRequest, Unreachable
from chappe.push.admin.clients import Which
from chappe.push.admin.options import DeskOptions
from chappe.wire.pushlink import Close, Subscribed, Why
from tests.push.desks import with_bench


def test_a_client_belongs_to_one_user_at_a_time():  # P8
    async def main(bench):
        app, clients = await bench.app(), bench.desk.clients
        phone, tablet = [await bench.client(app, device) for device in ("phone", "tablet")]
        await clients.bind(app.key, "alice", Which(phone))
        await clients.bind(app.key, "alice", Which(device="tablet"))
        assert {each.id for each in await clients.of_user(app.key, "alice")} == {phone, tablet}
        await clients.bind(app.key, "bob", Which(phone))
        assert [each.id for each in await clients.of_user(app.key, "alice")] == [tablet]
        assert (await clients.unbind(app.key, Which(phone))).user == "bob"
        assert await clients.of_user(app.key, "bob") == []

    with_bench(main)


def test_a_user_has_twenty_clients():
    async def main(bench):
        app = await bench.app()
        for n in range(20):
            client = await bench.client(app, f"d{n}")
            await bench.desk.clients.bind(app.key, "alice", Which(client))
        await bench.client(app, "d20")
        with pytest.raises(BadRequest, match="user"):
            await bench.desk.clients.bind(app.key, "alice", Which(device="d20"))

    with_bench(main)


@pytest.mark.parametrize("which", [Which(), Which("c0100000ffffffff", "a")])
def test_a_client_is_named_in_one_way(which):
    async def main(bench):
        with pytest.raises(BadRequest, match="client"):
            await bench.desk.clients.find((await bench.app()).key, which)

    with_bench(main)


def test_a_client_that_is_removed_is_gone_with_all_it_had():
    async def main(bench):
        app = await bench.app()
        client = await bench.client(app, "a", on=1)
        await bench.desk.clients.bind(app.key, "alice", Which(client))
        await bench.desk.topics.subscribe(app.key, Which(client), ["news"])
        sent = await bench.send(app, clients=[client])
        bench.comets.told.clear()
        seen = await bench.desk.clients.look(app.key, Which(client))
        assert (seen.server, seen.topics, seen.client.user) == (1, ["news"], "alice")
        await bench.desk.clients.remove(app.key, Which(client))
        assert bench.comets.told == [(n, Close(client, Why.REMOVED)) for n in (1, 2)]
        assert await bench.desk.topics.subscribers(app.key, "news", "", 10) == (0, [])
        for asked in (bench.desk.clients.look, bench.desk.clients.remove):
            with pytest.raises(Unreachable):
                await asked(app.key, Which(client))
        assert await bench.waiting(client) == []
        assert (await bench.tally(app, sent.job)).dropped == 1
        assert [row["reason"] for row in bench.tells.of("push_dropped")] == ["removed"]
        assert await bench.client(app, "a") != client

    with_bench(main)


def test_a_connected_client_is_told_of_topics_that_others_give_it():  # P8
    async def main(bench):
        app, topics = await bench.app(), bench.desk.topics
        here, away = await bench.client(app, "a", on=2), await bench.client(app, "b")
        for client in (here, away):
            await topics.subscribe(app.key, Which(client), ["news", "sport", "news"])
        assert bench.comets.told == [(2, Subscribed(app.key, here))]
        assert await bench.states.topic.servers(app.key, "news") == [2]
        assert await topics.page(app.key, "", 10) == [("news", 2), ("sport", 2)]
        assert await topics.subscribers(app.key, "news", "", 1) == (2, [min(here, away)])
        await topics.unsubscribe(app.key, Which(here), ["news"])
        assert bench.comets.told[-1] == (2, Subscribed(app.key, here))
        assert await topics.subscribers(app.key, "news", "", 10) == (1, [away])

    with_bench(main)


def test_a_client_has_as_many_topics_as_it_may():
    async def main(bench):
        app, topics = await bench.app(), bench.desk.topics
        client = await bench.client(app, "a")
        await topics.subscribe(app.key, Which(client), ["a", "b"])
        with pytest.raises(BadRequest, match="topics"):
            await topics.subscribe(app.key, Which(client), ["c"])
        for wrong in ([], ["a", "b", "c"], ["a*"]):
            with pytest.raises(BadRequest, match="topics"):
                await topics.subscribe(app.key, Which(client), wrong)
        assert (await bench.desk.clients.look(app.key, Which(client))).topics == ["a", "b"]

    with_bench(main, options=DeskOptions(client_topics_max=2))
