"""Q10: whole stories of masters and replicas."""

from __future__ import annotations

import pytest

from tests.queues.replication.village import Village, fill, village


@pytest.mark.parametrize("mode", ["async", "acknowledged"])
def test_a_replica_has_the_same_bytes(mode: str):
    async def story(place: Village) -> None:
        await place.add("a")
        await place.add("b")
        master = await place.master()
        assert master.name == "a"
        assert len(await fill(master, range(500))) == 500
        await place.agree("a", "b")
        assert len(master.files()) > 2

    village(1, story, replicas=1, mode=mode)
