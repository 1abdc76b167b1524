"""Bugs of prepared transactions (specification 24)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from neo.master.commit.outcomes import Outcome, Outcomes
from neo.master.commit.prepared import PreparedTransactions
from neo.master.commit.transactions import Transaction, Transactions
from neo.node.peer import Peer
from neo.protocol.packets import AnswerPrepareInformation, AskPrepareInformation
from neo.storage.commit.locks import Locks
from neo.storage.commit.participant import Participant
from neo.storage.commit.transactions import Change
from neo.storage.replication.replicator import OutdatedCell, Replicator
from neo.storage.serving.master.commits import Commits
from tests.simulator.planting import Canary, Patch

CRASHES: dict[str, Any] = {
    "workloads": ("prepared",),
    "faults": ("kill-server", "kill-client"),
    "disk": "memory",
    "storages": 2,
    "seconds": 15.0,
}
MOVES: dict[str, Any] = {
    "workloads": ("prepared",),
    "faults": ("kill-server", "operate"),
    "disk": "memory",
    "storages": 3,
    "replicas": 1,
    "seconds": 15.0,
}


def _dropped_with_its_client() -> list[Patch]:
    original = Locks.client_down

    def client_down(self: Locks, nid: int) -> list[bytes]:
        held = [t for t in self.prepared.values() if t.client.nid == nid]
        for transaction in held:
            transaction.xid = None
        return original(self, nid)

    return [(Locks, "client_down", client_down)]


def _dropped_at_start() -> list[Patch]:
    def keep(self: Participant, ttids: Iterable[bytes]) -> None:
        pass

    return [(Participant, "keep", keep)]


def _locks_not_taken_again() -> list[Patch]:
    original = Locks.restore_change

    def restore_change(self: Locks, ttid: bytes, oid: bytes, change: Change) -> None:
        if change.stored is None:
            original(self, ttid, oid, change)

    return [(Locks, "restore_change", restore_change)]


def _checks_not_taken_again() -> list[Patch]:
    original = Locks.restore_change

    def restore_change(self: Locks, ttid: bytes, oid: bytes, change: Change) -> None:
        if change.stored is not None:
            original(self, ttid, oid, change)

    return [(Locks, "restore_change", restore_change)]


def _mark_answered_before_the_disk() -> list[Patch]:
    def prepare(
        self: Commits, peer: Peer, message_id: int, m: AskPrepareInformation
    ) -> AnswerPrepareInformation:
        self.prepared.prepare(m)
        return AnswerPrepareInformation(m.ttid)

    prepare.__dict__.update(Commits.prepare.__dict__)
    return [(Commits, "prepare", prepare)]


def _cell_without_prepared_rows() -> list[Patch]:
    async def take_part(self: Replicator, cell: OutdatedCell) -> None:
        cell.waiting.clear()

    return [(Replicator, "_take_part", take_part)]


def _joined_node_forgotten() -> list[Patch]:
    def join(self: Transactions[Peer], transaction: Transaction[Peer], nid: int) -> None:
        pass

    return [(Transactions, "join", join)]


def _rolled_back_xid_prepared() -> list[Patch]:
    original = PreparedTransactions.check

    def check(
        self: PreparedTransactions, transaction: Transaction[Peer], xid: bytes, nodes: Set[int]
    ) -> None:
        outcomes, self._outcomes = self._outcomes, Outcomes()
        try:
            original(self, transaction, xid, nodes)
        finally:
            self._outcomes = outcomes

    return [(PreparedTransactions, "check", check)]


def _rollback_answered_before_the_disk() -> list[Patch]:
    def roll_back(self: PreparedTransactions, xid: bytes, outcome: Outcome) -> None:
        self._rollbacks[xid] = outcome
        self._rolled_back(xid)

    return [(PreparedTransactions, "_roll_back", roll_back)]


CANARIES = (
    Canary(
        "prepared-dropped-with-its-client",
        "a storage node drops the prepared transactions of a client that is lost",
        "workload: what is prepared is not listed, or cannot be committed",
        _dropped_with_its_client,
        30,
        CRASHES,
    ),
    Canary(
        "prepared-dropped-at-start",
        "a storage node drops all votes at StartOperation, also those that stay prepared",
        "workload: what is prepared is not listed, or cannot be committed",
        _dropped_at_start,
        30,
        CRASHES,
        first=2,
    ),
    Canary(
        "prepared-locks-not-taken-again",
        "a storage node that was restarted does not lock what prepared transactions store",
        "history: an update is lost",
        _locks_not_taken_again,
        100,
        CRASHES,
    ),
    Canary(
        "prepared-checks-not-taken-again",
        "a storage node that was restarted does not lock what prepared transactions check",
        "history: a checked object was changed",
        _checks_not_taken_again,
        150,
        {**CRASHES, "storages": 1, "faults": ("kill-server",), "masters": 1, "backup": False},
        first=39,
    ),
    Canary(
        "mark-answered-before-the-disk",
        "a storage node answers AskPrepareInformation before the mark is durable",
        "workload: what is prepared is not listed",
        _mark_answered_before_the_disk,
        30,
        CRASHES,
        first=2,
    ),
    Canary(
        "cell-without-prepared-rows",
        "a cell becomes readable without the rows of prepared transactions",
        "workload, progress: what one copy lacks can be written, and is committed elsewhere only",
        _cell_without_prepared_rows,
        60,
        MOVES,
        first=8,
    ),
    Canary(
        "joined-node-forgotten",
        "the master does not ask a node to lock that fetched the rows of a prepared transaction",
        "workload, cells: one copy lacks a commit",
        _joined_node_forgotten,
        100,
        MOVES,
        first=8,
    ),
    Canary(
        "rolled-back-xid-prepared",
        "the master prepares a transaction under an xid that was rolled back before",
        "history: a transaction was rolled back, then prepared",
        _rolled_back_xid_prepared,
        30,
        CRASHES,
    ),
    Canary(
        "rollback-answered-before-the-disk",
        "the master answers a rollback before the storage nodes remember it",
        "workload: what was settled is listed again after a crash",
        _rollback_answered_before_the_disk,
        120,
        CRASHES,
        first=9,
    ),
)
