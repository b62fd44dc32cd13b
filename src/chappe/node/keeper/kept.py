"""What a keeper keeps, as a worker has it."""

from __future__ import annotations

from pathlib import Path

from chappe.node.keeper.line import Line
from chappe.registry.agreement import Agreement
from chappe.registry.keeper import KeeperLedger
from chappe.registry.options import DEFAULTS, RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.roster import Roster
from chappe.registry.session import Session
from chappe.store.keeper import KeeperStore


def kept_store(keeper: Path) -> KeeperStore:
    """Make the store of the keeper at a socket; nothing is connected before its first use."""
    return KeeperStore(Line(keeper))


def kept_registry(keeper: Path, options: RegistryOptions = DEFAULTS) -> Registry:
    """Make the registry of the keeper at a socket; nothing is connected before its first use."""
    line = Line(keeper, timeout_s=options.timeout_s)
    session = Session(KeeperLedger(line, options.lease_s), users=2)
    poll_s = options.poll_s
    return Registry("keeper", Roster(session, poll_s), Agreement(session, poll_s))
