"""Whole clusters in one process, from a seed: the same seed, the same run."""

from chappe.simulation.clock import SimulatedClock
from chappe.simulation.disk import SimDisk
from chappe.simulation.files import PowerCut, SimFs
from chappe.simulation.link import Faults
from chappe.simulation.loop import (
    CallbackFailed,
    Deadlock,
    Livelock,
    NotSimulated,
    SimulatedLoop,
    SimulationError,
)
from chappe.simulation.network import Network
from chappe.simulation.process import Process
from chappe.simulation.simulation import SEED_VARIABLE, Simulation, seeds
from chappe.simulation.trace import Trace

__all__ = [
    "SEED_VARIABLE",
    "CallbackFailed",
    "Deadlock",
    "Faults",
    "Livelock",
    "Network",
    "NotSimulated",
    "PowerCut",
    "Process",
    "SimDisk",
    "SimFs",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "SimulationError",
    "Trace",
    "seeds",
]
