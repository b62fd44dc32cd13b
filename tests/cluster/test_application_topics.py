"""Topics across nodes: publisher, home and subscribers each on another one (H16)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chappe.client import Client, Missed, Notice, Renewed
from chappe.errors import BadRequest
from tests.cluster.town import Town, data, quiet, receive, town, until
from tests.loop import on_loop


async def crowd(place: Town, *topics: str) -> list[Client]:
    """A subscriber of the topics on each node."""
    clients = [await place.client(at, f"s{at}") for at in range(len(place.nodes))]
    for topic in topics:
        for client in clients:
            await client.subscribe(topic)
    return clients


def homes(place: Town, topic: str) -> list[str]:
    """Which node each node takes for the topic's home."""
    found = []
    for node in place.nodes:
        if not node.hub.draining:
            peer = node.neighbourhood.cluster.home("default", topic)
            found.append(peer.name if peer is not None else node.name)
    return found


@pytest.mark.parametrize(("kind", "publisher"), [("topic", 0), ("topic", 1), ("key", 2)])
@on_loop
async def test_publish_reaches_all_and_tells_how_many_nodes_took_it(
    tmp_path: Path, kind: str, publisher: int
):  # H16
    async with town(tmp_path) as place:
        topic, sender = place.placed(kind, 1), await place.client(publisher, "p")
        assert homes(place, topic) == ["n1"] * 3
        assert (await sender.publish(topic, 0)).nodes == 0  # nobody there: that is ok
        readers = [await place.client(at, f"r{at}-{n}") for at in (0, 2) for n in range(2)]
        for took, reader in enumerate(readers):
            await reader.subscribe(topic)
            published = await sender.publish(topic, took)
            assert published.nodes == (1, 1, 2, 2)[took]
        for took, reader in enumerate(readers):
            assert await data(reader, 4 - took) == list(range(took, 4))
        # Subscribed at the home's own node, too.
        at_home = await place.client(1, "home")
        await at_home.subscribe(topic)
        await at_home.subscribe(topic)
        published = await sender.publish(topic, {"n": 1})
        assert published.nodes == 3
        for reader in (*readers, at_home):
            message = await receive(reader)
            assert (str(message.id), message.sender, message.to) == (
                published.message,
                "user:p",
                topic,
            )
        for n in range(200):
            sender.post(topic, n)
        for reader in (*readers, at_home):
            assert await data(reader, 200) == list(range(200))
        await quiet(*readers, at_home)


@on_loop
async def test_who_leaves_is_no_subscriber_and_the_last_reclaims_the_topic(tmp_path: Path):  # H16
    async with town(tmp_path) as place:
        topic, sender = place.placed("topic", 0), await place.client(1, "p")
        readers = await crowd(place, topic)
        assert (await sender.publish(topic, 1)).nodes == 3
        await readers[0].unsubscribe(topic)
        await readers[1].close()
        await place.settle()
        assert (await sender.publish(topic, 2)).nodes == 1
        assert await data(readers[2], 2) == [1, 2]
        assert await sender.presence(topic)
        await readers[2].unsubscribe(topic)
        await place.settle()
        assert (await sender.publish(topic, 3)).nodes == 0
        assert not await sender.presence(topic)
        for at in range(3):
            assert topic not in place.app(at).watchers
            assert topic not in place.app(at).topics
        assert await data(readers[0]) == [1]
        await quiet(readers[0], readers[2])


@on_loop
async def test_subscribers_stay_subscribed_when_homes_go_and_come(tmp_path: Path):  # H16
    async with town(tmp_path, 4) as place:
        topics = [place.placed("topic", at) for at in (3, 3, 0, 1, 2)]
        readers = await crowd(place, *topics)
        sender = await place.client(0, "p")
        await place.nodes[3].drain()
        await until(lambda: all(len(set(homes(place, topic))) == 1 for topic in topics))
        await place.settle()
        assert "n3" not in homes(place, topics[0])
        for n, topic in enumerate(topics):
            published = await sender.publish(topic, n)
            assert published.nodes == 3
        for reader in readers[:3]:
            assert await data(reader, 5) == list(range(5))
        await quiet(*readers[:3])
        assert [reader.reconnects for reader in readers[:3]] == [0] * 3
        # Another comes, and takes its share of homes: nobody acts, nothing is lost or doubled.
        await place.add()
        moved = [place.placed("topic", 4) for _ in range(2)]
        await place.settle()
        for n, topic in enumerate([*topics, *moved]):
            await readers[1].subscribe(topic)
            assert (await sender.publish(topic, n)).nodes == (3 if topic in topics else 1)
        for reader in (readers[0], readers[2]):
            assert await data(reader, 5) == list(range(5))
        assert await data(readers[1], 7) == list(range(7))
        await quiet(*readers[:3])


@on_loop
async def test_a_join_while_everybody_publishes_doubles_nothing(tmp_path: Path):  # H16
    async with town(tmp_path) as place:
        topics = [f"topic:busy-{n}" for n in range(20)]
        readers = await crowd(place, *topics)
        sender = await place.client(1, "p")
        published: dict[str, list[int]] = {topic: [] for topic in topics}
        joined = asyncio.Event()

        async def publish() -> None:
            n = 0
            while not joined.is_set() or n % 20:
                topic = topics[n % 20]
                await sender.publish(topic, n)
                published[topic].append(n)
                n += 1

        busy = asyncio.create_task(publish())
        await place.add()
        await place.settle()
        joined.set()
        await busy
        await place.settle()
        assert {len(set(homes(place, topic))) for topic in topics} == {1}
        for topic in topics:
            await sender.publish(topic, -1)
        for reader in readers:
            got: dict[str, list[int]] = {topic: [] for topic in topics}
            while not all(numbers[-1:] == [-1] for numbers in got.values()):
                message = await receive(reader)
                got[message.to].append(message.data)
            for topic, numbers in got.items():
                # What was published while its home moved may be missed, nothing comes twice.
                assert len(set(numbers)) == len(numbers)
                assert numbers[:-1] == sorted(numbers[:-1])
                assert set(numbers[:-1]) <= set(published[topic])


