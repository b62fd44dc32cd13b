"""What a node imports before its workers are forked: all that it needs, and nothing heavy (P13)."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
from chappe.node.opening import load
from chappe.node.options import load_options
given = {"roles": %r, "registry": %r, "store": %r}
load(load_options(None, {}, {"dev": True, "cluster.secret": "secret", **given}))
print(*sys.modules)
"""


def loaded(roles: str, url: str) -> set[str]:
    """The modules of a process that is about to fork workers."""
    script = _LOADED % (roles, "redis://127.0.0.1" if url else "memory", url or "sqlite:")
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_comets_carry_no_framework_no_parquet_and_no_store_that_they_do_not_use() -> None:
    modules = loaded("comet", "")
    assert "chappe.push.comet.comet" in modules
    assert "chappe.edge.device.polled" in modules
    assert modules.isdisjoint({"fastapi", "pyarrow", "pyspark", "redis", "chappe.push.admin.desk"})


def test_workers_share_the_client_of_the_redis_that_all_of_them_speak_to() -> None:
    modules = loaded("comet", "redis://127.0.0.1")
    assert {"redis.asyncio", "chappe.push.state.redis", "chappe.registry.redis"} <= modules
    assert modules.isdisjoint({"fastapi", "pyarrow"})
