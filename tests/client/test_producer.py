"""Producers: stored once, one after the other, delayed or one way (Q2, Q3, Q5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client import Client, DeadLetter, Producer, Receipt, Reconnected
from chappe.errors import BadRequest, ConnectionClosed, Forbidden, Overload, Unreachable
from chappe.wire import ops
from chappe.wire.ops import PACKED, Cancel, Create, Send

from .conftest import Notices
from .peer import Port
from .queues import QUEUE, asked, order, working


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.client.outlet._RETRY_FIRST_S", 0.001)
    monkeypatch.setattr("chappe.client.outlet._RETRY_MAX_S", 0.002)


async def opened(port: Port, producer: Any) -> Any:
    await asked(port, producer.open(), Create, lanes=[1])
    return producer


async def refused(port: Port, producer: Producer, **reply: Any) -> None:
    """Refuse a producer's next send."""
    port.peer.answer(await port.peer.next(Send), ok=False, **reply)


def dead(n: int, **fields: Any) -> ops.Op:
    """What a queue says of a dead letter."""
    payload = b'{"dead_letter":{"message":"%d","num":7,"reason":"nacked","group":"g",'
    return PACKED[ops.Delivery](
        **{
            "message": 900 + n,
            "from_": QUEUE,
            "to": "user:a",
            "ts": 1,
            "data": payload % n + b'"attempts":16}}',
            **fields,
        }
    )


def test_a_producer_requests_its_queue_before_it_sends(run):  # Q3
    async def test():
        async with working() as (port, client):
            producer = client.producer(QUEUE, lanes=4)
            with pytest.raises(BadRequest, match="not requested"):
                await producer.send(1)
            op, _ = await asked(port, producer.open(), Create, lanes=[3, 5, 7, 9])
            assert (op.to, op.lanes, op.volatile) == (QUEUE, 4, None)
            assert producer.lanes == (3, 5, 7, 9)
            await producer.close()
            with pytest.raises(BadRequest, match="not requested"):
                await producer.send(1)

    run(test())


def test_who_may_not_make_queues_uses_one_that_is_there(run):
    async def test():
        async with working() as (port, client):
            no = {"ok": False, "error": "forbidden"}
            producer = client.producer(QUEUE)
            await asked(port, producer.open(), Create, **no)
            _, receipt = await asked(port, producer.send(1), Send, message=5)
            assert receipt.message == "5"
            with pytest.raises(Forbidden):
                await asked(port, client.producer(QUEUE, lanes=2).open(), Create, **no)

    run(test())


def test_a_send_says_all_that_there_is_to_say_and_returns_a_receipt(run):  # Q5, Q13
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE, name="billing-7", seq=41))
            sending = producer.send(
                {"n": 1},
                key="k",
                headers={"h": "v"},
                tags=["t"],
                num=7,
                consumers=["c"],
                type=2,
            )
            op, receipt = await asked(port, sending, Send, message=5, num=7)
            assert (op.to, op.data, op.key, op.headers) == (QUEUE, b'{"n":1}', "k", {"h": "v"})
            assert (op.tags, op.num, op.consumers, op.type) == (["t"], 7, ["c"], 2)
            assert (op.producer, op.seq, op.delay_ms) == ("billing-7", 41, None)
            assert receipt == Receipt("5", 7)
            assert receipt.text == "7 ACK"
            op, receipt = await asked(port, producer.send(b"\xff"), Send, message=6)
            assert (op.data, op.data64, op.seq, op.key, op.type) == (b"\xff", True, 42, None, None)
            assert receipt.text == "ACK"
            assert producer.seq == 43

    run(test())


def test_producers_without_a_name_differ(run):
    async def test():
        async with working() as (_, client):
            names = {client.producer(QUEUE).name for _ in range(3)}
            assert len(names) == 3
            assert all(len(name) == 24 for name in names)

    run(test())


