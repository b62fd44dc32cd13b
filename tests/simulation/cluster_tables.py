"""Whether the tables of a cluster's nodes agree with the truth: what differs, in words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

from tests.simulation.cluster_node import SimulatedNode
from tests.simulation.cluster_person import QUEUE
from tests.simulation.cluster_truth import APP
from tests.simulation.cluster_world import ClusterWorld


def differences(world: ClusterWorld) -> list[str]:
    """All that is not as it should be once a cluster has come to rest."""
    nodes = [world.nodes[name] for name in sorted(world.nodes)]
    found = list(_links(nodes))
    if found:
        return found  # nothing else can be right
    for node in nodes:
        found += _routes(node, nodes)
        found += _leftovers(node, nodes)
        found += _interests(node)
    found += _watchers(nodes)
    found += _directory(nodes)
    return found


def _links(nodes: list[SimulatedNode]) -> Iterator[str]:
    names = {node.name for node in nodes}
    for node in nodes:
        linked = set(node.neighbourhood.mesh.links)
        if linked != names - {node.name}:
            yield f"{node.name} is linked to {sorted(linked)}"
        known = sorted(peer.name for peer in node.cluster.peers)
        if known != sorted(linked):
            yield f"{node.name} takes {known} for its peers, linked to {sorted(linked)}"
    for one, other in combinations(nodes, 2):
        link, back = (
            one.neighbourhood.mesh.links.get(other.name),
            other.neighbourhood.mesh.links.get(one.name),
        )
        if link is not None and back is not None and link.attempt != back.attempt:
            yield f"{one.name} and {other.name} have a link each"


def _routes(node: SimulatedNode, nodes: list[SimulatedNode]) -> Iterator[str]:
    app = node.hub.apps.get(APP)
    routes = {} if app is None else app.routes
    truth: dict[str, set[str]] = {}
    for other in nodes:
        if other is not node:
            for user in other.table("endpoints"):
                truth.setdefault(user, set()).add(other.name)
    for user in sorted({*truth, *routes}):
        told = sorted(peer.name for peer in routes.get(user, ()))
        if told != sorted(truth.get(user, ())):
            yield f"{node.name}: {user} is on {sorted(truth.get(user, ()))}, routed to {told}"


def _leftovers(node: SimulatedNode, nodes: list[SimulatedNode]) -> Iterator[str]:
    cluster = node.cluster
    carriage, forwarding, watching = cluster.carriage, cluster.forwarding, cluster.watching
    waiting = {
        "searches": forwarding._searches,
        "questions": forwarding._asked,
        "joinings": watching._joining,
        "requests": [one for asked in carriage._requests.values() for one in asked],
        "verdicts": [number for peer in cluster.peers for number in peer.pending],
        "visits": cluster.visits._asked,
    }
    for what, left in waiting.items():
        if left:
            yield f"{node.name}: {len(left)} {what} are left"
    for what in ("_introduced", "_deliveries"):
        for session in getattr(carriage, what):
            if session.closed:
                yield f"{node.name}: {what} of a session that is closed"
    by_name = {one.name: one for one in nodes}
    for peer, session_id in carriage._stand_ins:
        if not peer.up or session_id not in by_name[peer.name].hub.sessions:
            yield f"{node.name}: a stand-in for nobody on {peer.name}"
    for key, sessions in carriage._standing.items():
        if not sessions or any(session.closed for session in sessions):
            yield f"{node.name}: somebody who is gone stands at {key}"


def _home(node: SimulatedNode, topic: str) -> str:
    peer = node.cluster.homes.home(APP, topic)
    return node.name if peer is None else peer.name


def _interests(node: SimulatedNode) -> Iterator[str]:
    interests = node.cluster.watching._interests
    topics = {topic for topic in node.table("topics") if _home(node, topic) != node.name}
    if topics != {topic for _, topic in interests}:
        yield f"{node.name}: watches {sorted(interests)}, has subscribers of {sorted(topics)}"
    for (_, topic), interest in interests.items():
        if interest.home.name != _home(node, topic) or interest.left or interest.joining:
            yield f"{node.name}: {topic} is watched at {interest.home.name}, not at its home only"
    for _, topic in node.application.topics.histories():
        if _home(node, topic) != node.name:
            yield f"{node.name}: keeps a history of {topic}, which is not at home here"


def _watchers(nodes: list[SimulatedNode]) -> Iterator[str]:
    for node in nodes:
        app = node.hub.apps.get(APP)
        told = {} if app is None else app.watchers
        truth: dict[str, set[str]] = {}
        for other in nodes:
            for topic in other.table("topics") if other is not node else ():
                if _home(other, topic) == node.name:
                    truth.setdefault(topic, set()).add(other.name)
        for topic in sorted({*told, *truth}):
            names = sorted(peer.name for peer in told.get(topic, ()))
            if names != sorted(truth.get(topic, ())):
                yield f"{node.name}: {topic} is watched by {truth.get(topic)}, told {names}"


def _directory(nodes: list[SimulatedNode]) -> Iterator[str]:
    def known(node: SimulatedNode) -> list[object]:
        return sorted(
            (record.address, record.version, record.value)
            for page in node.directory.snapshot()
            for record in page
        )

    for one, other in permutations(nodes, 2):
        if one.name < other.name and known(one) != known(other):
            yield f"{one.name} and {other.name} know different records"
    for node in nodes:
        owner = node.application.definitions.owner_of(APP, QUEUE)
        has = node.application.queues.get(APP, QUEUE) is not None
        if has != (owner == node.name):
            yield f"{node.name}: {'has' if has else 'has not'} {QUEUE}, which {owner} owns"
