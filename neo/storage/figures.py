"""Figures of a storage node for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from neo.node.figures import Figure, Kind, Sample, build
from neo.protocol.enums import CellState
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.disks import Disks
from neo.storage.replication.replicator import Replicator

CELLS = Figure("neo_storage_cells", "Cells of this node.", ("state",))
STUCK = Figure("neo_storage_cells_stuck", "Cells that could not be copied several times in a row.")
LAG = Figure(
    "neo_storage_replication_lag_seconds",
    "By how much a cell that is copied is behind; cells that have nothing yet do not count.",
)
JOBS = Figure("neo_storage_background_jobs", "Jobs at work: copies, packs, checks, operations.")
TRANSACTIONS = Figure("neo_storage_transactions_open", "Transactions that this node takes part in.")
HELD = Figure("neo_storage_locks_held", "Objects that are locked.")
LOCK_WAITS = Figure("neo_storage_locks_waiting", "Requests that wait for the lock of an object.")
LONGEST = Figure("neo_storage_lock_wait_oldest_seconds", "How long the oldest of them has waited.")
SIZE = Figure("neo_storage_bytes", "Bytes of the database and of contents of blobs.")
FREE = Figure("neo_storage_disk_free_bytes", "Free bytes of a disk.", ("disk",))
TOTAL = Figure("neo_storage_disk_size_bytes", "Bytes of a disk that can be used.", ("disk",))
SYNCS = Figure(
    "neo_storage_sync_seconds", "Time in which a group of commits became durable.", (), Kind.HISTOGRAM
)
LOG = Figure("neo_storage_wal_bytes", "Bytes of the write-ahead log of SQLite.")
CHECKPOINTS = Figure(
    "neo_storage_checkpoints_total",
    "Times that SQLite's log was copied into its database.",
    (),
    Kind.COUNTER,
)
REFUSED = Figure(
    "neo_storage_statements_refused_total",
    "Requests that failed because the database refused a statement.",
    (),
    Kind.COUNTER,
)
LOST = Figure("neo_storage_contents_lost", "Contents of blobs whose files are missing or damaged.")

STORAGE = (
    *(CELLS, STUCK, LAG, JOBS, TRANSACTIONS, HELD, LOCK_WAITS, LONGEST, SIZE, FREE, TOTAL),
    *(SYNCS, LOG, CHECKPOINTS, REFUSED, LOST),
)


@dataclass(eq=False, repr=False)
class StorageFigures:
    database: Database
    cluster: Cluster
    cells: Cells
    locks: Locks
    background: Background
    replicator: Replicator
    disks: Disks
    contents: Contents

    def samples(self) -> Iterator[Sample]:
        """Return the figures as they are now. Raise BackendFailure."""
        yield build(self.cluster.name, "storage")
        states = Counter(self.cells.state(partition) for partition in self.cells.assigned())
        for state in CellState:
            if state is not CellState.DISCARDED:
                yield Sample(CELLS, states[state], (state.name,))
        yield Sample(STUCK, len(self.replicator.stuck()))
        yield Sample(LAG, self.replicator.lag())
        yield Sample(JOBS, len(self.background.jobs))
        counts = self.locks.counts()
        yield Sample(TRANSACTIONS, counts.transactions)
        yield Sample(HELD, counts.held)
        yield Sample(LOCK_WAITS, counts.waiting)
        yield Sample(LONGEST, counts.longest)
        yield from self._disks()
        yield Sample(REFUSED, self.database.refusals.count)
        yield Sample(LOST, len(self.contents.lost))

    def _disks(self) -> Iterator[Sample]:
        answer = self.disks.describe()
        yield Sample(SIZE, answer.size)
        for what, free, total in answer.disk_list:
            yield Sample(FREE, free, (what,))
            yield Sample(TOTAL, total, (what,))
        work = self.database.backend.engine.work()
        yield Sample(SYNCS, work.syncs)
        if work.log_bytes is not None:
            yield Sample(LOG, work.log_bytes)
            yield Sample(CHECKPOINTS, work.checkpoints)