def test_the_next_message_goes_only_after_the_answer_to_the_one_before(run):  # Q5
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = [asyncio.create_task(producer.send(n)) for n in range(3)]
            for n in range(3):
                op = await port.peer.next(Send)
                # Whatever else it has to say comes before the answer to this.
                await asked(port, client.presence("user:b"), ops.Presence)
                assert (op.data, op.seq) == (b"%d" % n, n + 1)
                port.peer.answer(op, message=n + 1)
            assert [receipt.message for receipt in await asyncio.gather(*sending)] == [
                "1",
                "2",
                "3",
            ]

    run(test())


def test_a_failure_lets_the_next_one_go(run):  # Q5
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = [asyncio.create_task(producer.send(n)) for n in range(2)]
            await refused(port, producer, error="protocol", reason="data: too large")
            with pytest.raises(BadRequest):
                await sending[0]
            op = await port.peer.next(Send)
            assert op.seq == 2
            port.peer.answer(op, message=2)
            await sending[1]

    run(test())


def test_with_a_window_several_are_under_way(run):
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE, window=2))
            sending = [asyncio.create_task(producer.send(n)) for n in range(3)]
            first, second = await port.peer.heard(2)
            assert (first.seq, second.seq) == (1, 2)
            port.peer.answer(second, message=2)
            third = (await port.peer.heard(3))[2]
            assert third.seq == 3
            port.peer.answer(first, message=1)
            port.peer.answer(third, message=3)
            assert [r.message for r in await asyncio.gather(*sending)] == ["1", "2", "3"]

    run(test())


def test_what_is_repeated_does_not_grow_too_old_meanwhile(run):
    """A broker remembers 64 numbers of a producer at least: the 65th waits for the first."""

    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE, window=2, retries=1_000))
            sending = [asyncio.create_task(producer.send(n)) for n in range(70)]
            others: set[int] = set()
            refused_since = 0
            while refused_since < 20:
                op = await port.peer.next(Send)
                if op.seq == 1:
                    refused_since += len(others) >= 63
                    port.peer.answer(op, ok=False, error="overload", outcome="unknown")
                else:
                    others.add(op.seq)
                    port.peer.answer(op, message=op.seq)
            assert others == set(range(2, 65))
            port.peer.answer(await port.peer.next(Send), message=1)
            for seq in range(65, 71):
                op = await port.peer.next(Send)
                assert op.seq == seq
                port.peer.answer(op, message=seq)
            receipts = await asyncio.gather(*sending)
            assert [receipt.message for receipt in receipts] == [str(n + 1) for n in range(70)]

    run(test())


@pytest.mark.parametrize("outcome", [None, "unknown"])
def test_a_send_that_fails_for_a_while_is_repeated_under_its_number(run, outcome):  # Q5
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE, name="p", seq=1))
            data = {"n": 1}
            sending = asyncio.create_task(producer.send(data, num=7))
            seen = []
            for _ in range(16):
                op = await port.peer.next(Send)
                seen.append((op.producer, op.seq, op.num, op.data))
                # What its owner does with it meanwhile does not matter.
                data["n"] += 1
                port.peer.answer(op, ok=False, error="overload", outcome=outcome)
            op = await port.peer.next(Send)
            port.peer.answer(op, message=5, num=7)
            assert (await sending).text == "7 ACK"
            assert seen == [("p", 1, 7, b'{"n":1}')] * 16
            assert (op.seq, producer.seq) == (1, 2)

    run(test())


def test_after_sixteen_retries_the_last_error_is_raised(run):  # Q5
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = asyncio.create_task(producer.send(1))
            for _ in range(17):
                await refused(port, producer, error="overload", reason="full")
            with pytest.raises(Overload, match="full") as caught:
                await sending
            assert not caught.value.outcome_unknown
            assert port.peer.ops == []

    run(test())


