"""What the states of push promise, wherever they are kept (P6): apps, jobs, clients, routes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chappe.errors import StorageError
from chappe.push.app import Limits, PushApp
from chappe.push.job import Job, Tally
from chappe.push.state.meta import JOB_MS
from chappe.push.state.states import States
from chappe.push.state.user import CLIENTS_PER_USER_MAX, TOKENS_PER_CLIENT_MAX, Client, TokenHolder
from tests.contract.push_states import (
    DAY_MS,
    NAMES,
    NOW_MS,
    Opening,
    a_note,
    client_id,
    job_id,
    note_id,
    opened,
    opening,
)
from tests.loop import on_loop

__all__ = ["opening"]


def an_app(key: str, name: str, **fields: object) -> PushApp:
    given = {"open": True, "sealed_secret": b"\0\xff", "created_ms": 5, **fields}
    return PushApp(key=key, name=name, **given)  # type: ignore[arg-type]


def a_job(app: str = "app", at_ms: int = NOW_MS) -> Job:
    return Job(
        id=job_id(),
        app=app,
        note=note_id(),
        aim="many",
        target="é, b",
        name="news",
        created_ms=at_ms,
        expires_ms=at_ms + DAY_MS,
    )


@on_loop
async def test_an_app_is_found_by_key_and_by_name(opening: Opening):
    async with opened(opening) as states:
        meta = states.meta
        one = an_app("k1", "one", limits=Limits(sends_per_s=1.5, devices_max=3))
        assert await meta.put_app(one, new=True)
        assert await meta.apps(["k1", "k2"]) == {"k1": one}
        assert await meta.app_named("one") == one
        assert await meta.app_named("two") is None
        changed = msgspec.structs.replace(one, name="uno", enabled=False)
        assert await meta.put_app(changed, new=False)
        assert await meta.app_named("uno") == changed
        assert await meta.app_named("one") is None
        assert await meta.put_app(an_app("k2", "one"), new=True)
        assert await meta.remove_app("k1")
        assert not await meta.remove_app("k1")
        assert await meta.app_named("uno") is None
        assert list(await meta.apps(["k1", "k2"])) == ["k2"]


@on_loop
async def test_keys_and_names_of_apps_are_one_apps_only(opening: Opening):
    async with opened(opening) as states:
        meta = states.meta
        assert await meta.put_app(an_app("k1", "one"), new=True)
        assert not await meta.put_app(an_app("k1", "two"), new=True)
        assert not await meta.put_app(an_app("k2", "one"), new=True)
        assert not await meta.put_app(an_app("k2", "one"), new=False)
        assert await meta.apps(["k2"]) == {}
        made = await asyncio.gather(*(meta.put_app(an_app(f"r{i}", "r"), new=True) for i in "123"))
        assert sum(made) == 1
        assert await meta.app_named("two") is None


@on_loop
async def test_apps_are_listed_by_key_in_pages(opening: Opening):
    async with opened(opening) as states:
        names = sorted({*NAMES} - {""})
        for name in names:
            assert await states.meta.put_app(an_app(name, name + "!"), new=True)
        listed: list[str] = []
        while page := await states.meta.list_apps(listed[-1] if listed else "", 4):
            listed += [app.key for app in page]
        assert listed == names


@on_loop
async def test_a_job_is_there_with_its_tally_until_it_is_30_days_old(opening: Opening):
    async with opened(opening) as states:
        meta, job = states.meta, a_job()
        await meta.put_job(job, 5)
        assert await meta.jobs([job.id, job_id()]) == {job.id: (job, Tally(aimed=5))}
        await meta.count({job.id: {"sent": 2, "offline": 1}, job_id(): {"sent": 1}})
        await asyncio.gather(*(meta.count({job.id: {"sent": 1, "arrived": 1}}) for _ in range(10)))
        await meta.count({job.id: {"clicked": 3, "dropped": 4}})
        tally = Tally(aimed=5, sent=12, arrived=10, clicked=3, offline=1, dropped=4)
        assert (await meta.jobs([job.id]))[job.id] == (job, tally)
        # Written again, as after an error, it goes on counting.
        await meta.put_job(job, 5)
        assert (await meta.jobs([job.id]))[job.id][1] == tally
        opening.now_ms = NOW_MS + JOB_MS - 1
        assert job.id in await meta.jobs([job.id])
        opening.now_ms += 1
        assert await meta.jobs([job.id]) == {}
        assert await meta.list_jobs("app", None, 10) == []
        assert not await meta.cancel_job(job.id, opening.now_ms)


@on_loop
async def test_a_job_is_cancelled_once(opening: Opening):
    async with opened(opening) as states:
        meta, job = states.meta, a_job()
        await meta.put_job(job, 5)
        told = await asyncio.gather(*(meta.cancel_job(job.id, NOW_MS + i) for i in range(5)))
        assert sorted(told) == [False] * 4 + [True]
        ((found, _),) = await meta.list_jobs("app", None, 10)
        assert found.cancelled_ms == NOW_MS + told.index(True)
        assert not await meta.cancel_job(job_id(), NOW_MS)


@on_loop
async def test_jobs_of_an_app_are_listed_the_newest_first(opening: Opening):
    async with opened(opening) as states:
        # Several of one instant, and in no order.
        jobs = [a_job(at_ms=NOW_MS + i // 3) for i in range(10)]
        for job in [*jobs[5:], a_job("other"), *jobs[:5]]:
            await states.meta.put_job(job, 1)
        listed: list[str] = []
        while page := await states.meta.list_jobs("app", listed[-1] if listed else None, 3):
            listed += [job.id for job, _ in page]
        newest = sorted(jobs, key=lambda job: (job.created_ms, job.id), reverse=True)
        assert listed == [job.id for job in newest]
        assert await states.meta.list_jobs("none", None, 3) == []


@on_loop
async def test_a_click_is_the_first_once(opening: Opening):
    async with opened(opening) as states:
        clicks = [(client_id(), note_id()) for _ in range(2)]
        assert await states.meta.click(clicks[:1]) == [True]
        assert await states.meta.click([*clicks, clicks[1]]) == [False, True, False]
        opening.now_ms += JOB_MS
        assert await states.meta.click(clicks[:1]) == [True]


@on_loop
async def test_a_nonce_is_claimed_by_one(opening: Opening):  # P10
    async with opened(opening) as states:
        until_ms = NOW_MS + 60_000
        won = await asyncio.gather(*(states.meta.claim("n:\0é", until_ms) for _ in range(10)))
        assert sum(won) == 1
        opening.now_ms = until_ms - 1
        assert not await states.meta.claim("n:\0é", until_ms)
        opening.now_ms = until_ms
        assert await states.meta.claim("n:\0é", until_ms + 60_000)


@on_loop
async def test_a_device_has_one_client_whoever_claims_it_first(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        new = [client_id() for _ in range(20)]
        states = [one, other] * 10
        claimed = await asyncio.gather(
            *(s.user.claim_client("app", "dev", one) for s, one in zip(states, new, strict=True))
        )
        assert len(set(claimed)) == 1
        client = claimed[0]
        assert client.id in new
        assert client == Client(client.id, "app", "dev")
        assert await one.user.clients(new) == {client.id: client}
        assert await one.user.count_clients("app") == 1


@on_loop
async def test_apps_with_the_same_names_never_meet(opening: Opening):
    async with opened(opening) as states:
        user, topic = states.user, states.topic
        one = await user.claim_client("app", "dev", client_id())
        other = await user.claim_client("appd", "ev", client_id())
        third = await user.claim_client("other", "dev", client_id())
        assert len({one.id, other.id, third.id}) == 3
        assert await user.bind("app", "ann", one.id)
        assert await user.bind("other", "ann", third.id)
        assert not await user.bind("other", "ann", one.id)
        assert await user.clients_of_users("app", ["ann"]) == {"ann": [one.id]}
        assert await user.clients_of_users("other", ["ann"]) == {"ann": [third.id]}
        assert await user.unbind("other", one.id) is None
        assert await user.clients_of_devices("other", ["dev", "ev"]) == {"dev": third.id}
        assert await user.count_clients("app") == 1
        for app, client in (("app", one.id), ("other", third.id)):
            assert await topic.subscribe(app, client, ["t"], 3, NOW_MS, 10)
        assert await topic.subscribe("app", third.id, ["t2"], 4, NOW_MS, 10)
        await topic.append("app", "t", note_id(), NOW_MS, NOW_MS + DAY_MS, None, 10)
        assert await topic.since("other", {"t": 0}, NOW_MS, 10) == {"t": []}
        assert await topic.count("app", "t") == await topic.count("other", "t") == 1
        assert await topic.list_clients("app", "t", "", 10) == [one.id]
        assert await topic.list_topics("other", "", 10) == [("t", 1)]
        assert set(await topic.topics_of("other", third.id)) == {"t"}
        assert set(await topic.topics_of("app", third.id)) == {"t2"}


@on_loop
async def test_names_come_back_as_they_were(opening: Opening):
    async with opened(opening) as states:
        names, user = list(dict.fromkeys(NAMES)), states.user
        made = {name: await user.claim_client(name, name, client_id()) for name in names}
        assert {client.device for client in made.values()} == set(names)
        for name, client in made.items():
            assert await user.bind(name, name, client.id)
            assert await states.topic.subscribe(name, client.id, names, 1, NOW_MS, 100)
        found = await user.clients([client.id for client in made.values()])
        assert found == {c.id: Client(c.id, name, name, name) for name, c in made.items()}
        for name, client in made.items():
            assert await user.clients_of_devices(name, names) == {name: client.id}
            assert await user.clients_of_users(name, names) == {name: [client.id]}
            assert set(await states.topic.topics_of(name, client.id)) == set(names)
            listed = await states.topic.list_topics(name, "", 100)
            assert listed == [(topic, 1) for topic in sorted(set(names) - {""})]


@on_loop
async def test_what_is_no_id_is_not_there(opening: Opening):
    async with opened(opening) as states:
        # A device says who it is before anybody knows it.
        for one in (
            "",
            "c",
            "c1",
            "x" * 16,
            "c00zzzzz12345678",
            "é" * 16,
            client_id().upper(),
            "\0",
        ):
            assert await states.user.clients([one]) == {}
            assert await states.route.find([one]) == {}
            assert await states.message.waiting([one]) == {one: []}
            assert await states.message.bodies([one]) == {}
            assert await states.message.cancel(one) is None
            assert await states.user.remove_client(one) is None
            assert await states.message.settle({one: [one]}) == {}
            assert await states.message.holders(one, [one]) == []
            assert await states.meta.jobs([one]) == {}
            assert await states.topic.topics_of("app", one) == {}
        assert await states.user.tokens([b"", b"short", b"x" * 16], NOW_MS) == [None] * 3


@on_loop
async def test_a_client_that_is_removed_leaves_nothing(opening: Opening):
    async with opened(opening) as states:
        user = states.user
        client = await user.claim_client("app", "dev", client_id())
        stays = await user.claim_client("app", "dev2", client_id())
        for one in (client.id, stays.id):
            assert await user.bind("app", "ann", one)
            await user.put_token(one.encode(), TokenHolder(one, NOW_MS + DAY_MS))
        assert await user.remove_client(client.id) == client._replace(user="ann")
        assert await user.remove_client(client.id) is None
        assert await user.tokens([client.id.encode()], NOW_MS) == [None]
        assert await user.tokens([stays.id.encode()], NOW_MS) != [None]
        assert await user.clients_of_users("app", ["ann"]) == {"ann": [stays.id]}
        assert await user.count_clients("app") == 1
        again = await user.claim_client("app", "dev", client_id())
        assert again.id != client.id
        assert again.user is None


@on_loop
async def test_a_device_that_is_claimed_while_its_client_is_removed_has_one(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        for _ in range(20):
            client = await one.user.claim_client("app", "dev", client_id())
            gone, claimed = await asyncio.gather(
                one.user.remove_client(client.id),
                other.user.claim_client("app", "dev", client_id()),
            )
            assert gone is not None
            there = await one.user.clients_of_devices("app", ["dev"])
            known = await one.user.clients([client.id, claimed.id])
            # It was claimed before, and is gone with the rest; or after, and is there.
            assert list(known) == list(there.values())
            assert await one.user.count_clients("app") == len(known)


@on_loop
async def test_a_token_is_its_holders_until_it_expires(opening: Opening):
    async with opened(opening) as states:
        user = states.user
        client = (await user.claim_client("app", "dev", client_id())).id
        digests = [bytes([i]) * 16 for i in (0, 10, 255)]
        for i, digest in enumerate(digests):
            await user.put_token(digest, TokenHolder(client, NOW_MS + (i + 1) * 1000))
        holders = [TokenHolder(client, NOW_MS + (i + 1) * 1000) for i in range(3)]
        assert await user.tokens([*digests, b"n" * 16], NOW_MS) == [*holders, None]
        assert await user.tokens(digests, NOW_MS + 999) == holders
        assert await user.tokens(digests, NOW_MS + 1000) == [None, *holders[1:]]
        assert await user.revoke(digests[1]) == holders[1]
        assert await user.revoke(digests[1]) is None
        assert await user.tokens(digests, NOW_MS) == [holders[0], None, holders[2]]
        opening.now_ms = NOW_MS + 2000
        assert await user.revoke_client(client_id()) == 0
        assert await user.revoke_client(client) in (1, 2)  # those expired count or not
        assert await user.tokens(digests, NOW_MS) == [None] * 3
        assert await user.revoke_client(client) == 0


@on_loop
async def test_all_tokens_of_a_client_are_revoked_at_once(opening: Opening):
    async with opened(opening) as states:
        user = states.user
        client = (await user.claim_client("app", "dev", client_id())).id
        other = (await user.claim_client("app", "dev2", client_id())).id
        each = TOKENS_PER_CLIENT_MAX
        digests = [i.to_bytes(16, "big") for i in range(2 * each)]
        for i, digest in enumerate(digests):
            holder = TokenHolder(client if i % 2 else other, NOW_MS + DAY_MS)
            await user.put_token(digest, holder)
            await user.put_token(digest, holder)
        assert await user.revoke_client(client) == each
        left = await user.tokens(digests, NOW_MS)
        assert [holder and holder.client for holder in left] == [other, None] * each


@on_loop
async def test_changes_of_a_client_at_once_are_all_made(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        client = (await one.user.claim_client("app", "dev", client_id())).id
        holder = TokenHolder(client, NOW_MS + DAY_MS)
        digests = [bytes([i]) * 16 for i in range(8)]
        names = ["ann", "bob", "eve"]
        await asyncio.gather(
            *(
                (one, other)[i % 2].user.put_token(digest, holder)
                for i, digest in enumerate(digests)
            ),
            *(one.user.bind("app", name, client) for name in names),
        )
        assert await other.user.tokens(digests, NOW_MS) == [holder] * 8
        user = (await one.user.clients([client]))[client].user
        assert await one.user.clients_of_users("app", names) == {user: [client]}
        # None is forgotten to be forgotten.
        assert await other.user.revoke_client(client) == 8
        assert await one.user.tokens(digests, NOW_MS) == [None] * 8


@on_loop
async def test_a_client_is_of_one_user_and_a_user_has_so_many(opening: Opening):
    async with opened(opening) as states:
        user = states.user
        made = [
            (await user.claim_client("app", f"d{i}", client_id())).id
            for i in range(CLIENTS_PER_USER_MAX + 1)
        ]
        for one in made[:-1]:
            assert await user.bind("app", "ann", one)
        assert await user.bind("app", "ann", made[0])
        assert not await user.bind("app", "ann", made[-1])
        assert (await user.clients(made[-1:]))[made[-1]].user is None
        found = await user.clients_of_users("app", ["ann", "bob"])
        assert {name: sorted(ids) for name, ids in found.items()} == {"ann": sorted(made[:-1])}
        assert await user.bind("app", "bob", made[0])
        assert await user.bind("app", "ann", made[-1])
        assert await user.clients_of_users("app", ["bob"]) == {"bob": [made[0]]}
        assert made[0] not in (await user.clients_of_users("app", ["ann"]))["ann"]
        assert (await user.clients([made[0]]))[made[0]].user == "bob"
        assert await user.unbind("app", made[0]) == "bob"
        assert await user.unbind("app", made[0]) is None
        assert await user.clients_of_users("app", ["bob"]) == {}
        assert not await user.bind("app", "bob", client_id())


@on_loop
async def test_a_route_is_where_the_last_login_was(opening: Opening):  # P3
    async with opened(opening) as states:
        route = states.route
        a, b, c = client_id(), client_id(), client_id()
        assert await route.move({a: 1, b: 2}) == {}
        assert await route.move({a: 3, b: 2, c: 0}) == {a: 1}
        assert await route.find([c, b, a, client_id()]) == {a: 3, b: 2, c: 0}
        # Left behind: the server that it was on hears late that it is gone.
        await route.leave({a: 1, b: 2, client_id(): 2})
        assert await route.find([a, b, c]) == {a: 3, c: 0}
        await route.leave({a: 3})
        assert await route.find([a]) == {}
        assert await route.move({a: 1295}) == {}
        assert set(await route.servers()) == {0, 1295}
        assert await route.move({}) == {}
        await route.leave({})
        assert await route.find([]) == {}


@on_loop
async def test_a_route_that_was_lost_is_claimed_unless_the_client_is_elsewhere_by_now(
    opening: Opening,
):
    async with opened(opening) as states:
        route = states.route
        lost, here, elsewhere, killed = (client_id() for _ in range(4))
        await route.move({here: 1, elsewhere: 2, killed: 3})
        await route.clear(3)
        clients = [lost, here, elsewhere, killed]
        assert await route.claim(dict.fromkeys(clients, 1)) == {elsewhere: 2}
        assert await route.find(clients) == {lost: 1, here: 1, elsewhere: 2, killed: 1}
        assert set(await route.servers()) == {1, 2}
        assert await route.clear(1) == 3
        assert await route.claim({}) == {}


@on_loop
async def test_of_those_who_claim_a_client_at_once_one_has_it(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        client = client_id()
        said = await asyncio.gather(
            *((one, other)[i % 2].route.claim({client: i}) for i in range(20))
        )
        (has,) = (await one.route.find([client])).values()
        assert said == [{} if i == has else {client: has} for i in range(20)]


@on_loop
async def test_nobody_is_on_a_server_that_was_killed(opening: Opening):
    async with opened(opening) as states:
        route = states.route
        on = {client_id(): server for server in (1, 2) for _ in range(50)}
        await route.move(on)
        moved, *others = [client for client, server in on.items() if server == 1]
        assert await route.move({moved: 2}) == {moved: 1}
        assert await route.clear(1) == 49
        assert await route.clear(1) == 0
        assert set(await route.servers()) == {2}
        assert await route.find(others) == {}
        assert (await route.find([moved])) == {moved: 2}
        # They come back, and nobody needs to be told who they were with.
        assert await route.move({others[0]: 1, others[1]: 2, moved: 1}) == {moved: 2}
        assert await route.find([*others[:2], moved]) == {others[0]: 1, others[1]: 2, moved: 1}
        await route.leave(dict.fromkeys(others, 1))
        assert await route.clear(1) == 1
        assert await route.clear(2) == 51
        assert set(await route.servers()) == set()


@on_loop
async def test_of_logins_at_once_each_but_the_last_is_told_of_by_the_next(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        client = client_id()
        said = await asyncio.gather(
            *((one, other)[i % 2].route.move({client: i}) for i in range(20))
        )
        last = (await one.route.find([client]))[client]
        replaced = [told[client] for told in said if told]
        assert sorted([*replaced, last]) == list(range(20))
        # All leave, in whatever order: who is on the last server leaves it then, and no sooner.
        await asyncio.gather(*(other.route.leave({client: i}) for i in range(20) if i != last))
        assert await one.route.find([client]) == {client: last}


@pytest.mark.parametrize("opening", ["sqlite", "redis"], indirect=True)
@on_loop
async def test_states_opened_again_hold_what_was_acknowledged(opening: Opening):
    note = a_note()
    async with opened(opening) as states:
        client = await states.user.claim_client("app", "dev", client_id())
        await states.route.move({client.id: 4})
        await states.message.put(note)
        await states.message.add(note, [client.id], 10)
        assert await states.topic.subscribe("app", client.id, ["t"], 4, NOW_MS, 10)
    async with opened(opening) as states:
        assert await states.user.clients([client.id]) == {client.id: client}
        assert await states.route.find([client.id]) == {client.id: 4}
        assert await states.message.waiting([client.id]) == {client.id: [note.id]}
        assert await states.message.bodies([note.id]) == {note.id: note}
        assert await states.topic.servers("app", "t") == [4]


@on_loop
async def test_what_expired_is_swept_away_and_nothing_else(opening: Opening):
    async with opened(opening) as states:
        clients = [client_id() for _ in range(50)]
        for client in clients:
            await states.user.claim_client("app", client, client)
        short, long = a_note(life_ms=1000), a_note(life_ms=JOB_MS * 2)
        for note in (short, long):
            await states.message.put(note)
            await states.message.add(note, clients, 10)
        for i, client in enumerate(clients):
            expires_ms = NOW_MS + (1000 if i % 2 else JOB_MS * 2)
            await states.user.put_token(i.to_bytes(16, "big"), TokenHolder(client, expires_ms))
        await states.route.move(dict.fromkeys(clients, 1))
        await states.route.clear(1)
        await states.route.move(dict.fromkeys(clients[:5], 2))
        opening.now_ms += JOB_MS
        swept = await everything_swept(states)
        assert swept >= 75  # what waits, tokens; and what else is kept in rows
        assert await states.sweep() == 0
        opening.now_ms = NOW_MS
        assert await states.message.waiting(clients) == {client: [long.id] for client in clients}
        digests = [i.to_bytes(16, "big") for i in range(50)]
        held = await states.user.tokens(digests, NOW_MS)
        assert [holder is not None for holder in held] == [True, False] * 25
        assert await states.route.find(clients) == dict.fromkeys(clients[:5], 2)
        assert await states.user.revoke_client(clients[1]) == 0
        assert await states.user.revoke_client(clients[2]) == 1


async def everything_swept(states: States) -> int:
    """How much was swept away until nothing more was, round and round."""
    swept, idle = 0, 0
    while idle < 100:
        now = await states.sweep()
        swept, idle = swept + now, 0 if now else idle + 1
    return swept


@on_loop
async def test_closed_states_say_so(opening: Opening):
    states = opening()
    await states.close()
    await states.close()
    for asked in (
        states.meta.apps(["k"]),
        states.user.clients([client_id()]),
        states.route.move({client_id(): 1}),
        states.message.put(a_note()),
        states.topic.count("app", "t"),
        states.sweep(),
    ):
        with pytest.raises(StorageError, match="closed"):
            await asked
