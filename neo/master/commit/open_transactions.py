"""The commands of operators about open transactions: list them, and end one that makes others wait.

A client that hangs holds the locks of its transaction on the storage nodes. Before AskFinishTransaction
nothing is promised, so the master may abort the transaction at any time. *Ending* it releases its locks,
and later requests of the client about it are refused. A client of ours is told at
once; any other client learns it when its vote or finish is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from neo.master.cluster import Cluster
from neo.master.commit.requests import CommitRequests
from neo.master.commit.transactions import State, Transaction, Transactions
from neo.master.denial import denied
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future, first
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nids, format_xid, time_from_tid
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerLocks,
    AnswerTransactions,
    AskLocks,
    LockRow,
    NotifyTransactionEnded,
    TransactionRow,
)

logger = logging.getLogger("neo.master")

#: Timeout for the locks of a storage node, which are left out then, because an operator waits.
LOCKS_SECONDS = 2.0
#: Bound of ended transactions that are remembered. An operator ends one at a time, and its client
#: aborts it as soon as it runs. A client that aborts a transaction which was forgotten is disconnected.
ENDED_MAX = 1000


class OpenTransactions:
    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        transactions: Transactions[Peer],
        requests: CommitRequests,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._transactions = transactions
        self._requests = requests
        #: Clients of ended transactions by ttid, until they abort these or are lost.
        self._ended: dict[bytes, Peer] = {}

    # -- end one --------------------------------------------------------------------------

    def end(self, ttid: bytes) -> None:
        """Abort a transaction, and tell its client. Idempotent. Raises ErrorAnswer (DENIED)."""
        transaction = self._transactions.get(ttid)
        if transaction is None:
            if ttid not in self._ended:
                raise denied(
                    f"no transaction 0x{ttid.hex()} is open: 'neoctl print transactions' lists them"
                )
            # Stores of the client may have arrived since.
            self._requests.abort_on(ttid, self._cluster.ready)
            return
        if transaction.mark is not None:
            raise denied(
                f"transaction 0x{ttid.hex()} is prepared, and its coordinator decides: 'neoctl rollback"
                f" {format_xid(transaction.mark.xid)}' rolls it back"
            )
        if transaction.state is State.LOCKING:
            missing = format_nids(sorted(transaction.waiting)) or "its turn"
            raise denied(
                f"transaction 0x{ttid.hex()} is being finished and cannot be ended any more: it waits"
                f" for {missing}"
            )
        client = transaction.client
        assert client is not None
        logger.warning("transaction %s of %r was ended by the operator", ttid.hex(), client)
        self._requests.abort(transaction, self._cluster.ready)
        self._ended[ttid] = client
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        if client.node is not None and FEATURE_OURS in client.node.features:
            client.send(NotifyTransactionEnded(ttid))

    def check(self, ttid: bytes, client: Peer) -> None:
        """Raise ErrorAnswer if this transaction of the client was ended.

        Data that the client has stored since on nodes that did not know the transaction is aborted there.
        """
        if self._ended.get(ttid) is client:
            self._requests.abort_on(ttid, self._cluster.ready)
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"transaction 0x{ttid.hex()} was ended by the operator (neoctl end)",
            )

    def aborted(self, ttid: bytes, client: Peer, nids: Iterable[int]) -> bool:
        """Release a transaction that its client aborts after it was ended. Return False if it was not."""
        if self._ended.get(ttid) is not client:
            return False
        del self._ended[ttid]
        self._requests.abort_on(ttid, nids)
        return True

    def began(self, ttid: bytes) -> None:
        """Forget a former transaction of this ttid, which was imposed by its client."""
        self._ended.pop(ttid, None)

    def client_lost(self, client: Peer) -> None:
        """Forget a client's transactions, as its storage nodes do."""
        for ttid in [ttid for ttid, owner in self._ended.items() if owner is client]:
            del self._ended[ttid]

    def clear(self) -> None:
        """Forget all: the cluster is not operational any more, and its clients are disconnected."""
        self._ended.clear()

    # -- list all -----------------------------------------------------------------------------

    async def describe(self) -> AnswerTransactions:
        """Return the open transactions, when the storage nodes have sent their locks."""
        asked: list[Future[AnswerLocks]] = [
            peer.ask(AskLocks())
            for peer in self._cluster.storages()
            if peer.node is not None and FEATURE_OURS in peer.node.features
        ]
        limit = self._core.sleep(LOCKS_SECONDS)
        for future in asked:
            await first(future, limit)
        locks: dict[bytes, list[LockRow]] = {}
        for row in _told(asked):
            locks.setdefault(row[0], []).append(row)
        return AnswerTransactions([*self._open(locks), *self._others(locks)])

    def _open(self, locks: dict[bytes, list[LockRow]]) -> Iterator[TransactionRow]:
        """Yield the open transactions, and take them out of ``locks``."""
        now = self._core.host.monotonic()
        for transaction in self._transactions.all():
            client, rows = transaction.client, locks.pop(transaction.ttid, [])
            address = None if client is None else client.address
            age, phase = now - transaction.since, _phase(transaction, rows)
            count, seconds = _waiting(rows)
            yield transaction.ttid, transaction.nid, address, age, phase, count, seconds

    def _others(self, locks: dict[bytes, list[LockRow]]) -> Iterator[TransactionRow]:
        """Yield transactions that storage nodes have and this master does not have (any more)."""
        now = self._core.host.time()
        for ttid, rows in locks.items():
            ended = self._ended.get(ttid)
            count, seconds = _waiting(rows)
            if ended is not None or count:
                address = None if ended is None else ended.address
                phase = "ended" if ended is not None else rows[0][2]
                age = max(0.0, now - time_from_tid(ttid))
                yield ttid, rows[0][1], address, age, phase, count, seconds


def _told(asked: list[Future[AnswerLocks]]) -> Iterator[LockRow]:
    for future in asked:
        if not future.done:
            continue
        try:
            answer = future.result()
        except (ConnectionLost, ErrorAnswer) as e:
            logger.info("a storage node failed to answer AskLocks: %s", e)
            continue
        yield from answer.row_list


def _phase(transaction: Transaction[Peer], rows: list[LockRow]) -> str:
    """Return the phase of an open transaction; ``begun`` if no storage node reports a lock of it."""
    phases = {row[2] for row in rows}
    if transaction.state is State.LOCKING:
        return "finishing"
    if transaction.state is State.PREPARED:
        return "prepared"
    if not phases:
        return "begun"
    if "waiting" in phases:
        return "waiting"
    return "voted" if phases == {"voted"} else "storing"


def _waiting(rows: list[LockRow]) -> tuple[int, float]:
    """Return how many transactions wait for one, on any node, and the seconds of the longest wait."""
    waiters = {ttid for row in rows for ttid in row[3]}
    return len(waiters), max((row[4] for row in rows), default=0.0)
