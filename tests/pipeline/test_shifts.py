"""Times are put right by what is known of a node's clock in their minute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.tales import NODES, clocks
from tests.pipeline.traffic import DAY, MINUTE

SHIFTS = st.dictionaries(
    st.tuples(st.sampled_from(NODES[:2]), st.integers(0, 12).map(lambda n: DAY + n * MINUTE)),
    st.integers(-(10**9), 10**9),
)
# Around the ends of minutes, too.
TIMES = st.builds(
    lambda minute, us: DAY + minute * MINUTE + us,
    st.integers(-1, 13),
    st.sampled_from([0, 1, MINUTE - 1]),
)


@given(SHIFTS, st.lists(st.tuples(st.sampled_from(NODES), TIMES), max_size=40))
def test_a_time_is_shifted_by_its_node_s_clock_in_its_minute(
    shifts: dict[tuple[str, int], int], told: list[tuple[str, int]]
):
    nodes = pa.array([node for node, _at in told], pa.string())
    found = clocks(shifts).shifts(nodes, np.array([at for _node, at in told], np.int64))
    assert found.tolist() == [shifts.get((node, at - at % MINUTE), 0) for node, at in told]
