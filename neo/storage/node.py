"""A storage node: keeps cells of the partition table, and serves the master and clients.

Its life is :meth:`StorageNode.live`: find the primary master, do what it says until the connection is
lost, again. Between StartOperation and StopOperation it is *operational*: then it has
:class:`~neo.storage.commit.locks.Locks` in use and accepts connections from clients.

One order of work (DESIGN, *Storage node*): a handler writes into the open database transaction; an
answer that promises durability is sent by the backend's callback. When the database fails, all that
is in memory is worthless: the core ends, the shell makes another one, which joins the cluster anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from neo.node.bootstrap import RETRY_SECONDS, find_primary
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.node.task import Future, Task
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    BLANK,
    FEATURE_LOCKS,
    FEATURE_MAINTENANCE,
    FEATURE_OIDS,
    FEATURE_TAILS,
    FEATURES,
    GREATEST_NID,
    AcceptIdentification,
    Address,
    NotifyDeadlock,
    RequestIdentification,
)
from neo.storage.backend.api import Backend, BackendFailure, DatabaseGone, Stored
from neo.storage.background import Pace
from neo.storage.cluster import check_database, greatest_nid, load_partitions
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import CellMode
from neo.storage.durability import Durability
from neo.storage.host import StorageHost
from neo.storage.links import Links
from neo.storage.maintenance import cleanup as maintenance
from neo.storage.maintenance.check import Checker
from neo.storage.maintenance.clone import clone
from neo.storage.maintenance.pack import Packer
from neo.storage.maintenance.size import Sizes
from neo.storage.replication.backup import BackupReplicator
from neo.storage.replication.fetch import Fetch
from neo.storage.replication.replicator import Replicator
from neo.storage.serving.identification import Identification
from neo.storage.serving.master import ServeMaster
from neo.storage.serving.storage import ServeStorage
from neo.topology.masters import MasterCandidates
from neo.topology.nodes import Node, NodeTable

logger = logging.getLogger("neo.storage")

#: An unlocked transaction is committed with the next vote or lock, or at last after this time: until
#: then a crash is repaired by verification, which takes longer the more there is to replay.
COMMIT_SECONDS = 1.0


class StorageNode(Durability):
    """``backend`` is open and belongs to this core, which closes it."""

    def __init__(
        self,
        shell: StorageHost,
        cluster: str,
        masters: MasterCandidates,
        address: Address,
        backend: Backend,
        *,
        devpath: Iterable[str] = (),
        drop_partitions: bool = True,
        is_clone: bool = False,
        remember: Callable[[list[Address]], None] = lambda masters: None,
    ) -> None:
        """``devpath``: where the node is, from the widest place to the disk. ``is_clone``: become a
        node of its own, then stop. ``remember`` keeps the addresses of masters heard of. Raises
        ValueError if the database is of another cluster.
        """
        super().__init__(shell, backend)
        self.shell: StorageHost = shell
        self.cluster = cluster
        self.masters = masters
        self.address = address
        self.devpath = list(devpath)
        self.drop_partitions = drop_partitions
        self._is_clone = is_clone
        self.remember = remember
        self.nid = check_database(backend, cluster)
        self.master: Peer | None = None
        self.operational = False
        self.backup = BackupReplicator(self)
        self.locks = Locks(
            self.cell_mode, backend.last_serial, self._deadlock, self._discard, shell.monotonic
        )
        self.clients: dict[Peer, None] = {}
        self.links = Links(self)
        self.pace = Pace(self)
        self.replicator = Replicator(self)
        self.packer = Packer(self)
        self.eraser = maintenance.Eraser(self)
        self.checker = Checker(self)
        self.sizes = Sizes(self)
        #: What the primary master understands besides the 70 messages.
        self.master_features: frozenset[str] = frozenset()
        #: One each by ``replicator`` and ``backup`` at most.
        self.fetches: dict[Fetch, None] = {}
        #: Identifications that are newer than the node table, with the way to look at them again.
        self.delayed: dict[Peer, Callable[[], None]] = {}
        self.jobs: dict[Task[None], None] = {}
        self._lost: Future[str] = Future()
        self._commit_planned = False
        load_partitions(backend, self.partitions)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        self.spawn(clone(self) if self._is_clone else self.live())

    async def live(self) -> None:
        """Be with the primary master, whoever it is, until this node stops."""
        while True:
            self._lost = Future()
            # The tables follow the acceptance in the same bytes: nothing may be awaited in between.
            peer, accepted = await find_primary(
                self, self.masters, self._request(), ServeMaster(self)
            )
            joined = self.shell.monotonic()
            self._joined(peer, accepted)
            reason = await self._lost
            logger.warning("lost the primary master %r: %s", peer, reason)
            self.master = None
            self.stop_operation()
            if self.shell.monotonic() - joined < RETRY_SECONDS:
                await self.sleep(RETRY_SECONDS)

    def _request(self) -> RequestIdentification:
        extra = {
            "new_nid": [],
            "devpath": self.devpath,
            "pack_tid": self.packer.wanted(),
            BLANK: self.nid is None or not self.partitions.assigned(self.nid),
            GREATEST_NID: greatest_nid(self.backend),
            FEATURES: [FEATURE_OIDS, FEATURE_MAINTENANCE, FEATURE_TAILS, FEATURE_LOCKS],
        }
        return RequestIdentification(
            NodeType.STORAGE, self.nid, self.address, self.cluster, None, extra
        )

    def _joined(self, peer: Peer, accepted: AcceptIdentification) -> None:
        self.master = peer
        self.master_features = frozenset()
        peer.node = Node(
            NodeType.MASTER, accepted.nid, peer.address, NodeState.RUNNING, identified=True
        )
        self.nodes = NodeTable()
        if self.nid != accepted.your_nid:
            self.nid = accepted.your_nid
            self.backend.set_config("nid", str(self.nid))
        logger.info("%s joined the primary master %r", format_nid(self.nid), peer)

    def master_lost(self, reason: str) -> None:
        self._lost.resolve(reason)

    def stranger_handler(self) -> Handler:
        return Identification(self)

    def storage_handler(self) -> Handler:
        """The handler of another storage node, whoever dialed."""
        return ServeStorage(self)

    # -- operation -------------------------------------------------------------------------------

    def start_operation(self, backup: bool) -> None:
        """StartOperation: from now on clients may come."""
        was_operational, self.operational = self.operational, True
        if not was_operational:
            dropped.remember(self.backend, self.backend.locked_transactions())
            self.backend.drop_unfinished()
        self.backup.start(backup)
        if was_operational:
            return
        self.shell.healthy()
        self.packer.begin()
        self.eraser.begin()

    def stop_operation(self) -> None:
        """StopOperation, or no master any more: forget the clients and what they were doing.

        What did not vote is deleted; the rest is left to verification.
        """
        self.operational = False
        for task in list(self.jobs):
            task.cancel()
        for peer in list(self.clients):
            peer.close()
        self.clients.clear()
        self.links.clear()
        self.backup.clear()
        self.replicator.clear()
        self.packer.clear()
        self.eraser.clear()
        self.checker.clear()
        self.locks.clear()
        self.recheck_delayed()

    def recheck_delayed(self) -> None:
        """The node table changed, or the operation stopped: look again at who waits to identify."""
        delayed, self.delayed = self.delayed, {}
        for peer, check in delayed.items():
            if not peer.closed:
                check()

    def client_gone(self, nid: int) -> None:
        """The master lost a client: drop its connections and transactions that are not locked."""
        for peer in [p for p in self.clients if p.node is not None and p.node.nid == nid]:
            del self.clients[peer]
            peer.close()
        ttids = self.locks.client_down(nid)
        dropped.remember(self.backend, ttids)
        for ttid in ttids:
            self.backend.abort(ttid)

    def client_address(self, nid: int) -> Address | None:
        """Return where a client is connected from; None if it is not connected."""
        for peer in self.clients:
            if peer.node is not None and peer.node.nid == nid:
                return peer.address
        return None

    # -- partition table -------------------------------------------------------------------------

    def cell_state(self, id_: bytes) -> CellState | None:
        """State of the own cell that has an oid or a tid."""
        partitions = self.partitions
        return partitions.state(partitions.partition(id_), self.nid)

    def cell_mode(self, oid: bytes) -> CellMode:
        partition = self.partitions.partition(oid)
        state = self.partitions.state(partition, self.nid)
        if state is None or not state.writable:
            return CellMode.ABSENT
        if state.readable or self.replicator.is_complete(partition):
            return CellMode.NORMAL
        return CellMode.LOCKLESS

    def readable_partitions(self) -> list[int]:
        assert self.nid is not None
        return self.partitions.readable_by(self.nid)

    # -- transactions ----------------------------------------------------------------------------

    def _deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        if self.master is not None:
            self.master.send(NotifyDeadlock(ttid, locking_tid))

    def _discard(self, stored: Stored) -> None:
        if stored.data_id is not None:
            self.backend.release_data((stored.data_id,))

    def unlock(self, ttid: bytes) -> bool:
        """NotifyUnlockInformation; False if the transaction is not locked here."""
        tid = self.locks.final_tid(ttid)
        if tid is None:
            return False
        self.backend.unlock(ttid, tid)
        self.backend.executed(self.guard(lambda: self._unlocked(ttid)))
        self.commit_soon()
        return True

    def commit_soon(self) -> None:
        """What was written becomes durable, with some answer or after a while."""
        if not self._commit_planned:
            self._commit_planned = True
            self.call_later(COMMIT_SECONDS, self.guard(self._commit))

    def _unlocked(self, ttid: bytes) -> None:
        # The operation may have stopped meanwhile.
        if self.locks.final_tid(ttid) is not None:
            self.locks.unlock(ttid)

    def _commit(self) -> None:
        self._commit_planned = False
        self.backend.stored(lambda: None)

    def abort(self, ttid: bytes) -> None:
        """AbortTransaction from the master."""
        self.replicator.aborted(ttid)
        if self.locks.abort(ttid, None):
            dropped.remember(self.backend, [ttid])
            self.backend.abort(ttid)

    def run_job(self, coroutine: maintenance.Job) -> None:
        """Long work in the background, cancelled when the operation stops."""
        task = self.spawn(coroutine)
        self.jobs[task] = None
        task.then(lambda _: self.jobs.pop(task, None))

    def fail(self, error: Exception) -> None:
        if isinstance(error, BackendFailure):
            self.backend_failed(error)
        else:
            super().fail(error)

    # -- the end ---------------------------------------------------------------------------------

    def stop(self, code: int) -> None:
        if self.stopped:
            return
        self._end()
        try:
            self.locks.clear()
        except BackendFailure as e:
            logger.error("data of interrupted transactions is left in the database: %s", e)
        self._close_backend()
        self.shell.stop(code)

    def erase(self) -> None:
        """The operator removed this node from the cluster for ever (FACTS 6.3)."""
        logger.warning("this node was dropped from the cluster: its database is erased")
        self._end()
        self._close_backend()
        try:
            self.backend.open(reset=True)
        except BackendFailure as e:
            logger.critical("the database of this dropped node could not be erased: %s", e)
        self._close_backend()
        self.shell.stop(0)

    def backend_failed(self, failure: BackendFailure) -> None:
        """Nothing can be promised any more: leave the cluster, let the shell make another core, unless
        that would begin with an empty database."""
        if self.stopped:
            return
        logger.critical("the database failed: %s", failure)
        why = f"the database failed: {failure}"
        self._end(why)
        self._close_backend()
        if isinstance(failure, DatabaseGone):
            self.shell.stop(1)
        else:
            self.shell.restart(why)

    def _end(self, why: str | None = None) -> None:
        """Cancel every workflow and close every connection; who asked for something hears why there
        will be no answer."""
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
        try:
            self.backend.close()
        except BackendFailure as e:
            logger.error("the database could not be closed cleanly: %s", e)
