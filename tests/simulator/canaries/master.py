"""Bugs of a master: commits out of order or too early, recovery that forgets, ids that come back."""

from __future__ import annotations

from typing import Any

from neo.master.cluster import Cluster
from neo.master.commit.transactions import Transaction, Transactions
from neo.master.ids import TidGenerator
from neo.master.phases import verification
from neo.master.phases.recovery import Recovery
from neo.master.published_tables import PublishedTables
from neo.master.serving.client import ServeClient
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import NodeType
from neo.protocol.ids import ZERO_TID, p64, tid_from_time, u64
from neo.protocol.packets import AnswerFinalTID, AnswerLastIDs, AskFinalTID, AskLastIDs, Message
from tests.simulator.planting import Canary, Patch

KILLS = {"faults": ("kill-server",), "disk": "memory", "seconds": 10.0}
QUIET = {"faults": ("none",), "disk": "memory", "seconds": 2.0}


def _unlock_before_locks() -> list[Patch]:
    original = Transactions.locked

    def locked(self: Transactions[Any], ttid: bytes, nid: int) -> bool:
        transaction = self.get(ttid)
        if transaction is not None:
            transaction.waiting.clear()
        return original(self, ttid, nid)

    return [(Transactions, "locked", locked)]


def _finish_out_of_order() -> list[Patch]:
    def pop_finished(self: Transactions[Any]) -> Transaction[Any] | None:
        for transaction in self._queue:
            if not transaction.waiting:
                self._queue.remove(transaction)
                del self._by_ttid[transaction.ttid]
                return transaction
        return None

    return [(Transactions, "pop_finished", pop_finished)]


def _forgotten_invalidation() -> list[Patch]:
    original = Cluster.of_type

    def of_type(self: Cluster, *types: NodeType) -> list[Peer]:
        found = original(self, *types)
        return found[:-1] if types == (NodeType.CLIENT,) else found

    return [(Cluster, "of_type", of_type)]


def _tid_follows_clock() -> list[Patch]:
    def ttid(self: TidGenerator) -> bytes:
        self.last = tid_from_time(self._time())
        return self.last

    def tid(self: TidGenerator, ttid: bytes, partitions: int) -> bytes:
        tid = u64(tid_from_time(self._time()))
        self.last = p64(tid + u64(ttid) % partitions - tid % partitions)
        return self.last

    return [(TidGenerator, "ttid", ttid), (TidGenerator, "tid", tid)]


def _tid_in_another_partition() -> list[Patch]:
    def tid(self: TidGenerator, ttid: bytes, partitions: int) -> bytes:
        return self.ttid()

    return [(TidGenerator, "tid", tid)]


def _tid_not_restored() -> list[Patch]:
    """The bug shows when the clock of the new master is behind that of the old one."""

    def reset(self: TidGenerator, last: bytes) -> None:
        self.last = ZERO_TID

    return [(TidGenerator, "reset", reset)]


def _oids_not_restored() -> list[Patch]:
    async def last_ids(cluster: Cluster, core: Core) -> None:
        ltid = ZERO_TID
        answers = await verification._ask_all(cluster, cluster.running(), AskLastIDs())
        for answer in answers.values():
            assert isinstance(answer, AnswerLastIDs)
            ltid = max(ltid, answer.ltid or ZERO_TID)
        cluster.tids.reset(ltid)
        cluster.last_tid = ltid

    return [(verification, "_last_ids", last_ids)]


def _nobody_asked_for_tids() -> list[Patch]:
    async def find_tids(*args: object) -> None: ...

    return [(verification, "_find_tids", find_tids)]


def _validated_where_locked() -> list[Patch]:
    original = verification._interrupted

    async def interrupted(cluster: Cluster) -> Any:
        voted, locked, behind = await original(cluster)
        for ttid in locked:
            voted[ttid] = voted[ttid][:1]
        return voted, locked, behind

    return [(verification, "_interrupted", interrupted)]


def _final_tid_forgotten() -> list[Patch]:
    original = ServeClient.final_tid

    def final_tid(self: ServeClient, peer: Peer, message_id: int, m: AskFinalTID) -> Message | None:
        transaction = self._coordinator.transactions.get(m.ttid)
        if transaction is not None:
            return original(self, peer, message_id, m)
        return AnswerFinalTID(None)

    return [(ServeClient, "final_tid", final_tid)]


