"""What the primary master of a backup cluster orders (specification 13, 25)."""

from __future__ import annotations

from dataclasses import dataclass

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.packets import AskVoted, NotifyInSync, NotifyLeft, NotifySynced, Replicate
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.following.replicator import BackupReplicator
from neo.storage.sync.vote_fetch import VoteFetch


@dataclass(frozen=True, eq=False, repr=False)
class Backups:
    """Passes orders to the parts that follow the upstream cluster."""

    cluster: Cluster
    cells: Cells
    backup: BackupReplicator
    vote_fetch: VoteFetch

    @on(Replicate)
    def replicate(self, peer: Peer, message_id: int, m: Replicate) -> None:
        """Fetch the cells; ignore orders that come after the end of the operation."""
        if self.cluster.operational:
            self.backup.order(m.tid, m.upstream_name, m.source_dict)

    @on(NotifySynced)
    def synced(self, peer: Peer, message_id: int, m: NotifySynced) -> None:
        self.cells.backup.synced(m.tid)

    @on(NotifyInSync)
    def in_sync(self, peer: Peer, message_id: int, m: NotifyInSync) -> None:
        self.cells.backup.in_sync(m.until)

    @on(AskVoted)
    def voted(self, peer: Peer, message_id: int, m: AskVoted) -> None:
        self.vote_fetch.ask(peer, message_id, m)

    @on(NotifyLeft)
    def backup_left(self, peer: Peer, message_id: int, m: NotifyLeft) -> None:
        self.vote_fetch.left()
