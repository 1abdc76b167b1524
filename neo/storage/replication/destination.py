"""What a source sends to the node that fetches from it (specification, *Replication*)."""

from __future__ import annotations

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.packets import AddObject, AddTransaction
from neo.storage.serving.handler import StorageHandler


class Destination(StorageHandler):
    """Base of the handlers of peers that are asked for data. What nobody waits for any more is
    dropped."""

    @on(AddTransaction, AddObject)
    def add(self, peer: Peer, message_id: int, m: AddTransaction | AddObject) -> None:
        for fetch in tuple(self.core.fetches):  # it may end with this: the database fails
            if fetch.source is peer:
                fetch.add(m)
