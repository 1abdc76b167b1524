"""What the storage nodes of a backup cluster are known to have on their disks.

A storage node reports the tid up to which a cell is complete when that is durable. It sends
NotifyReplicationDone for what it fetched. For cells in which nothing changed it sends nothing, so it is
asked for ``backup_tid`` (AskRecovery). Nodes of other implementations may not expect this question here;
for them, what they were told counts as durable.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.master.following.cells import BackupCells, Cell
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import AnswerRecovery, AskRecovery, SyncMark

logger = logging.getLogger("neo.master")


class Known(NamedTuple):
    """The known positions of the cells when a stay in backup mode begins."""

    #: By partition: nid → the tid up to which the cell is complete.
    rows: list[dict[int, bytes]]
    #: No transaction in this cluster is later.
    last: bytes
    #: Storage nodes do not remember yet that they are a backup.
    new: bool
    #: (partition, nid) of cells about which their nodes are still to be asked.
    unknown: Collection[tuple[int, int]]
    #: The marks that storage nodes keep.
    marks: Collection[SyncMark] = ()


class Positions:
    """Each answer of a node is reported to ``cluster.events``. Bound: one pending question for each
    storage node."""

    def __init__(self, cluster: Cluster, cells: BackupCells, known: Known) -> None:
        self._cluster = cluster
        self._cells = cells
        #: Nodes that may not remember yet that they are a backup. Nothing is fetched before they do,
        #: because a node that forgot it would be taken for one that has everything.
        self.forgetful = {nid for row in known.rows for nid in row} if known.new else set()
        self._unknown = set(known.unknown)
        #: The greatest partition table that a node with readable cells has on its disk.
        self._kept_ptid = 0
        self._asking: dict[int, bool] = {}  # by AskRecovery; True: ask again when it is answered
        self._stopped = False

    @property
    def unknown(self) -> list[int]:
        """Nodes that have not reported yet up to which tid their cells are complete."""
        return sorted({nid for _, nid in self._unknown})

    @property
    def table_kept(self) -> bool:
        """Whether every master would come to a partition table in which lost nodes are out of date
        (specification 25.20). That the log of the masters has it is not enough: if only an older table
        comes back, the next master starts with that one, and with cells that are behind. So a node with
        readable cells must have it on its disk."""
        cluster = self._cluster
        return cluster.published.complete and self._kept_ptid >= (cluster.partitions.ptid or 0)

    def stop(self) -> None:
        """Ignore all answers from now on: the stay in backup mode is over."""
        self._stopped = True

    # -- questions ---------------------------------------------------------------------------------

    def ask_readable(self) -> None:
        """Ask all nodes with readable cells."""
        for nid in sorted(self._cluster.partitions.nodes(readable_only=True)):
            self.ask(nid)

    def ask_if_behind(self, nid: int) -> None:
        """Ask a node that may have made durable what it was told."""
        if any(cell.told > cell.tid for cell in self._cells.of_node(nid).values()):
            self.ask(nid)

    def ask(self, nid: int) -> None:
        """Ask a node up to which tid its readable cells are durably complete."""
        if nid in self._asking:
            self._asking[nid] = True
            return
        table, node = self._cluster.partitions, self._cluster.nodes.get(nid)
        peer = self._cluster.connected.get(nid)
        if peer is None or node is None:
            return
        cells = [
            (cell, cell.told)
            for partition, cell in self._cells.of_node(nid).items()
            if (state := table.state(partition, nid)) is not None and state.readable
        ]
        if not node.features:
            self.forgetful.discard(nid)
            self._kept_ptid = table.ptid or 0
            self._acknowledged(cells, None)
            return
        self._asking[nid] = False
        peer.ask(AskRecovery()).then(partial(self._answered, nid, cells))

    def _answered(
        self, nid: int, cells: list[tuple[Cell, bytes]], future: Future[AnswerRecovery]
    ) -> None:
        if self._stopped:
            return
        again = self._asking.pop(nid, False)
        try:
            answer = future.result()
        except (ConnectionLost, ErrorAnswer) as e:
            logger.info("%s failed to answer AskRecovery: %s", format_nid(nid), e)
            return
        if answer.ptid is not None and self._cluster.partitions.readable_by(nid):
            self._kept_ptid = max(self._kept_ptid, answer.ptid)
        if answer.backup_tid is not None:
            self.forgetful.discard(nid)
            self._unknown = {cell for cell in self._unknown if cell[1] != nid}
            self._acknowledged(cells, answer.backup_tid)
        else:
            self._cluster.events.backup_advanced()
        if again:
            self.ask(nid)

    def _acknowledged(self, cells: list[tuple[Cell, bytes]], tid: bytes | None) -> None:
        """Note that cells are complete up to ``tid``. None: up to what their node was told."""
        for cell, told in cells:
            cell.tid = max(cell.tid, told if tid is None else tid)
        self._cluster.events.backup_advanced()

    # -- cells and nodes ---------------------------------------------------------------------------

    def done(self, partition: int, nid: int, tid: bytes) -> None:
        """Note that a cell is complete up to a tid, as its node reports."""
        self._cells.done(partition, nid, tid)
        self._unknown.discard((partition, nid))

    def remove(self, partition: int, nid: int) -> None:
        """Forget a cell that cannot be read any more."""
        self._cells.remove(partition, nid)
        self._unknown.discard((partition, nid))

    def storage_lost(self, nid: int) -> None:
        """Forget the question to a node; it is asked again when it comes back."""
        self._asking.pop(nid, None)
        self.forgetful.discard(nid)
