"""How hard the property tests try: a little in every run, a lot for the proof."""

import os

from hypothesis import settings

from tests.servers import (
    dns_server,
    redis_cluster,
    redis_server,
    redis_trio,
    zookeeper_server,
)

__all__ = ["dns_server", "redis_cluster", "redis_server", "redis_trio", "zookeeper_server"]

# No deadline: how long an example takes on a busy machine is no property of the code.
settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=2000)
settings.load_profile("full" if os.environ.get("CHAPPE_PROOF") == "full" else "quick")
