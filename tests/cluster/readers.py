"""What readers of topics across nodes were told, and who is taken to watch."""

from __future__ import annotations

from typing import Any

from chappe.endpoints.history import TopicOptions
from chappe.wire.ops import Delivery, Position, Reply
from tests.cluster.hamlet import APP, Hamlet, Node
from tests.hub.rig import Endpoint, payload_of


def told(who: Endpoint) -> list[Any]:
    """Everything somebody was told, in order: payloads, replies' ids, positions."""
    words: list[Any] = []
    for op in who.heard():
        if isinstance(op, Delivery):
            words.append(payload_of(op))
        elif isinstance(op, Reply):
            words.append(("reply", op.id, op.ok))
        elif isinstance(op, Position):
            words.append(("position", op.epoch, op.offset))
    return words


def watchers(node: Node, topic: str) -> list[str]:
    """Which other nodes a node takes to watch a topic."""
    app = node.hub.apps.get(APP)
    return sorted(peer.name for peer in app.watchers.get(topic, ())) if app is not None else []


def of_kind(ops: list[Any], kind: type) -> list[Any]:
    return [op for op in ops if isinstance(op, kind)]


def keep_history(hamlet: Hamlet, names: str, topic: str, history: int = 10) -> None:
    for name in names:
        hamlet[name].application.topics.define(APP, topic, TopicOptions(history=history))
