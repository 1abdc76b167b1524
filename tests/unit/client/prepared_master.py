"""A scripted cluster whose master keeps prepared transactions, as specification 24 says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neo.client import NEOStorage
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    AnswerFinalTID,
    AnswerFinishPrepared,
    AnswerPrepared,
    AnswerPrepareTransaction,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskFinalTID,
    AskFinishPrepared,
    AskPrepared,
    AskPrepareTransaction,
    AskStoreTransaction,
    AskTIDsFrom,
    AskTransactionInformation,
    Error,
    ForgetPrepared,
    Message,
)
from tests.unit.client.scripted import Scripted


class Row:
    """``since``: seconds since 1970."""

    def __init__(self, ttid: bytes, since: float, state: str = "prepared") -> None:
        self.ttid = ttid
        self.since = since
        self.state = state
        self.tid: bytes | None = None


class Cluster:
    """``now``: the master's clock. ``silent``: it ends connections instead of answering decisions."""

    def __init__(self, scripted: Scripted) -> None:
        self.scripted = scripted
        self.rows: dict[bytes, Row] = {}
        self.tids: dict[bytes, bytes] = {}
        #: Decisions in the order in which they came.
        self.decisions: list[tuple[bytes, bool]] = []
        self.now = 1000.0
        self.silent = False
        #: Tids of the history, which the resolver searches.
        self.history: list[bytes] = []
        scripted.master.answers |= {
            AskPrepareTransaction: self._prepare,
            AskFinishPrepared: self._finish,
            AskPrepared: self._list,
            ForgetPrepared: self._forget,
            AskFinalTID: lambda m: AnswerFinalTID(MAX_TID),
        }
        for node in scripted.storages.values():
            node.answers |= {
                AskFinalTID: self._final_tid,
                AskTransactionInformation: self._information,
                AskTIDsFrom: lambda m: AnswerTIDsFrom(
                    [t for t in self.history if m.min_tid <= t <= m.max_tid]
                ),
            }

    def states(self) -> dict[bytes, str]:
        return {xid: row.state for xid, row in self.rows.items()}

    def prepares(self) -> list[bytes]:
        """Return the xids that the client asked to prepare."""
        return [m.xid for m in self.scripted.master.asked(AskPrepareTransaction)]

    def metadata(self) -> AskStoreTransaction:
        """Return the metadata of the last vote."""
        votes: list[AskStoreTransaction] = self.scripted.storages[1].asked(AskStoreTransaction)
        return votes[-1]

    def put(self, xid: bytes, state: str, age: float = 0.0, tid: bytes | None = None) -> None:
        """Let the master know a transaction."""
        self.rows[xid] = Row(p64(1500), self.now - age, state)
        self.rows[xid].tid = tid

    def _prepare(self, m: AskPrepareTransaction) -> Message:
        if m.xid in self.rows:
            raise ErrorAnswer(ErrorCode.DENIED, f"{m.xid!r} is in use")
        self.rows[m.xid] = Row(m.ttid, self.now)
        return AnswerPrepareTransaction()

    def _finish(self, m: AskFinishPrepared) -> Message | None:
        if self.silent:
            self.scripted.master.peer.close()
            return None
        self.decisions.append((m.xid, m.commit))
        row = self.rows.get(m.xid)
        if row is None and m.commit:
            raise ErrorAnswer(ErrorCode.DENIED, "unknown xid")
        if row is None:
            row = self.rows[m.xid] = Row(p64(9999), self.now)
        wanted = "committed" if m.commit else "rolled back"
        if row.state == "prepared":
            row.state = wanted
            if m.commit:
                self.scripted.next_tid += 1
                row.tid = self.tids[row.ttid] = self.scripted.last_tid = p64(self.scripted.next_tid)
        if row.state != wanted:
            raise ErrorAnswer(ErrorCode.DENIED, f"it is {row.state}")
        return AnswerFinishPrepared(row.tid)

    def _list(self, m: AskPrepared) -> Message:
        rows = [(x, r.ttid, r.tid, r.since, 1, b"", r.state) for x, r in self.rows.items()]
        if m.xid is not None:
            return AnswerPrepared([row for row in rows if row[0] == m.xid])
        ended = [row for row in rows if row[-1] in ("committed", "rolled back")]
        return AnswerPrepared([row for row in rows if row not in ended] + ended[: m.length])

    def _forget(self, m: ForgetPrepared) -> Message:
        row = self.rows.get(m.xid)
        if row is not None and row.state == "prepared":
            raise ErrorAnswer(ErrorCode.DENIED, "it is prepared")
        self.rows.pop(m.xid, None)
        return Error(ErrorCode.ACK.value, "")

    def _final_tid(self, m: AskFinalTID) -> Message:
        return AnswerFinalTID(self.tids.get(m.ttid))

    def _information(self, m: AskTransactionInformation) -> Message:
        extension = self.metadata().extension
        return AnswerTransactionInformation(m.tid, b"", b"", extension, False, [])


@contextmanager
def clusters(*names: str, **options: Any) -> Iterator[list[tuple[Cluster, NEOStorage]]]:
    """Yield a cluster of each name, with a storage connected to it."""
    opened: list[Scripted] = []
    storages: list[NEOStorage] = []
    found = []
    try:
        for name in names:
            scripted = Scripted([[1]], name)
            opened.append(scripted)
            cluster = Cluster(scripted)
            storage = NEOStorage(scripted.masters, name, **({"wait_timeout": 10.0} | options))
            storages.append(storage)
            found.append((cluster, storage))
        yield found
    finally:
        for storage in storages:
            storage.close()
        for scripted in opened:
            scripted.close()