def test_what_one_attempt_left_unknown_stays_so(run):
    async def test():
        async with working() as (port, client):
            for last in ({"error": "overload"}, {"error": "protocol"}, {"error": "unreachable"}):
                producer = await opened(port, client.producer(QUEUE, retries=1))
                sending = asyncio.create_task(producer.send(1))
                await refused(port, producer, error="overload", outcome="unknown")
                await refused(port, producer, **last)
                with pytest.raises((Overload, BadRequest, Unreachable)) as caught:
                    await sending
                assert caught.value.outcome_unknown

    run(test())


@pytest.mark.parametrize("error", ["unreachable", "forbidden", "protocol"])
def test_what_repeating_cannot_mend_is_raised_at_once(run, error):
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = asyncio.create_task(producer.send(1))
            await refused(port, producer, error=error)
            with pytest.raises((Unreachable, Forbidden, BadRequest)):
                await sending
            assert port.peer.ops == []

    run(test())


def test_a_broken_connection_is_a_reason_to_repeat(run):  # Q5
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            producer = await opened(port, client.producer(QUEUE, name="p", seq=1))
            sending = asyncio.create_task(producer.send(1))
            first = await port.peer.next(Send)
            await port.cut()
            await notices.wait(Reconnected)
            again = await port.peer.next(Send)
            assert (again.producer, again.seq) == (first.producer, first.seq) == ("p", 1)
            port.peer.answer(again, message=5)
            assert (await sending).message == "5"

    run(test())


def test_the_end_of_the_client_ends_the_retries(run):
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = asyncio.create_task(producer.send(1))
            await port.peer.next(Send)
            await client.close()
            with pytest.raises(ConnectionClosed):
                await sending

    run(test())


def test_a_cancelled_send_gives_its_turn_to_the_next(run):
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            first = asyncio.create_task(producer.send(1))
            await port.peer.next(Send)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            op, receipt = await asked(port, producer.send(2), Send, message=2)
            assert (op.seq, receipt.message) == (2, "2")

    run(test())


def test_no_more_wait_for_their_turn_than_may(run):
    async def test():
        async with working(requests_max=2) as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            sending = [asyncio.create_task(producer.send(n)) for n in range(2)]
            await port.peer.heard(1)
            with pytest.raises(Overload, match="2 messages wait"):
                await producer.send(3)
            for _ in sending:
                port.peer.answer(await port.peer.next(Send), message=1)
            await asyncio.gather(*sending)

    run(test())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": 7}, "key"),
    ({"headers": {"h": 1}}, "headers"),
    ({"tags": "t"}, "tags"),
    ({"num": 2**64}, "num"),
    ({"num": "7"}, "num"),
    ({"consumers": [1]}, "consumers"),
    ({"type": 1.5}, "type"),
    ({"key": "\ud800"}, "Unicode"),
]


@pytest.mark.parametrize(("labels", "why"), WRONG)
def test_what_cannot_travel_is_refused_here(run, labels, why):
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            with pytest.raises(BadRequest, match=why):
                await producer.send(1, **labels)
            one_way = await opened(port, client.one_way_producer(QUEUE))
            if "type" not in labels:
                with pytest.raises(BadRequest, match=why):
                    await one_way.send(1, **labels)
            with pytest.raises(BadRequest, match="data"):
                await producer.send(object())
            for data in (float("nan"), {"k": [None, float("-inf")]}, (1, float("inf"))):
                with pytest.raises(BadRequest, match="is no number in JSON"):
                    await producer.send(data)

    run(test())


@pytest.mark.parametrize("options", [{"retries": -1}, {"window": 0}, {"window": 1001}, {"seq": -1}])
def test_options_that_make_no_sense_are_refused(run, options):
    async def test():
        async with working() as (_, client):
            with pytest.raises(BadRequest, match=next(iter(options))):
                client.producer(QUEUE, **options)
            with pytest.raises(BadRequest, match="delay_ms"):
                client.delayed_producer(QUEUE, delay_ms=-1)

    run(test())


