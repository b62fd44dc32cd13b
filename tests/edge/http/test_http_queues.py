"""Durable queues over HTTP: made, sent to, taken from, registered at, looked into, promoted."""

from __future__ import annotations

import pytest

from chappe.errors import Unreachable
from chappe.wire.ops import Promote, Reply

ADMIN = {"admin": ["*"]}


async def make(service, name="q", **options):
    made = await service.client.put(f"/v1/queues/{name}", json={"volatile": True, **options})
    assert made.status_code == 200, made.text
    return made.json()


async def send(service, data, name="q", **fields):
    sent = await service.post(f"/v1/queues/{name}/send", {"data": data, **fields})
    assert sent.status_code == 200, sent.text
    return sent.json()


async def fetch(service, queue="q", **fields):
    answer = await service.post(f"/v1/queues/{queue}/fetch", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def settle(service, how, fetched, name="q", **fields):
    ids = [item["message"] for item in fetched["messages"]]
    body = {"session": fetched["session"], "message": ids, **fields}
    answer = await service.post(f"/v1/queues/{name}/{how}", body)
    assert answer.status_code == 200, answer.text


async def shown(service, path, **query):
    answer = await service.get(f"/v1/queues/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def data_of(answer):
    return [item["data"] for item in answer["messages"]]


def test_a_queue_says_which_lanes_it_was_given_and_keeps_them(serve, run):  # Q3
    async def main():
        async with serve() as service:
            made = await make(service, lanes=3)
            assert len(set(made["lanes"])) == 3
            again = await make(service, lanes=2, attempts_max=4)
            assert again["lanes"] == made["lanes"]
            figures = await shown(service, "q")
            assert figures["options"]["attempts_max"] == 4
            wrong = await service.client.put("/v1/queues/q", json={"lanes": 0})
            assert (wrong.status_code, wrong.json()["reason"].partition(":")[0]) == (400, "lanes")

    run(main)


def test_a_send_to_a_queue_that_nobody_made_is_refused(serve, run):  # Q3
    async def main():
        async with serve() as service:
            sent = await service.post("/v1/queues/none/send", {"data": 1})
            assert (sent.status_code, sent.json()["error"]) == (404, "unreachable")
            assert "queue:none does not exist" in sent.json()["reason"]

    run(main)


def test_a_send_is_answered_with_its_number_and_comes_with_what_was_said_of_it(serve, run):
    # Q5, Q13
    async def main():
        async with serve() as service:
            await make(service)
            said = {"key": "k", "headers": {"h": "v"}, "tags": ["t"], "num": 7, "type": 0}
            sent = await send(service, {"n": 1.5}, **said)
            assert sent["num"] == 7
            (item,) = (await fetch(service))["messages"]
            assert item["message"] == sent["message"]
            assert {name: item[name] for name in said} == said
            unknown = await send(service, 2, type=99)
            page = await shown(service, "q/messages")
            assert page["messages"][-1]["message"] == unknown["message"]
            assert page["messages"][-1]["type"] == 1

    run(main)


def test_the_same_number_of_a_producer_is_stored_once(serve, run):  # Q5
    async def main():
        async with serve() as service:
            await make(service)
            first = await send(service, "a", producer="p", seq=1)
            assert await send(service, "a", producer="p", seq=1) == first
            assert (await shown(service, "q"))["depth"] == 1

    run(main)


def test_each_group_gets_each_message_that_it_wants(serve, run):  # Q7, Q8
    async def main():
        async with serve() as service:
            await make(service)
            await send(service, "red", tags=["red"], headers={"to": "eu"})
            await send(service, "blue", tags=["blue"], headers={"to": "us"})
            assert data_of(await fetch(service, group="all", n=9)) == ["red", "blue"]
            assert data_of(await fetch(service, group="r", n=9, tags=["red"])) == ["red"]
            assert data_of(await fetch(service, group="u", n=9, headers={"to": "us"})) == ["blue"]
            other = await service.post("/v1/queues/q/fetch", {"group": "r", "tags": ["blue"]})
            assert (other.status_code, other.json()["error"]) == (400, "protocol")
            assert "registered with" in other.json()["reason"]

    run(main)


def test_a_consumer_registers_and_unregisters(serve, run):  # Q8
    async def main():
        async with serve() as service:
            await make(service)
            await send(service, "before")
            body = {"name": "al", "group": "g", "tags": ["x"], "new": True}
            registered = await service.post("/v1/queues/q/consumers", body)
            assert registered.status_code == 200, registered.text
            (group,) = (await shown(service, "q"))["groups"]
            assert (group["group"], group["consumers"], group["tags"]) == ("g", ["al"], ["x"])
            assert group["lag"] == 0
            gone = await service.client.delete("/v1/queues/q/consumers/al?group=g")
            assert gone.status_code == 200, gone.text
            (group,) = (await shown(service, "q"))["groups"]
            assert group["consumers"] == []
            again = await service.client.delete("/v1/queues/q/consumers/al?group=g")
            assert not again.json()["ok"]
            gone = await service.client.delete("/v1/queues/q/groups/g")
            assert gone.status_code == 200, gone.text
            assert (await shown(service, "q"))["groups"] == []

    run(main)


def test_a_name_whose_holder_still_answers_is_refused(serve, run):  # Q8
    async def main():
        async with serve() as service:
            await make(service)
            await send(service, 1)
            held = await fetch(service, name="al")
            other = await service.post("/v1/queues/q/fetch", {"name": "al"})
            assert other.status_code in (400, 403), other.text
            assert "al" in other.json()["reason"]
            await settle(service, "ack", held, leave=True)
            assert (await fetch(service, name="al"))["messages"] == []

    run(main)


def test_a_session_is_left_without_acknowledging_anything(serve, run):
    async def main():
        async with serve() as service:
            await make(service)
            await send(service, 1)
            first = await fetch(service)
            body = {"session": first["session"], "message": [], "leave": True}
            assert (await service.post("/v1/queues/q/ack", body)).status_code == 200
            assert not service.hub.sessions
            assert data_of(await fetch(service, wait_ms=5000)) == [1]

    run(main)


def test_what_is_handed_back_with_a_delay_is_not_tried_before(serve, run):  # Q6
    async def main():
        async with serve() as service:
            await make(service)
            await send(service, 1)
            first = await fetch(service)
            await settle(service, "nack", first, delay_ms=600_000)
            assert data_of(await fetch(service)) == []
            assert (await shown(service, "q"))["depth"] == 1

    run(main)


def test_a_delayed_message_is_seen_and_cancelled(serve, run):  # Q2, Q9
    async def main():
        async with serve() as service:
            await make(service)
            sent = await send(service, "later", delay_ms=600_000)
            assert data_of(await fetch(service)) == []
            (waiting,) = (await shown(service, "q/delayed"))["messages"]
            assert waiting["message"] == sent["message"]
            assert waiting["due_ms"] >= waiting["ts"] + 600_000
            cancel = {"message": sent["message"]}
            assert (await service.post("/v1/queues/q/cancel", cancel)).json()["ok"]
            assert (await shown(service, "q/delayed"))["messages"] == []
            again = await service.post("/v1/queues/q/cancel", cancel)
            assert (again.status_code, sent["message"] in again.json()["reason"]) == (404, True)

    run(main)


def test_a_queue_is_browsed_both_ways_page_by_page_without_taking(serve, run):  # Q9
    async def main():
        async with serve() as service:
            (lane,) = (await make(service))["lanes"]
            for number in range(5):
                await send(service, number)
            for reverse, all_of_it in (("false", [0, 1, 2, 3, 4]), ("true", [4, 3, 2, 1, 0])):
                seen, after = [], None
                for _ in range(5):
                    query = {"n": 2, "lane": lane, "reverse": reverse}
                    query |= {} if after is None else {"after": after}
                    page = await shown(service, "q/messages", **query)
                    seen += data_of(page)
                    if (after := page["next"]) is None:
                        break
                assert seen == all_of_it
            assert data_of(await fetch(service, n=9)) == [0, 1, 2, 3, 4]
            wrong = await service.get("/v1/queues/q/messages?lane=77")
            assert (wrong.status_code, "lane" in wrong.json()["reason"]) == (400, True)

    run(main)


def test_dead_letters_are_listed_shown_replayed_and_purged(serve, run):  # Q6, Q9
    async def main():
        async with serve() as service:
            await make(service, attempts_max=1)
            for number in range(3):
                await send(service, number)
            await settle(service, "nack", await fetch(service, n=3))
            letters = (await shown(service, "q/dead"))["messages"]
            assert [letter["data"] for letter in letters] == [0, 1, 2]
            assert letters[0]["death"]["attempts"] == 1
            one = letters[0]["message"]
            assert (await shown(service, f"q/dead/{one}"))["message"] == letters[0]
            missing = await service.get("/v1/queues/q/dead/5")
            assert (missing.status_code, missing.json()["reason"]) == (
                404,
                "message: 5 is not among the dead letters of queue:q",
            )
            replayed = await service.post("/v1/queues/q/dead/replay", {"messages": [one]})
            assert replayed.json() == {"ok": True, "n": 1}
            assert data_of(await fetch(service, wait_ms=5000)) == [0]
            purged = await service.post("/v1/queues/q/dead/purge", {"messages": None})
            assert purged.json() == {"ok": True, "n": 2}
            assert (await shown(service, "q/dead"))["messages"] == []

    run(main)


def test_the_queues_of_an_app_are_listed_with_their_figures(serve, run):  # Q9
    known = ["queue:b", "queue:a/x", "queue:gone"]

    async def main():
        async with serve(queues=lambda app: known if app == "default" else []) as service:
            await make(service, "b")
            await make(service, "a/x")
            await send(service, 1, "b")
            page = (await service.get("/v1/queues?limit=2")).json()
            assert [queue["queue"] for queue in page["queues"]] == ["queue:a/x", "queue:b"]
            assert [queue["depth"] for queue in page["queues"]] == [0, 1]
            rest = (await service.get(f"/v1/queues?limit=2&start={page['next']}")).json()
            (gone,) = rest["queues"]
            # One that does not answer is told of, and hides no other.
            assert (gone["queue"], gone["error"]) == ("queue:gone", "unreachable")
            some = (await service.get("/v1/queues?prefix=a/")).json()["queues"]
            assert [queue["queue"] for queue in some] == ["queue:a/x"]

    run(main)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/q"),
        ("GET", "/q/messages"),
        ("GET", "/q/delayed"),
        ("GET", "/q/dead"),
        ("GET", "/q/dead/1"),
        ("POST", "/q/dead/replay"),
        ("POST", "/q/dead/purge"),
        ("GET", "/q/export"),
        ("POST", "/q/import"),
    ],
)
def test_only_administrators_look_into_queues(serve, run, bearer, method, path):  # Q9
    async def main():
        async with serve(dev=False) as service:
            admin = bearer("user:root", **ADMIN)
            made = await service.client.put("/v1/queues/q", json={"volatile": True}, headers=admin)
            assert made.status_code == 200, made.text
            body = {"json": {}} if method == "POST" else {}
            if path == "/q/import":
                body = {"content": b'{"queue": {"options": {}}}'}
            url = f"/v1/queues{path}"
            assert (await service.client.request(method, url, **body)).status_code == 401
            user = bearer("user:al", send=["*"], subscribe=["*"])
            refused = await service.client.request(method, url, headers=user, **body)
            assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
            allowed = await service.client.request(method, url, headers=admin, **body)
            assert allowed.status_code in (200, 400, 404), allowed.text

    run(main)


