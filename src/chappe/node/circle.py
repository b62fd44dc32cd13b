"""Those whom a node shares rooms and push with: what they agree on, and what they prove."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    """The registry that they have in common, and the secret that they prove themselves with."""

    registry: Registry
    secret: bytes