def test_a_delayed_message_is_held_and_can_be_taken_back(run):  # Q2
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.delayed_producer(QUEUE))
            op, receipt = await asked(port, producer.send(1), Send, message=5)
            assert (op.delay_ms, op.seq) == (2000, 1)
            op, _ = await asked(port, producer.send(1, delay_ms=60_000), Send, message=6)
            assert op.delay_ms == 60_000
            op, done = await asked(port, producer.cancel(receipt), Cancel)
            assert (op.message, op.to, done) == (5, QUEUE, True)
            late = {"ok": False, "error": "unreachable"}
            assert (await asked(port, producer.cancel(receipt), Cancel, **late))[1] is False
            with pytest.raises(Forbidden):
                await asked(port, producer.cancel(receipt), Cancel, ok=False, error="forbidden")

    run(test())


def test_a_message_is_taken_back_by_its_id(run):
    async def test():
        async with working() as (port, client):
            op, done = await asked(port, client.cancel("5", to=QUEUE), Cancel)
            assert (op.message, op.to, done) == (5, QUEUE, True)
            op, _ = await asked(port, client.cancel(6), Cancel)
            assert (op.message, op.to) == (6, "")
            with pytest.raises(BadRequest, match="message"):
                await client.cancel("five")

    run(test())


def test_one_way_messages_ask_for_no_answer(run):  # Q2
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.one_way_producer(QUEUE))
            for n in range(3):
                await producer.send(n, key="k", num=n)
            sent = await port.peer.heard(3)
            assert [(op.id, op.data, op.num) for op in sent] == [
                (None, b"%d" % n, n) for n in range(3)
            ]
            assert {(op.key, op.producer, op.seq) for op in sent} == {("k", None, None)}
            assert client.pending == 0

    run(test())


def test_one_way_messages_wait_while_too_much_is_to_be_written(run):
    async def test():
        async with working(outgoing_bytes_max=4096) as (port, client):
            producer = await opened(port, client.one_way_producer(QUEUE))
            for n in range(50):
                await producer.send(f"{n}" * 200)
            assert len(await port.peer.heard(50)) == 50

    run(test())


async def told(port: Port, client: Client, *messages: ops.Op) -> Any:
    """Let the hub say something, and something else behind it; what came to the inbox first."""
    port.peer.say(*messages, order(1, group="last"))
    return await client.receive()


def test_a_producer_is_told_of_its_dead_letters_and_the_inbox_is_not(run):  # Q6
    async def test():
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            letters: list[DeadLetter] = []
            producer.on_dead(letters.append)
            message = await told(port, client, dead(5), dead(6))
            assert message.to == QUEUE
            assert letters == [
                DeadLetter(message=str(n), num=7, reason="nacked", group="g", attempts=16)
                for n in (5, 6)
            ]
            # What the queue says otherwise is a message as any other.
            for other in ({"data": b"[1]"}, {"data": b"\xff", "data64": True}):
                assert (await told(port, client, dead(7, **other))).sender == QUEUE
                await client.receive()
            assert len(letters) == 2
            await producer.close()
            assert (await told(port, client, dead(8))).sender == QUEUE
            assert not client._conversation.hearers

    run(test())


def test_a_callback_that_fails_disturbs_nobody(run):
    async def test():
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
        async with working() as (port, client):
            producer = await opened(port, client.producer(QUEUE))
            second = await opened(port, client.one_way_producer(QUEUE))
            letters: list[DeadLetter] = []

            def fail(letter: DeadLetter) -> None:
                raise ValueError(letter.message)

            producer.on_dead(fail)
            second.on_dead(letters.append)
            await told(port, client, dead(5))
            await producer.close()
            await told(port, client, dead(6))
            assert [letter.message for letter in letters] == ["5", "6"]
            assert [str(told["exception"]) for told in failures] == ["5"]

    run(test())