def test_a_broker_is_promoted_by_name(serve, run):  # Q10
    async def main():
        async with serve() as service:
            asked = []

            def promote(session, op):
                asked.append(op.broker)
                if op.broker == "node-x":
                    raise Unreachable("broker: node-x is not followed here")
                service.hub.answer(session, Reply(id=op.id, ok=True))

            service.hub.serve({Promote: promote})
            assert (await service.post("/v1/brokers/node-a/promote", {})).json() == {"ok": True}
            refused = await service.client.post("/v1/brokers/node-x/promote")
            assert refused.status_code == 404
            assert asked == ["node-a", "node-x"]

    run(main)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"ack_timeout_s": NaN}', "ack_timeout_s: NaN"),
        (b'{"ordered": true, "await_s":-Infinity}', "await_s: -Infinity"),
        (b'{"ack_timeout_s": 1e999}', "ack_timeout_s"),
        (b'{"ack_timeout_s": 0}', "ack_timeout_s"),
        (b'{"retry_s": 5, "retry_max_s": 1}', "retry_max_s"),
    ],
)
def test_an_option_that_cannot_be_is_named(serve, run, body, named):
    async def main():
        async with serve() as service:
            wrong = await service.client.put("/v1/queues/q", content=body)
            assert wrong.status_code == 400
            assert named in wrong.json()["reason"]

    run(main)


def test_one_bound_of_retries_that_is_said_takes_the_other_with_it(serve, run):
    async def main():
        async with serve() as service:
            for said, both in (
                ({"retry_s": 300}, (300, 300)),
                ({"retry_max_s": 0.5}, (0, 0.5)),
                ({"retry_s": 2}, (2, 60)),
            ):
                await make(service, "q", **said)
                options = (await shown(service, "q"))["options"]
                assert (options["retry_s"], options["retry_max_s"]) == both
                removed = await service.client.delete("/v1/queues/q")
                assert removed.status_code == 200
            await make(service, "q", retry_s=5)
            wrong = await service.client.put("/v1/queues/q", json={"retry_max_s": 4})
            assert wrong.json()["reason"].startswith("retry_max_s: ")

    run(main)
