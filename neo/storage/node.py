"""A storage node: keeps cells of the partition table, and serves the master and clients.

:meth:`StorageNode.live` finds the primary master and follows its orders until the connection is lost,
again and again. Between StartOperation and StopOperation the node is *operational*: it accepts
connections from clients and other storage nodes, and its parts are at work.

This module creates the parts, each with the neighbours that it uses, and tells them of events. Only the
command imports it.

A handler writes into the open database transaction; the backend's callback sends an answer that promises
durability (docs/architecture.md, *Group commit*). When the database fails, the state in memory is
worthless: the core ends, the process makes another core, and that joins the cluster anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neo.node.bootstrap import find_primary
from neo.node.core import Core, Readiness
from neo.node.figures import Sample
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    BLANK,
    FEATURE_BLOBS,
    FEATURE_CHAINS,
    FEATURE_OURS,
    FEATURES,
    GREATEST_NID,
    OPERATIONS,
    SYNC_UNTIL,
    AcceptIdentification,
    Address,
    RequestIdentification,
)
from neo.storage.backend.api import Backend, BackendFailure, DatabaseGone, StatementRefused
from neo.storage.background import Background
from neo.storage.blobs.disk import ContentDisk
from neo.storage.blobs.parts import BlobParts
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.participant import Participant
from neo.storage.conditions import Conditions
from neo.storage.database import Database, Refusals
from neo.storage.disks import Disks
from neo.storage.events import CellsChanged, Part
from neo.storage.figures import StorageFigures
from neo.storage.following.links import DownstreamLinks, UpstreamLinks
from neo.storage.following.replicator import BackupReplicator
from neo.storage.host import StorageHost
from neo.storage.links import Links, UpstreamPeers
from neo.storage.maintenance.check import Checker
from neo.storage.maintenance.cleanup import Eraser, Orphans
from neo.storage.maintenance.clone import clone
from neo.storage.maintenance.digests import Digests
from neo.storage.maintenance.pack import Packer, PackProgress
from neo.storage.maintenance.size import Sizes
from neo.storage.operations.backup import steps_of_backup
from neo.storage.operations.move import steps_of_moves
from neo.storage.operations.part import Operations
from neo.storage.operations.partitions import steps_of_partitions
from neo.storage.operations.restore import steps_of_restore
from neo.storage.operations.room import Room
from neo.storage.operations.upgrade import steps_of_upgrade
from neo.storage.operations.worker import InlineWorker, Worker
from neo.storage.prepared.fetch import PreparedFetch
from neo.storage.prepared.transactions import PreparedTransactions
from neo.storage.replication.fetch import Receiver
from neo.storage.replication.replicator import Replicator
from neo.storage.serving.client import ClientParts, Clients
from neo.storage.serving.direct import DirectReads
from neo.storage.serving.identification import Identification
from neo.storage.serving.master.backups import Backups
from neo.storage.serving.master.commits import Commits
from neo.storage.serving.master.handler import ServeMaster
from neo.storage.serving.master.maintenance import Maintenance
from neo.storage.serving.master.operations import OperationNotices
from neo.storage.serving.master.recovery import Recovery
from neo.storage.serving.master.tables import Tables
from neo.storage.serving.storage import ServeBackupNode, ServeStorage
from neo.storage.sync.received_votes import ReceivedVotes
from neo.storage.sync.source import SyncSource
from neo.storage.sync.vote_fetch import VoteFetch
from neo.topology.masters import RETRY_SECONDS, MasterCandidates
from neo.topology.nodes import Node

logger = logging.getLogger("neo.storage")


@dataclass(frozen=True)
class NodeSettings:
    """``address``: where this node listens. ``devpath``: where it is, from the widest place to the disk.
    ``drop_partitions``: erase the data of partitions that this node loses. ``is_clone``: become a node of
    its own, then stop."""

    cluster: str
    address: Address
    devpath: tuple[str, ...] = ()
    drop_partitions: bool = True
    is_clone: bool = False


class StorageNode(Core):
    def __init__(
        self,
        host: StorageHost,
        settings: NodeSettings,
        masters: MasterCandidates,
        backend: Backend,
        disk: ContentDisk | None = None,
        remember: Callable[[list[Address]], None] = lambda masters: None,
        worker: Worker | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        """``backend`` and ``disk`` are open; this core closes them. ``disk``: None if this node keeps no
        contents of blobs. ``remember`` stores the addresses of known masters. ``worker``: for files of
        archives. ``refusals``: of the database, to earlier cores of this process. Raises ValueError if
        the database is of another cluster."""
        super().__init__(host)
        self.host: StorageHost = host
        self.settings = settings
        self.masters = masters
        self._remember = remember
        self._lost: Future[str] = Future()
        worker = worker or InlineWorker()
        announced = [FEATURE_OURS] if disk is None else [FEATURE_OURS, FEATURE_BLOBS]
        #: What this node announces to all nodes.
        self.announced = announced

        # Tables, locks and the connections that the other parts use.
        self.database = database = Database(self, backend, refusals)
        self.cluster = cluster = Cluster(settings.cluster, settings.address, backend.tables)
        self.cells = cells = Cells(database, cluster)
        packs = PackProgress(database, cells)
        sync_source = SyncSource(self, database, cells, packs)
        self.participant = Participant(host, database, cluster, cells, sync_source)
        self.locks = locks = self.participant.locks
        #: For other threads of this process.
        self.direct = DirectReads(
            host=host, database=database, cluster=cluster, cells=cells, unlocks=self.participant
        )
        self.prepared = PreparedTransactions(database, cluster, cells, self.participant)
        self.background = background = Background(self, database, locks)
        self.links = links = Links(self, cluster, self._storage_handler, announced)
        downstream = DownstreamLinks(announced)
        upstream_peers = UpstreamPeers()

        # Maintenance, and contents of blobs.
        self.blobs = blobs = BlobParts(
            host=host,
            database=database,
            disk=disk,
            background=background,
            cluster=cluster,
            cells=cells,
            links=links,
            upstream=upstream_peers,
        )
        disks = Disks(database, blobs.contents)
        self.packer = packer = Packer(
            host=host, database=database, cells=cells, locks=locks, background=background
        )
        digests = Digests(database, cells, background, packer)
        self.orphans = Orphans(database, background)
        self.eraser = Eraser(
            database=database,
            cells=cells,
            background=background,
            enabled=settings.drop_partitions,
            needed=self._is_operated,
        )

        # Replication from other nodes, and from the upstream cluster of a backup.
        receiver = Receiver(
            database=database,
            cells=cells,
            locks=locks,
            background=background,
            contents=blobs.fetch,
        )
        prepared_fetch = PreparedFetch(database, cells, self.participant, blobs.fetch)
        self.votes = votes = ReceivedVotes(
            database=database,
            cells=cells,
            locks=locks,
            background=background,
            contents=blobs.fetch,
        )
        upstream = UpstreamLinks(
            core=self,
            cluster=cluster,
            cells=cells,
            receiver=receiver,
            votes=votes,
            peers=upstream_peers,
            announced=announced,
        )
        self.vote_fetch = VoteFetch(
            database=database,
            cells=cells,
            background=background,
            upstream=upstream,
            votes=votes,
        )
        self.replicator = replicator = Replicator(
            host=host,
            database=database,
            cluster=cluster,
            cells=cells,
            locks=locks,
            background=background,
            links=links,
            receiver=receiver,
            packer=packer,
            prepared_fetch=prepared_fetch,
        )
        self.backup = BackupReplicator(
            database=database,
            cluster=cluster,
            cells=cells,
            background=background,
            links=links,
            upstream=upstream,
            receiver=receiver,
            packer=packer,
        )
        self.checker = Checker(
            cluster=cluster,
            cells=cells,
            locks=locks,
            background=background,
            links=links,
            upstream=upstream,
            digests=digests,
            receiver=receiver,
            packer=packer,
        )

        # Operations of neoctl.
        steps = steps_of_backup(
            database=database,
            cluster=cluster,
            cells=cells,
            locks=locks,
            background=background,
            contents=blobs.contents,
            worker=worker,
        )
        steps |= steps_of_restore(
            database=database,
            cluster=cluster,
            cells=cells,
            background=background,
            contents=blobs.contents,
            worker=worker,
        )
        steps |= steps_of_moves(self, cluster, cells)
        steps |= steps_of_upgrade(self.renew, host.shared)
        steps |= steps_of_partitions(database, background)
        room = Room(
            database=database,
            cluster=cluster,
            cells=cells,
            contents=blobs.contents,
            worker=worker,
        )
        self.operations = Operations(self, database, cluster, steps, room)

        # The handlers of connections.
        serve_backup_node = ServeBackupNode(
            database=database,
            cells=cells,
            locks=locks,
            background=background,
            links=links,
            downstream=downstream,
            packer=packer,
            digests=digests,
            contents=blobs.contents,
            sync=sync_source,
        )
        self._serve_storage = ServeStorage(
            database=database,
            cells=cells,
            locks=locks,
            background=background,
            links=links,
            downstream=downstream,
            packer=packer,
            digests=digests,
            contents=blobs.contents,
            sync=sync_source,
            receiver=receiver,
            prepared_fetch=prepared_fetch,
        )
        clients = Clients()
        client_parts = ClientParts(
            database=database,
            cells=cells,
            locks=locks,
            background=background,
            clients=clients,
            packs=packs,
            sizes=Sizes(host, backend, cells),
            sync=sync_source,
            contents=blobs.contents,
            uploads=blobs.uploads,
        )
        self._figures = StorageFigures(
            database=database,
            cluster=cluster,
            cells=cells,
            locks=locks,
            background=background,
            replicator=replicator,
            disks=disks,
            contents=blobs.contents,
        )
        self._identification = identification = Identification(
            database=database,
            cluster=cluster,
            parts=client_parts,
            links=links,
            downstream=downstream,
            guests=serve_backup_node,
        )
        self._serve_master = ServeMaster(
            database=database,
            node=self,
            parts=(
                Tables(
                    node=self,
                    host=host,
                    database=database,
                    cluster=cluster,
                    cells=cells,
                    links=links,
                    identification=identification,
                ),
                Recovery(
                    node=self,
                    database=database,
                    cluster=cluster,
                    cells=cells,
                    participant=self.participant,
                    prepared=self.prepared,
                    replicator=replicator,
                ),
                Commits(
                    database=database,
                    participant=self.participant,
                    prepared=self.prepared,
                    votes=votes,
                    replicator=replicator,
                ),
                Backups(
                    cluster=cluster, cells=cells, backup=self.backup, vote_fetch=self.vote_fetch
                ),
                Maintenance(
                    cluster=cluster,
                    packer=packer,
                    orphans=self.orphans,
                    checker=self.checker,
                    verifier=blobs.verifier,
                    contents=blobs.states,
                    conditions=Conditions(database, blobs.contents, replicator, disks),
                    disks=disks,
                ),
                OperationNotices(operations=self.operations, eraser=self.eraser),
            ),
        )

        #: In the order in which they are told of events. Connections of clients end before their
        #: transactions, so that these send no answers. The operation starts by dropping votes that are
        #: left, and with the locks of prepared transactions, before any job reads the tables. Requests
        #: for identification are evaluated again last, when nothing is left of the operation.
        self.parts: tuple[Part, ...] = (
            clients,
            self.participant,
            self.prepared,
            *blobs.all,
            background,
            links,
            votes,
            sync_source,
            upstream,
            downstream,
            self.backup,
            replicator,
            packer,
            self.eraser,
            self.orphans,
            self.checker,
            identification,
        )

    def _is_operated(self) -> bool:
        """Return whether an operation of ``neoctl`` has steps here."""
        return self.operations.busy

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        settings = self.settings
        if settings.is_clone:
            joining = clone(
                core=self,
                masters=self.masters,
                devpath=settings.devpath,
                database=self.database,
                cluster=self.cluster,
                cells=self.cells,
            )
            self.spawn(joining)
        else:
            self.spawn(self.live())

    async def live(self) -> None:
        """Join the primary master, and the next one after it is lost, until this node stops."""
        while True:
            self._lost = Future()
            # Nothing may be awaited before _joined: the tables follow in the same bytes.
            peer, accepted = await find_primary(
                self, self.masters, self._request(), self._serve_master
            )
            joined = self.host.monotonic()
            self._joined(peer, accepted)
            reason = await self._lost
            logger.warning("lost the primary master %r: %s", peer, reason)
            self.cluster.master = None
            self.operations.master_lost()
            self.stop_operation()
            if self.host.monotonic() - joined < RETRY_SECONDS:
                await self.sleep(RETRY_SECONDS)

    def _request(self) -> RequestIdentification:
        cluster, operations = self.cluster, self.operations.known()
        extra = {
            "new_nid": [],
            "devpath": list(self.settings.devpath),
            "pack_tid": self.packer.wanted(),
            # A node that has a part in an operation may have got cells that it does not know yet.
            BLANK: not self.cells.assigned() and not operations,
            GREATEST_NID: cluster.greatest_nid(),
            OPERATIONS: operations,
            FEATURES: [*self.announced, FEATURE_CHAINS],
        }
        if (until := self.cells.backup.in_sync_until()) is not None:
            extra[SYNC_UNTIL] = until
        return RequestIdentification(
            NodeType.STORAGE, cluster.nid, cluster.address, cluster.name, None, extra
        )

    def _joined(self, peer: Peer, accepted: AcceptIdentification) -> None:
        peer.node = Node(
            NodeType.MASTER, accepted.nid, peer.address, NodeState.RUNNING, identified=True
        )
        self.cluster.joined(peer, accepted.your_nid)
        logger.info("%s joined the primary master %r", format_nid(accepted.your_nid), peer)

    def master_lost(self, reason: str) -> None:
        self._lost.resolve(reason)

    def stranger_handler(self) -> Handler:
        return self._identification

    def _storage_handler(self) -> Handler:
        return self._serve_storage

    # -- for monitoring --------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """A storage node does its part while it serves."""
        cluster = self.cluster
        if cluster.operational:
            return Readiness(True, f"{format_nid(cluster.nid)} serves")
        if cluster.master is None:
            return Readiness(False, "no primary master is found")
        return Readiness(False, "the primary master has not started this node")

    def samples(self) -> Iterator[Sample]:
        yield from super().samples()
        try:
            yield from self._figures.samples()
        except BackendFailure as e:
            self.fail(e)

    # -- events ----------------------------------------------------------------------------------

    def masters_known(self, addresses: list[Address]) -> None:
        """Remember the addresses of masters for the next start."""
        if self.masters.add(addresses):
            self._remember(self.masters.addresses)

    def start_operation(self, backup: bool) -> None:
        """Handle StartOperation: accept clients, and let the parts begin."""
        was_operational, self.cluster.operational = self.cluster.operational, True
        assert self.cluster.nid is not None
        self.cells.backup.start(backup, self.cluster.nid)
        if was_operational:
            return
        self.host.healthy()
        for part in self.parts:
            part.operation_started()

    def cells_changed(self, change: CellsChanged) -> None:
        """Tell the parts that the partition table changed; they are at work only when operational."""
        if self.cluster.operational:
            for part in self.parts:
                part.cells_changed(change)

    def client_lost(self, nid: int) -> None:
        """Tell the parts that the master lost a client."""
        for part in self.parts:
            part.client_lost(nid)

    def stop_operation(self) -> None:
        """End the operation: StopOperation came, or the master was lost."""
        self.cluster.operational = False
        for part in self.parts:
            part.operation_stopped()

    # -- the end ---------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        if isinstance(error, BackendFailure):
            self.backend_failed(error)
        else:
            super().fail(error)

    def stop(self, code: int) -> None:
        if not self.stopped:
            self._leave()
            self.host.stop(code)

    def renew(self) -> None:
        """Stop, and begin anew with the release that is installed now."""
        if not self.stopped:
            self._leave()
            self.host.renew()

    def _leave(self) -> None:
        """End without anything that is left to others or to the next start."""
        self._end()
        try:
            self.locks.clear()
            self.orphans.ended()
        except BackendFailure as e:
            logger.error("data of interrupted transactions is left in the database: %s", e)
        self._close_backend()

    def erase(self) -> None:
        """Erase the database and stop: the operator removed this node from the cluster (specification
        4.7)."""
        logger.warning("this node was dropped from the cluster: its database is erased")
        self._end()
        self._close_backend()
        try:
            self.blobs.condemn()
            self.database.backend.open(reset=True)
            self.blobs.erase()
        except BackendFailure as e:
            logger.critical("the database of this dropped node could not be erased: %s", e)
        self._close_backend()
        self.host.stop(0)

    def backend_failed(self, failure: BackendFailure) -> None:
        """Leave the cluster, and have the process make another core; stop if that would begin with an
        empty database, or meet the same failure again."""
        if self.stopped:
            return
        logger.critical("the database failed: %s", failure)
        why = f"the database failed: {failure}"
        self._end(why)
        self._close_backend()
        is_refused = isinstance(failure, StatementRefused)
        if isinstance(failure, DatabaseGone) or (is_refused and self.database.careful):
            # It would meet the same again after the next start.
            self.host.stop(1)
        else:
            if is_refused:
                self.database.refusals.last = str(failure)
            self.host.restart(why)

    def _end(self, why: str | None = None) -> None:
        """Cancel all workflows and close all connections. With ``why``, tell identified peers first why
        their requests get no answer."""
        self.stopped = True
        for task in list(self._tasks):
            task.cancel()
        for peer in list(self.peers):
            if why is not None and peer.node is not None:
                peer.farewell(ErrorCode.NOT_READY, why)
            else:
                peer.close()
        self.flush()

    def _close_backend(self) -> None:
        self.blobs.close()
        try:
            self.database.backend.close()
        except BackendFailure as e:
            logger.error("the database could not be closed cleanly: %s", e)
