"""The mesh: one link per pair, whatever happens (H6)."""

from __future__ import annotations

from tests.cluster.meshes import Board, all_linked, make_peer, started
from tests.loop import on_loop


@on_loop
async def test_three_nodes_link_and_each_hears_each():
    board = Board()
    peers = [make_peer(name, board) for name in "abc"]
    async with started(*peers):
        await all_linked(*peers)
        for peer in peers:
            for name, link in peer.links.items():
                link.write(f"{peer.name} to {name}".encode())
        for peer in peers:
            for other in peers:
                if other is not peer:
                    await peer.witness.until(
                        lambda peer=peer, other=other: (
                            peer.witness.bodies.get(other.name)
                            == [f"{other.name} to {peer.name}".encode()]
                        )
                    )
