"""A scripted cluster that answers reads from a history, which a test may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any

from neo.client import NEOStorage
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerObject,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskObject,
    AskTIDsFrom,
    AskTransactionInformation,
    InvalidateObjects,
    Message,
    NotifyPack,
    Ping,
    Pong,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.scripted import NAME, Scripted


class History:
    """``transactions``: tid → oid → data."""

    def __init__(self) -> None:
        self.transactions: dict[int, dict[int, bytes]] = {}
        self.packed = 0
        self.cluster = Scripted([[1]])
        self.cluster.features = [FEATURE_OURS]
        self.storage_node = self.cluster.storages[1]
        self.storage_node.answers |= {
            AskObject: self._object,
            AskTIDsFrom: self._tids,
            AskTransactionInformation: self._information,
        }
        self.cluster.master.answers[Ping] = self._ping

    def commit(self, tid: int, **changed: bytes) -> None:
        """Commit a transaction: ``o1=data`` for object 1."""
        self.transactions[tid] = {int(name[1:]): data for name, data in changed.items()}
        self.cluster.last_tid = p64(tid)

    def truncate(self, tid: int) -> None:
        self.transactions = {t: c for t, c in self.transactions.items() if t <= tid}
        self.cluster.last_tid = p64(max(self.transactions))

    def tell(self, tid: int) -> None:
        """Invalidate what a transaction changed in the clients."""
        self.cluster.tell(InvalidateObjects(p64(tid), [p64(o) for o in self.transactions[tid]]))

    @property
    def loads(self) -> int:
        return len(self.storage_node.asked(AskObject))

    def _ping(self, m: Message) -> Message:
        if self.packed:
            self.cluster.tell(NotifyPack(p64(self.packed)))
        return Pong()

    def _object(self, m: AskObject) -> Message:
        tids = [t for t, changed in self.transactions.items() if u64(m.oid) in changed]
        before = [t for t in tids if (p64(t) == m.at if m.at else m.before is None or p64(t) < m.before)]
        if not before:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, "no")
        tid = max(before)
        data = self.transactions[tid][u64(m.oid)]
        later = [t for t in tids if t > tid]
        following = p64(min(later)) if later else None
        return AnswerObject(m.oid, p64(tid), following, 0, sha1(data).digest(), data, None)

    def _tids(self, m: AskTIDsFrom) -> Message:
        found = sorted(p64(t) for t in self.transactions)
        return AnswerTIDsFrom([t for t in found if m.min_tid <= t <= m.max_tid][: m.length])

    def _information(self, m: AskTransactionInformation) -> Message:
        changed = self.transactions.get(u64(m.tid))
        if changed is None:
            raise ErrorAnswer(ErrorCode.TID_NOT_FOUND, "no")
        oids = [p64(oid) for oid in changed]
        return AnswerTransactionInformation(m.tid, b"", b"", b"", u64(m.tid) <= self.packed, oids)

    @contextmanager
    def client(self, folder: Path | str, **options: Any) -> Iterator[NEOStorage]:
        """Yield a storage that keeps its cache in a folder."""
        settings: dict[str, Any] = {"wait_timeout": PATIENCE_SECONDS, "cache_dir": str(folder)} | options
        storage = NEOStorage(self.cluster.masters, NAME, **settings)
        try:
            yield storage
        finally:
            storage.close()

    def kept(self, folder: Path | str) -> None:
        """Let a client load the objects 1 to 3, so that its cache is kept."""
        with self.client(folder) as storage:
            for oid in (1, 2, 3):
                storage.load(p64(oid))


@contextmanager
def history() -> Iterator[History]:
    """Yield a cluster with three objects, of which the last one was changed twice."""
    history = History()
    try:
        history.commit(100, o1=b"one", o2=b"two", o3=b"three")
        history.commit(200, o3=b"more")
        yield history
    finally:
        history.cluster.close()
