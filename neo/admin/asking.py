"""Ask the storage nodes that the master reports as DOWN why they are down.

A storage process without its database is not part of the cluster, but it runs, and tells any peer that
connects what it waits for (:mod:`neo.node.process`). A storage process that cannot reach the master
runs, too.
"""

from __future__ import annotations

from neo.node.core import Core
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.node.task import Future, first
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import AnswerDownNodes, Ping, Pong
from neo.topology.nodes import NodeTable

#: Timeout. A process answers at once; a lost machine does not answer.
ANSWER_SECONDS = 2.0
#: Bound of the simultaneous connections.
NODES_MAX = 100


async def ask_down(core: Core, nodes: NodeTable) -> list[tuple[int, str]]:
    """Return what the storage nodes that are DOWN say, of those that are reached."""
    asked: list[tuple[int, Peer, Future[Pong]]] = []
    for node in nodes.of_type(NodeType.STORAGE):
        if node.state is NodeState.DOWN and node.nid is not None and node.address is not None:
            peer = core.dial(node.address, Handler())
            asked.append((node.nid, peer, peer.ask(Ping())))
            if len(asked) == NODES_MAX:
                break
    limit = core.sleep(ANSWER_SECONDS)
    for _, _, pong in asked:
        await first(pong, limit)
    said = [(nid, peer.last_words) for nid, peer, _ in asked if peer.connection.greeted]
    for _, peer, _ in asked:
        peer.close()
    return said


async def answer_down(core: Core, nodes: NodeTable, asker: Peer, message_id: int) -> None:
    """Answer AskDownNodes."""
    asker.answer(message_id, AnswerDownNodes(await ask_down(core, nodes)))
