"""Figures of a master for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from neo.master.cluster import Cluster
from neo.master.commit.transactions import State, Transactions
from neo.master.following.mode import BackupMode
from neo.node.figures import Figure, Sample
from neo.node.peer import Peer
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import ZERO_TID, time_from_tid

PRIMARY = Figure("neo_master_primary", "1 if this master is the primary one.")
STATE = Figure("neo_master_cluster_state", "1 for the state in which the cluster is.", ("state",))
CELLS = Figure("neo_master_cells", "Copies of partitions.", ("state",))
TRANSACTIONS = Figure("neo_master_transactions_open", "Transactions, by how far they are.", ("state",))
LAST = Figure("neo_master_last_transaction_timestamp_seconds", "When the last transaction was committed.")
FOLLOWING = Figure(
    "neo_master_backup_following", "1 if this standby is connected to its upstream cluster."
)
LAG = Figure(
    "neo_master_backup_lag_seconds",
    "By how much what this standby shows is behind the last upstream transaction that it knows.",
)

MASTER = PRIMARY, STATE, CELLS, TRANSACTIONS, LAST, FOLLOWING, LAG


@dataclass(eq=False, repr=False)
class MasterFigures:
    """Of a primary master."""

    cluster: Cluster
    transactions: Transactions[Peer]
    backup: BackupMode

    def samples(self) -> Iterator[Sample]:
        """Return the figures as they are now."""
        cluster = self.cluster
        yield Sample(PRIMARY, 1)
        for state in ClusterState:
            yield Sample(STATE, state is cluster.state, (state.name,))
        cells = Counter(cell for row in cluster.partitions.rows for cell in row.values())
        for cell in CellState:
            if cell is not CellState.DISCARDED:
                yield Sample(CELLS, cells[cell], (cell.name,))
        states = Counter(transaction.state for transaction in self.transactions.all())
        for each in State:
            yield Sample(TRANSACTIONS, states[each], (each.name,))
        if cluster.last_tid != ZERO_TID:
            yield Sample(LAST, time_from_tid(cluster.last_tid))
        if (backup := self.backup.current) is not None:
            yield Sample(FOLLOWING, backup.following)
            yield Sample(LAG, backup.lag)
