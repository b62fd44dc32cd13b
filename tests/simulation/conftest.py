from __future__ import annotations

import pytest

from tests.simulation.grounds import Ground, make_ground


@pytest.fixture(params=["real", "simulated", "simulated-rough"])
def ground(request: pytest.FixtureRequest) -> Ground:
    return make_ground(request.param)