@on_loop
async def test_an_anonymous_topic_shows_to_nobody_who_published(tmp_path: Path):  # H16
    async with town(tmp_path) as place:
        topic = place.placed("topic", 2)
        admin = await place.client(1, "admin")
        await admin.create(topic, anonymous=True)
        await place.settle()
        readers = await crowd(place, topic)
        for at in range(3):
            sender = await place.client(at, f"p{at}")
            await sender.publish(topic, at)
            for reader in readers:
                message = await receive(reader)
                assert (message.sender, message.data) == ("", at)
        # Made so, it is so on whichever node takes it over.
        await place.nodes[2].drain()
        await until(lambda: "n2" not in homes(place, topic))
        await place.settle()
        await readers[0].publish(topic, 9)
        assert (await receive(readers[1])).sender == ""
        await admin.delete(topic)
        await place.settle()
        await readers[0].publish(topic, 10)
        assert (await receive(readers[1])).sender == "user:s0"


@on_loop
async def test_a_history_is_recovered_on_another_node_once_and_in_order(tmp_path: Path):  # H16
    async with town(tmp_path) as place:
        topic, admin = place.placed("topic", 0), await place.client(0, "admin")
        await admin.create(topic, history=10)
        await place.settle()
        bob, sender = await place.client(1, "bob"), await place.client(2, "p")
        await bob.subscribe(topic)
        for n in range(3):
            await sender.publish(topic, n)
        messages = [await receive(bob) for _ in range(3)]
        assert [(message.data, message.offset) for message in messages] == [(0, 1), (1, 2), (2, 3)]
        kept = bob.position(topic)
        assert kept is not None
        assert kept.offset == 3
        await bob.close()
        for n in range(3, 6):
            await sender.publish(topic, n)
        # On another device, on another node than before.
        bob = await place.client(2, "bob")
        assert await bob.subscribe(topic, since=kept)
        await sender.publish(topic, 6)
        assert await data(bob, 4) == [3, 4, 5, 6]
        # What is too old to be there is said to be gone; what is left of it comes.
        for n in range(7, 20):
            await sender.publish(topic, n)
        late = await place.client(1, "late")
        assert not await late.subscribe(topic, since=kept)
        assert await data(late, 10) == list(range(10, 20))
        # A place that never was in this history.
        wrong = await place.client(1, "wrong")
        assert not await wrong.subscribe(topic, since=("nonsense", 2))
        await sender.publish(topic, 20)
        assert await data(wrong) == await data(late) == [20]
        await quiet(late, wrong)


@on_loop
async def test_a_client_that_comes_back_gets_what_it_missed_meanwhile(tmp_path: Path):  # H16
    async with town(tmp_path) as place:
        topic, admin = place.placed("topic", 2), await place.client(0, "admin")
        await admin.create(topic, history=100_000)
        await place.settle()
        notices: list[Notice] = []
        bob, sender = await place.client(1, "bob", notices=notices), await place.client(0, "p")
        await bob.subscribe(topic)
        n = 0
        for round_ in range(1, 4):
            # Its connection breaks, again and again, while others publish.
            session = place.nodes[1].hub.sessions[bob.session]
            session.sink.abort()
            while bob.reconnects < round_ or n < 10 * round_:
                await sender.publish(topic, n)
                n += 1
        assert await data(bob, n) == list(range(n))
        await quiet(bob)
        assert not [told for told in notices if isinstance(told, Missed | Renewed)]


@on_loop
async def test_when_a_home_goes_its_history_begins_anew_and_subscribers_are_told(
    tmp_path: Path,
):  # H16
    async with town(tmp_path) as place:
        topic, admin = place.placed("topic", 2), await place.client(0, "admin")
        await admin.create(topic, history=10)
        await place.settle()
        notices: list[list[Notice]] = [[], []]
        readers = [await place.client(at, f"r{at}", notices=notices[at]) for at in range(2)]
        for reader in readers:
            await reader.subscribe(topic)
        await readers[0].publish(topic, 1)
        kept = []
        for reader in readers:
            assert await data(reader) == [1]
            kept.append(reader.position(topic))
        await place.nodes[2].drain()
        for told in notices:
            await until(lambda told=told: Renewed(topic) in told, "nobody told of the new history")
        await place.settle()
        await readers[1].publish(topic, 2)
        for reader, before in zip(readers, kept, strict=True):
            message = await receive(reader)
            assert (message.data, message.offset) == (2, 1)
            now = reader.position(topic)
            assert now is not None
            assert before is not None
            assert now.epoch != before.epoch
        # Whoever comes with a place in the old one is told that what it missed is gone.
        late = await place.client(0, "late")
        assert not await late.subscribe(topic, since=kept[0])


@on_loop
async def test_options_of_topics_that_make_no_sense_are_refused(tmp_path: Path):
    async with town(tmp_path, 2) as place:
        admin = await place.client(0, "admin")
        for options in ({"history": -1}, {"history_s": -1.0}, {"depth_max": 1}):
            with pytest.raises(BadRequest, match=next(iter(options))):
                await admin.create("topic:t", **options)
