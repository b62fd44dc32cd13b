"""Whatever a device says, in whatever state, is answered or ends its connection, and no other."""

from __future__ import annotations

import asyncio

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from chappe.wire.push import (
    Auth,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    MessageAck,
    Subscribe,
    Unsubscribe,
    encode_command,
)
from tests.push.comet.rig import Device, Rig

NAMES = st.sampled_from(["a", "b", "", "*", "x" * 300])
COMMANDS = st.one_of(
    st.builds(Auth, st.text(max_size=20), st.text(max_size=20)),
    st.builds(ExchangeKey, st.binary(max_size=40)),
    st.just(GetTopicList()),
    st.just(GetMessageList()),
    st.just(Heartbeat()),
    st.builds(lambda names: Subscribe(tuple(names)), st.lists(NAMES, max_size=3)),
    st.builds(lambda names: Unsubscribe(tuple(names)), st.lists(NAMES, max_size=3)),
    st.builds(
        lambda ids: MessageAck(tuple(ids)),
        st.lists(st.sampled_from(["p070000000000001", "m070000000000001", "", "p"]), max_size=3),
    ),
).map(encode_command)
BYTES = st.one_of(COMMANDS, st.binary(max_size=40))


@given(
    st.lists(st.tuples(BYTES, st.booleans()), max_size=12),
    st.sampled_from(["new", "offered", "live"]),
)
def test_anything_said_in_any_state_is_answered_or_ends_the_connection(
    said: list[tuple[bytes, bool]], state: str
) -> None:
    async def run() -> None:
        rig = Rig()
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        witness = await rig.live()
        device = await rig.live() if state == "live" else Device(rig.comets[0], *await rig.client())
        if state == "offered":
            device.auth()
            await rig.rest()
        for data, pause in said:
            if not device.sink.ended:
                device.feed(data)
            if pause:
                await rig.rest()
        await rig.rest()
        assert not failures
        assert device.sink.ended or not device.session.busy
        assert not witness.sink.ended

    uvloop.run(run())
