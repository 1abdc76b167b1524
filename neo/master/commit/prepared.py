"""Prepared transactions: a coordinator names a voted transaction, and decides later (specification 24).

Theory of operation
-------------------
The registry knows each transaction with a mark by its xid, from PREPARING until it is committed or rolled
back, and remembers the outcome afterwards. Whatever must be durable on several nodes (the marks, a
rollback, the end of an outcome) is a round (:mod:`neo.master.commit.rounds`). A commit is the finish of
any transaction.

Requests that must wait, because a transaction is being prepared or a decision is under way, are asked
again when that is over: :meth:`PreparedTransactions._reconsider`.

Rules:

* an xid names one thing at a time: a transaction, a rollback under way, or an outcome;
* an outcome is forgotten here last, when no node remembers it: otherwise a transaction that is prepared
  under the same xid would be dropped at the next start;
* no request is answered before a partition table is confirmed in which the lost nodes are out of date.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.master.commit.outcomes import Outcome, Outcomes
from neo.master.commit.requests import CommitRequests
from neo.master.commit.rounds import Round, Rounds
from neo.master.commit.sync_backups import SyncBackups
from neo.master.commit.transactions import PreparedMark, State, Transaction, Transactions
from neo.master.denial import denied
from neo.master.maintenance.replication import Replication
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nids, format_xid
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerFinishPrepared,
    AnswerPrepareTransaction,
    AskPrepareInformation,
    AskPrepareTransaction,
    AskRollbackPrepared,
    Error,
    ForgetPrepared,
    NotifyPrepared,
    PreparedRow,
)

logger = logging.getLogger("neo.master")

#: Bound of the prepared transactions. Each one holds locks, so that many more are a coordinator that
#: never decides.
PREPARED_MAX = 10_000
#: Bound of the xids that a refusal names.
NAMED_MAX = 10


class Survivor(NamedTuple):
    """A transaction that stays prepared at a start (specification 24.19). ``nodes``: those with its mark.
    ``stored``, ``checked``: its oids."""

    ttid: bytes
    mark: PreparedMark
    nodes: frozenset[int]
    stored: list[bytes]
    checked: list[bytes]


class _Asker(NamedTuple):
    peer: Peer
    message_id: int
    commit: bool


class PreparedTransactions:
    """Bounds: PREPARED_MAX transactions, each with its oids; one waiting request per thread of a client
    and command of an operator; :class:`Outcomes`."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        transactions: Transactions[Peer],
        replication: Replication,
        rounds: Rounds,
        backups: SyncBackups,
        requests: CommitRequests,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._transactions = transactions
        self._replication = replication
        self._rounds = rounds
        self._backups = backups
        self._requests = requests
        self._by_xid: dict[bytes, Transaction[Peer]] = {}
        #: Rounds of transactions that are PREPARING.
        self._preparing: dict[bytes, Round] = {}
        #: Transactions that are PREPARING and wait for synchronous backups only.
        self._offered: dict[bytes, Transaction[Peer]] = {}
        #: Rollbacks under way, with ``tid`` None. The transaction may be unknown.
        self._rollbacks: dict[bytes, Outcome] = {}
        self._outcomes = Outcomes()
        #: Decisions that wait.
        self._askers: dict[bytes, list[_Asker]] = {}
        #: Peers that wait until an outcome is forgotten; none if it is purged.
        self._forgetting: dict[bytes, list[tuple[Peer, int]]] = {}

    # -- prepare -----------------------------------------------------------------------------------

    def check(self, transaction: Transaction[Peer], xid: bytes, nodes: Set[int]) -> None:
        """Raise ErrorAnswer (DENIED) unless a transaction of these storage nodes may be prepared under
        this xid (specification 24.2)."""
        name = format_xid(xid)
        if transaction.tid is not None:
            raise denied(
                f"transaction 0x{transaction.ttid.hex()} cannot be prepared: its tid is imposed"
            )
        if (other := self._by_xid.get(xid)) is not None:
            raise denied(
                f"xid {name} is that of transaction 0x{other.ttid.hex()}: choose another one"
            )
        if xid in self._rollbacks:
            raise denied(f"xid {name} is being rolled back: choose another one")
        if (outcome := self._outcomes.get(xid)) is not None:
            raise denied(f"xid {name} was {outcome}: choose another one")
        self._check_nodes(nodes)
        if len(self._by_xid) >= PREPARED_MAX:
            raise denied(
                f"{PREPARED_MAX} transactions are prepared: their coordinators must decide first"
            )

    def _check_nodes(self, nids: Iterable[int]) -> None:
        """Raise ErrorAnswer (DENIED) if one of these storage nodes is of another implementation."""
        if ignorant := {nid for nid in nids if not self._knows(nid)}:
            raise denied(
                f"{format_nids(ignorant)} cannot keep prepared transactions: update the storage nodes"
            )

    def _knows(self, nid: int) -> bool:
        node = self._cluster.nodes.get(nid)
        return node is not None and FEATURE_OURS in node.features

    def begin(
        self,
        transaction: Transaction[Peer],
        message_id: int,
        m: AskPrepareTransaction,
        partitions: Set[int],
        nodes: Iterable[int],
    ) -> None:
        """Enter PREPARING. Call :meth:`ask` next, when nodes that failed to vote are disconnected."""
        since = self._cluster.stamp()  # the order of transactions under the same xid
        objects = len({*m.stored_list, *m.checked_list})
        mark = PreparedMark(m.xid, since, m.text, frozenset(partitions), objects)
        self._transactions.prepare(transaction, mark, nodes)
        transaction.message_id = message_id
        transaction.stored, transaction.checked = m.stored_list, m.checked_list
        if m.stored_list:
            self._cluster.oids.seen(max(m.stored_list))
        self._by_xid[m.xid] = transaction

    def ask(self, transaction: Transaction[Peer]) -> None:
        """Ask the storage nodes of the transaction to store its mark (specification 24.4)."""
        mark, ttid = transaction.mark, transaction.ttid
        assert mark is not None
        transaction.locked_ptid = self._cluster.partitions.ptid
        request = AskPrepareInformation(
            ttid, mark.xid, mark.since, mark.text, sorted(mark.partitions)
        )
        round_ = self._preparing[mark.xid] = Round(
            request,
            lambda: transaction.nodes,
            lambda: self._prepared(transaction, mark),
            lambda storage, e: self._unprepared(transaction, storage, e),
        )
        self._rounds.begin(round_)

    def _prepared(self, transaction: Transaction[Peer], mark: PreparedMark) -> None:
        """Go on when all marks are durable: now, or when synchronous backups have the transaction."""
        del self._preparing[mark.xid]
        if self._backups.configured:
            self._backups.prepare(transaction)
            self._offered[mark.xid] = transaction
            self.evaluate()
        else:
            self._acknowledge(transaction, mark)

    def evaluate(self) -> None:
        """Acknowledge the transactions that wait for no synchronous backup any more."""
        for xid, transaction in list(self._offered.items()):
            if not transaction.backups and transaction.mark is not None:
                del self._offered[xid]
                self._acknowledge(transaction, transaction.mark)

    def _acknowledge(self, transaction: Transaction[Peer], mark: PreparedMark) -> None:
        """Answer the client: the transaction is prepared."""
        cluster = self._cluster
        client = self._transactions.prepared(transaction)
        cluster.served(transaction.locked_ptid or cluster.partitions.ptid or 0)
        for nid in self._replication.waiting(transaction.ttid):
            self._notify(nid, [transaction.ttid])
        if client is not None:
            client.answer(transaction.message_id, AnswerPrepareTransaction())
        self._reconsider(mark.xid)

    def _unprepared(
        self, transaction: Transaction[Peer], storage: Peer, error: ErrorAnswer
    ) -> None:
        ttid = transaction.ttid.hex()
        logger.error("%r failed to prepare transaction %s: %s", storage, ttid, error)
        self.abort(transaction, self._cluster.ready, f"{storage} could not prepare it: {error}")

    def abort(self, transaction: Transaction[Peer], nids: Iterable[int], why: str) -> None:
        """Abort a transaction that is PREPARING, tell these storage nodes, and refuse the request of its
        client."""
        assert transaction.state is State.PREPARING and transaction.mark is not None
        xid, client = transaction.mark.xid, transaction.client
        if xid in self._offered:
            del self._offered[xid]
        else:
            self._rounds.end(self._preparing.pop(xid))
        del self._by_xid[xid]
        self._requests.abort(transaction, {*nids, *transaction.nodes})
        if client is not None:
            client.refuse(transaction.message_id, ErrorCode.INCOMPLETE_TRANSACTION, why)
        self._reconsider(xid)

    def governs(self, ttid: bytes) -> bool:
        """Return whether the coordinator decides about this transaction, or has decided. An
        AbortTransaction of its client is ignored then (specification 24.6)."""
        transaction = self._transactions.get(ttid)
        if transaction is not None:
            return transaction.mark is not None
        return self._outcomes.known(ttid)

    # -- decide ------------------------------------------------------------------------------------

    def decide(
        self, xid: bytes, commit: bool, peer: Peer, message_id: int
    ) -> AnswerFinishPrepared | None:
        """Commit a prepared transaction or roll it back. Return None if the answer must wait. Raise
        ErrorAnswer (DENIED) if the decision was another one (specification 24.10 to 24.14)."""
        name = format_xid(xid)
        if (outcome := self._outcomes.get(xid)) is not None:
            if commit is (outcome.tid is None):
                raise denied(f"transaction {name} was {outcome}")
            return AnswerFinishPrepared(outcome.tid)
        transaction, rolling_back = self._by_xid.get(xid), xid in self._rollbacks
        if commit and rolling_back:
            raise denied(f"transaction {name} is being rolled back")
        if commit and transaction is None:
            raise denied(
                f"no transaction {name} is prepared: it was never prepared, or its outcome was"
                " forgotten"
            )
        if transaction is not None and transaction.state is State.LOCKING and not commit:
            raise denied(f"transaction {name} is being committed")
        if transaction is None and not rolling_back:
            # A node with a readable cell of the new ttid's partition must remember it.
            readable = self._cluster.partitions.nodes(readable_only=True)
            self._check_nodes(readable & self._cluster.running_storages())
        self._askers.setdefault(xid, []).append(_Asker(peer, message_id, commit))
        if transaction is None or transaction.state is State.PREPARED:
            if commit:
                assert transaction is not None and transaction.mark is not None
                self._commit(transaction, transaction.mark)
            elif not rolling_back:
                ttid = self._cluster.tids.ttid() if transaction is None else transaction.ttid
                self._roll_back(xid, Outcome(ttid, None, self._core.host.time()))
        if transaction is not None and transaction.state is State.LOCKING:
            if peer is transaction.preparer:
                transaction.client = peer  # it needs no InvalidateObjects: the answer has the tid
        return None

    def _commit(self, transaction: Transaction[Peer], mark: PreparedMark) -> None:
        """Finish a transaction with the nodes that have its rows and still have a cell of its
        partitions."""
        logger.info("prepared transaction %s is committed", transaction.ttid.hex())
        rows = self._cluster.partitions.rows
        involved = {nid for partition in mark.partitions for nid in rows[partition]}
        nodes = transaction.nodes & involved
        tid = self._requests.lock(transaction, transaction.stored, nodes)
        self._requests.abort_elsewhere(transaction, involved)
        self._requests.ask_locks(transaction, tid)

    def finished(self, xid: bytes, ttid: bytes, tid: bytes) -> None:
        """Remember the commit of a transaction, and answer the requests for it."""
        del self._by_xid[xid]
        self._remember(xid, Outcome(ttid, tid, self._core.host.time()))

    def _roll_back(self, xid: bytes, outcome: Outcome) -> None:
        self._rollbacks[xid] = outcome
        ttid = outcome.ttid
        self._rounds.begin(
            Round(
                AskRollbackPrepared(xid, ttid, outcome.time),
                lambda: self._keepers(ttid),
                lambda: self._rolled_back(xid),
                self._failed,
            )
        )

    def _rolled_back(self, xid: bytes) -> None:
        outcome, transaction = self._rollbacks.pop(xid), self._by_xid.pop(xid, None)
        logger.info("transaction %s is rolled back", format_xid(xid))
        self._remember(xid, outcome)
        if transaction is not None:
            self._requests.abort(transaction, self._cluster.ready)

    def _keepers(self, ttid: bytes) -> set[int]:
        """Return the connected storage nodes that remember the outcome of this transaction. They have a
        cell of the partition of its metadata."""
        table = self._cluster.partitions
        return {
            nid
            for nid in table.rows[table.partition(ttid)]
            if nid in self._cluster.connected and self._knows(nid)
        }

    def _failed(self, storage: Peer, error: ErrorAnswer) -> None:
        """Disconnect a storage node that could not remember or forget an outcome."""
        logger.error("%r failed to change what it remembers of an xid: %s", storage, error)
        self._cluster.disconnect(storage)

    def _reconsider(self, xid: bytes) -> None:
        """Ask again what had to wait for this xid."""
        for peer, message_id, commit in self._askers.pop(xid, ()):
            try:
                answer = self.decide(xid, commit, peer, message_id)
            except ErrorAnswer as e:
                peer.refuse(message_id, e.code, e.message)
            else:
                if answer is not None:
                    peer.answer(message_id, answer)

    # -- outcomes ----------------------------------------------------------------------------------

    def committed(self, xid: bytes, ttid: bytes, tid: bytes) -> None:
        """Remember the commit of a transaction that was prepared in the upstream cluster. The storage
        nodes remember it, too, and this master bounds how many they keep (specification 25.59)."""
        self._remember(xid, Outcome(ttid, tid, self._core.host.time()))

    def _remember(self, xid: bytes, outcome: Outcome) -> None:
        self._outcomes.add(xid, outcome)
        self._reconsider(xid)
        for stale in self._outcomes.stale(self._core.host.time()):
            if stale not in self._forgetting:
                self._forget(stale)

    def forget(self, xid: bytes, peer: Peer, message_id: int) -> Error | None:
        """Forget an outcome. Return None if the answer must wait. Raise ErrorAnswer (DENIED) if the
        transaction is not decided (specification 24.15)."""
        if xid in self._by_xid or xid in self._rollbacks:
            raise denied(
                f"the outcome of transaction {format_xid(xid)} is not known yet: commit it or roll it"
                " back first"
            )
        if self._outcomes.get(xid) is None:
            return Error(ErrorCode.ACK.value, "")
        if xid in self._forgetting:
            self._forgetting[xid].append((peer, message_id))
        else:
            self._forget(xid, (peer, message_id))
        return None

    def _forget(self, xid: bytes, *askers: tuple[Peer, int]) -> None:
        outcome = self._outcomes.get(xid)
        assert outcome is not None
        ttid = outcome.ttid
        self._forgetting[xid] = list(askers)
        self._rounds.begin(
            Round(
                ForgetPrepared(xid),
                lambda: self._keepers(ttid),
                lambda: self._forgotten(xid),
                self._failed,
            )
        )

    def _forgotten(self, xid: bytes) -> None:
        self._outcomes.forget(xid)
        for peer, message_id in self._forgetting.pop(xid):
            peer.answer(message_id, Error(ErrorCode.ACK.value, ""))

    # -- show --------------------------------------------------------------------------------------

    def describe(self, length: int, xid: bytes | None) -> list[PreparedRow]:
        """Return the prepared transactions, then up to ``length`` outcomes, the newest first. With
        ``xid``, return only the rows with this xid (specification 24.16)."""
        outcomes: Iterable[tuple[bytes, Outcome]]
        if xid is None:
            xids: Iterable[bytes] = self._by_xid | self._rollbacks
            outcomes = self._outcomes.newest(length)
        else:
            found = self._outcomes.get(xid)
            xids, outcomes = [xid], [] if found is None else [(xid, found)]
        rows = [row for each in xids if (row := self._undecided_row(each)) is not None]
        for each, (ttid, tid, time) in outcomes:
            state = "rolled back" if tid is None else "committed"
            rows.append((each, ttid, tid, time, 0, b"", state))
        return rows

    def _undecided_row(self, xid: bytes) -> PreparedRow | None:
        """Return the row of a transaction or rollback without an outcome; None if there is none."""
        transaction, rollback = self._by_xid.get(xid), self._rollbacks.get(xid)
        if transaction is None:
            if rollback is None:
                return None
            return xid, rollback.ttid, None, rollback.time, 0, b"", "rolling back"
        if transaction.state is State.PREPARING:
            return None
        mark = transaction.mark
        assert mark is not None
        state = "committing" if transaction.state is State.LOCKING else "prepared"
        if rollback is not None:
            state = "rolling back"
        return xid, transaction.ttid, None, mark.since, mark.objects, mark.text, state

    def __len__(self) -> int:
        """Return how many transactions have a mark."""
        return len(self._by_xid)

    def obstacle(self) -> str | None:
        """Return why the history cannot be changed now, naming xids; None if nothing is prepared
        (specification 24.29)."""
        if not self._by_xid:
            return None
        names = ", ".join(map(format_xid, list(self._by_xid)[:NAMED_MAX]))
        if len(self._by_xid) > NAMED_MAX:
            names += f" and {len(self._by_xid) - NAMED_MAX} more"
        return f"transactions are prepared: commit them or roll them back first: {names}"

    # -- storage nodes that replicate --------------------------------------------------------------

    def notify(self, nid: int) -> None:
        """Tell a storage node which of the unfinished transactions are prepared. The master has sent it
        their list before (specification 24.24)."""
        if self._by_xid and (
            ttids := [t.ttid for t in self._by_xid.values() if self._undecided(t)]
        ):
            self._notify(nid, ttids)

    def _notify(self, nid: int, ttids: list[bytes]) -> None:
        if self._knows(nid) and (storage := self._cluster.connected.get(nid)) is not None:
            storage.send(NotifyPrepared(ttids))

    def _undecided(self, transaction: Transaction[Peer]) -> bool:
        mark = transaction.mark
        return (
            mark is not None
            and transaction.state is State.PREPARED
            and mark.xid not in self._rollbacks
        )

    def join(self, nid: int, partition: int, ttids: Iterable[bytes]) -> list[bytes]:
        """Add a storage node to each of these transactions that is undecided and concerns the partition.
        Return the ttids of all undecided ones, in any partition (specification 24.26)."""
        undecided = []
        for ttid in ttids:
            transaction = self._transactions.get(ttid)
            if transaction is not None and self._undecided(transaction):
                assert transaction.mark is not None
                if partition in transaction.mark.partitions:
                    self._transactions.join(transaction, nid)
                undecided.append(ttid)
        return undecided

    # -- begin and end of operation ----------------------------------------------------------------

    def restore(
        self,
        survivors: list[Survivor],
        outcomes: dict[bytes, Outcome],
        partial: Set[bytes],
        nids: Iterable[int],
    ) -> None:
        """Continue with what an earlier master prepared. ``nids``: the storage nodes to tell, which
        operate afterwards. ``outcomes``: the oldest first. ``partial``: rollbacks that some nodes lack
        which must remember them; each is acknowledged when all these nodes remember it (specification
        24.23)."""
        cluster, host = self._cluster, self._core.host
        assert cluster.node.nid is not None
        for ttid, mark, nodes, stored, checked in survivors:
            transaction = self._transactions.restore(ttid, mark, nodes)
            transaction.nid = cluster.node.nid
            transaction.since = host.monotonic() - max(0.0, host.time() - mark.since)
            transaction.stored, transaction.checked = stored, checked
            self._by_xid[mark.xid] = transaction
            if stored:
                cluster.oids.seen(max(stored))
        for xid, outcome in outcomes.items():
            if xid in partial:
                self._roll_back(xid, outcome)
            else:
                self._outcomes.add(xid, outcome)
        for nid in nids:
            self._notify(nid, [survivor.ttid for survivor in survivors])

    def clear(self) -> None:
        """Forget all: the operation stops, and clients are disconnected. Verification finds it again."""
        waiting = [
            (peer, message_id) for asked in self._askers.values() for peer, message_id, _ in asked
        ]
        waiting += [asker for askers in self._forgetting.values() for asker in askers]
        self._outcomes.clear()
        self._by_xid.clear()
        self._preparing.clear()
        self._offered.clear()
        self._rollbacks.clear()
        self._askers.clear()
        self._forgetting.clear()
        for peer, message_id in waiting:
            if peer.node is not None and peer.node.type is NodeType.ADMIN:
                text = "the operation of the cluster was interrupted: ask again when it is RUNNING"
                peer.refuse(message_id, ErrorCode.NOT_READY, text)