def _older_table_accepted() -> list[Patch]:
    """Neither that a master served with a later table, nor that it sent one, is taken into account."""
    original = Recovery._obstacle_to_restart

    def obstacle(self: Recovery, strict: bool, forced: bool) -> str | None:
        served, self._cluster.served_ptid = self._cluster.served_ptid, None
        try:
            return original(self, strict, forced)
        finally:
            self._cluster.served_ptid = served

    return [
        (Recovery, "_obstacle_to_restart", obstacle),
        (PublishedTables, "missing", lambda self, present: None),
    ]


def _tids_of_others() -> list[Patch]:
    return [(TidGenerator, "leave_out", lambda self, count: None)]


CANARIES = (
    Canary(
        "unlock-before-locks",
        "tpc_finish ends with the first storage that locked, not with the last",
        "reads: a client sees the new last tid, and old data on a storage that is not locked yet",
        _unlock_before_locks,
        80,
        QUIET | {"storages": 4, "workloads": ("phases", "increments"), "faults": ("slow-link",)},
    ),
    Canary(
        "finish-out-of-order",
        "a transaction is finished as soon as it is locked, though an earlier one is not",
        "reads: an older transaction appears below a tid at which a client has read",
        _finish_out_of_order,
        30,
        QUIET | {"storages": 4, "workloads": ("bank", "counters")},
        first=8,
    ),
    Canary(
        "forgotten-invalidation",
        "the last client of the list is not told what others commit",
        "reads: a cache gives a revision that is not the last one any more",
        _forgotten_invalidation,
        40,
        QUIET | {"workloads": ("bank", "counters")},
    ),
    Canary(
        "tid-follows-clock",
        "the generator of tids trusts the clock, and goes back with it",
        "history: tids go back, or a commit replaces what is newer",
        _tid_follows_clock,
        50,
        {"faults": ("clock",), "disk": "memory", "seconds": 5.0, "workloads": ("bank",)},
    ),
    Canary(
        "tid-in-another-partition",
        "the final tid is not in the partition of the ttid, where the metadata is",
        "tables: objects of a transaction that is not where its tid says",
        _tid_in_another_partition,
        10,
        QUIET | {"storages": 3, "workloads": ("bank",)},
    ),
    Canary(
        "tid-not-restored",
        "after a recovery, tids do not continue after the greatest of the database",
        "history: tids go back when the clock does",
        _tid_not_restored,
        40,
        {
            "faults": ("clock", "kill-server"),
            "disk": "memory",
            "seconds": 10.0,
            "workloads": ("bank",),
            "storages": 1,
        },
    ),
    Canary(
        "nobody-asked-for-tids",
        "verification forgets to ask the tid of nodes that unlocked a transaction already",
        "history: a transaction is half there, or acknowledged and lost",
        _nobody_asked_for_tids,
        20,
        KILLS | {"storages": 3, "workloads": ("bank",)},
    ),
    Canary(
        "validated-on-one",
        "verification finishes a transaction on one of the nodes that voted, not on all",
        "history: a transaction is half there",
        _validated_where_locked,
        40,
        KILLS | {"storages": 3, "workloads": ("bank",)},
        first=8,
    ),
    Canary(
        "final-tid-forgotten",
        "the master answers that a transaction it does not know was not committed",
        "history: a transaction is visible that the client knows to be lost",
        _final_tid_forgotten,
        50,
        KILLS | {"storages": 2, "workloads": ("bank",)},
        first=3,
    ),
    Canary(
        "oids-not-restored",
        "after a recovery, oids start again from the beginning",
        "history: an oid that is in use is given again",
        _oids_not_restored,
        40,
        KILLS | {"workloads": ("growth",), "faults": ("kill-server", "kill-client")},
    ),
    Canary(
        "older-table-accepted",
        "a recovery begins with an older partition table than the one that was in use",
        "history: an acknowledged transaction is lost, or tids go back",
        _older_table_accepted,
        20,
        KILLS
        | {
            "faults": ("kill-server", "full-disk"),
            "storages": 2,
            "replicas": 1,
            "workloads": ("bank",),
        },
        first=4,
    ),
    Canary(
        "tids-of-others",
        "after a start without nodes, tids are given that these have given to other transactions",
        "cells: replicas are not equal; commits: one that was given up is visible",
        _tids_of_others,
        100,
        KILLS
        | {
            "workloads": ("increments",),
            "faults": ("forsake", "clock"),
            "storages": 2,
            "replicas": 1,
            "masters": 1,
        },
        first=109,
    ),
)
