"""What meta state promises of small records and of what is used up, wherever it is kept."""

from __future__ import annotations

import asyncio

from tests.contract.push_states import NAMES, NOW_MS, Opening, opened, opening
from tests.loop import on_loop

__all__ = ["opening"]


@on_loop
async def test_of_several_who_keep_a_record_all_get_what_one_wrote(opening: Opening):  # P4
    async with opened(opening) as states:
        values = [bytes([number]) * 100 for number in range(10)]
        found = await asyncio.gather(*(states.meta.keep("identity", each, 0) for each in values))
        assert len(set(found)) == 1
        assert await states.meta.kept("identity") == found[0]
        assert await states.meta.kept("another") is None


@on_loop
async def test_a_record_is_kept_for_its_time_and_may_be_written_anew_then(opening: Opening):  # P9
    async with opened(opening) as states:
        meta = states.meta
        assert await meta.keep("send", b"a", NOW_MS + 1000) == b"a"
        assert await meta.keep("identity", b"i", 0) == b"i"
        opening.now_ms += 999
        assert await meta.keep("send", b"b", NOW_MS + 9000) == b"a"
        opening.now_ms += 1
        assert await meta.kept("send") is None
        assert await meta.keep("send", b"b", NOW_MS + 9000) == b"b"
        opening.now_ms += 10**9
        await states.sweep()
        assert await meta.kept("send") is None
        assert await meta.kept("identity") == b"i"


@on_loop
async def test_records_of_any_name_and_value_come_back(opening: Opening):
    async with opened(opening) as states:
        for name in dict.fromkeys(NAMES):
            assert await states.meta.keep(name, name.encode() + b"\0\xff", 0)
        for name in dict.fromkeys(NAMES):
            assert await states.meta.kept(name) == name.encode() + b"\0\xff"


@on_loop
async def test_a_name_is_used_so_often_and_then_not_until_its_time_is_over(opening: Opening):
    async with opened(opening) as states:
        meta, until_ms = states.meta, NOW_MS + 5000
        assert await meta.spend(["a", "b"], 2, until_ms) == [True, True]
        assert await meta.spend(["a"], 2, until_ms) == [True]
        assert await meta.spend(["a", "b", "c"], 2, until_ms) == [False, True, True]
        opening.now_ms += 4999
        await states.sweep()
        assert await meta.spend(["a"], 2, until_ms) == [False]
        opening.now_ms += 1
        later_ms = until_ms + 5000
        assert [await meta.spend(["a"], 2, later_ms) for _ in range(3)] == [[True], [True], [False]]


@on_loop
async def test_uses_at_once_are_counted_each(opening: Opening):
    async with opened(opening) as states:
        used = await asyncio.gather(
            *(states.meta.spend(["a"], 3, NOW_MS + 5000) for _ in range(10))
        )
        assert sum(each == [True] for each in used) == 3
        assert await states.meta.spend([], 3, NOW_MS + 5000) == []
        many = [f"name {number}" for number in range(2500)]
        assert await states.meta.spend(many, 1, NOW_MS + 5000) == [True] * 2500
