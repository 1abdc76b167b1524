"""A scripted cluster that keeps revisions and locks, and the checks after an exception."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from ZODB.mvccadapter import MVCCAdapter
from ZODB.utils import maxtid

from neo.client import NEOStorage
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import add64, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerObject,
    AnswerRebaseTransaction,
    AnswerTransactionFinished,
    AskBeginTransaction,
    AskFinishTransaction,
    AskObject,
    AskRebaseTransaction,
    AskStoreObject,
    InvalidateObjects,
    Message,
    Ping,
    Pong,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.scripted import Node, Scripted

#: Number of objects. The checks never load an object from the cache.
OBJECTS = 1 << 20
#: Locks and invalidations change within a moment, many times in each test.
LOOK_SECONDS = 0.001


class Stubborn(Scripted):
    """Each partition has two cells. Object n is ``b"n"`` at first."""

    def __init__(self) -> None:
        super().__init__([(1, 2), (2, 3)])
        self.first_tid = self.last_tid
        #: (tid, data) of objects that were changed, the last one at the end.
        self.revisions: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self.errors: list[str] = []
        self._begun: set[bytes] = set()
        self._ended: set[bytes] = set()
        self._lock = threading.Lock()
        self.master.answers[AskBeginTransaction] = self._begin_here
        self.master.answers[AskFinishTransaction] = self._finish_here
        for node in self.storages.values():
            node.answers[AskObject] = self._object
            node.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])

    # -- answers -----------------------------------------------------------------------------------

    def current(self, oid: bytes) -> tuple[bytes, bytes]:
        return self.revisions.get(oid, [(self.first_tid, b"%d" % int.from_bytes(oid, "big"))])[-1]

    def _object(self, m: AskObject) -> Message:
        with self._lock:
            first = self.first_tid, b"%d" % int.from_bytes(m.oid, "big")
            revisions = [first, *self.revisions.get(m.oid, [])]
        before = m.before or maxtid
        seen = [r for r in revisions if r[0] < before]
        if not seen:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND)
        later = [r[0] for r in revisions if r[0] >= before]
        tid, data = seen[-1]
        later_tid = later[0] if later else None
        return AnswerObject(m.oid, tid, later_tid, 0, sha1(data).digest(), data, None)

    def _begin_here(self, m: AskBeginTransaction) -> Message:
        answer = self._begin(m)
        assert isinstance(answer, AnswerBeginTransaction)
        self._begun.add(answer.ttid)
        return answer

    def _stored(self, ttid: bytes) -> dict[bytes, bytes]:
        return {
            m.oid: m.data
            for node in self.storages.values()
            for m in node.asked(AskStoreObject)
            if isinstance(m, AskStoreObject) and m.ttid == ttid
        }

    def _finish_here(self, m: AskFinishTransaction) -> Message:
        if m.ttid in self._ended:
            self.errors.append("finish of a transaction that ended")
        answer = self._finish(m)
        assert isinstance(answer, AnswerTransactionFinished)
        self._ended.add(m.ttid)
        with self._lock:
            for oid, data in self._stored(m.ttid).items():
                self.revisions.setdefault(oid, []).append((answer.tid, data))
        return answer

    # -- what must hold ------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        return [self.master, *self.storages.values()]

    def locks(self) -> list[str]:
        """Return open transactions at nodes that were not told of their end."""
        found = []
        aborted = [m.ttid for m in self.master.asked(AbortTransaction)]
        if len(set(aborted)) != len(aborted) or self._ended & set(aborted):
            self.errors.append("the master was told to abort what is over")
        for ttid in self._begun - self._ended - set(aborted):
            found.append(f"{ttid.hex()} at the master")
        for nid, node in self.storages.items():
            over = {m.ttid for m in node.asked(AbortTransaction)} | self._ended
            for m in node.asked(AskStoreObject):
                if m.ttid not in over:
                    found.append(f"{m.ttid.hex()} at {nid}")
        return found

    def forget_logs(self) -> None:
        for node in self.nodes():
            node.log.clear()
            node.peer.received.clear()
        self._begun.clear()


class Client:
    """The client, its database, and the checks after each exception."""

    def __init__(self, cluster: Stubborn, storage: NEOStorage) -> None:
        self.cluster = cluster
        self.storage = storage
        self.adapter = MVCCAdapter(storage)
        #: Connections of ZODB, of other threads of the process.
        self.others = [self.adapter.new_instance() for _ in range(2)]
        self._fresh = OBJECTS

    def fresh(self) -> bytes:
        """Return the oid of an object that no cache has, in alternating partitions."""
        self._fresh += 1
        return p64(self._fresh)

    def channels(self) -> list[Any]:
        return [
            self.storage._session.master.channel(),
            *map(self.storage._session.storages.channel, self.cluster.storages),
        ]

    def check(self, where: str) -> None:
        """Raise AssertionError if the exception changed the state of the client."""
        cluster = self.cluster
        self.in_another_thread(self.load)
        self.load()
        # The end of a transaction that was sent comes before another one ends: tids only grow.
        wait_until(lambda: not cluster.locks(), f"{where}: locks are left", poll=LOOK_SECONDS)
        self._invalidations_arrive(where)
        self._pings_are_answered(where)
        assert not cluster.errors, f"{where}: {cluster.errors}"
        for node in cluster.nodes():
            assert len(node.server.peers) == 1, f"{where}: a connection was made again"
            assert node.peer.error is None, f"{where}: {node.peer.error}"
        self._caches_are_right(where)
        cluster.forget_logs()

    def load(self) -> None:
        for _ in self.cluster.cells:
            oid = self.fresh()
            data, serial = self.storage.load(oid)
            assert (serial, data) == self.cluster.current(oid)

    def in_another_thread(self, call: Callable[[], None]) -> None:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as e:  # noqa: BLE001 - given to the caller
                failed.append(e)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "another thread waits"
        if failed:
            raise failed[0]

    def _invalidations_arrive(self, where: str) -> None:
        """Check that invalidations reach an idle client."""
        cluster = self.cluster
        cluster.next_tid += 1
        cluster.last_tid = tid = p64(cluster.next_tid)
        oid = self.fresh()
        cluster.revisions[oid] = [(tid, b"changed")]
        cluster.tell(InvalidateObjects(tid, [oid]))
        told = f"{where}: no invalidation comes"
        wait_until(lambda: self.storage.lastTransaction() == tid, told, poll=LOOK_SECONDS)
        for other in self.others:
            found = other.poll_invalidations()
            assert found is None or oid in found, f"{where}: a connection of ZODB heard nothing"

    def _pings_are_answered(self, where: str) -> None:
        for node in self.cluster.nodes():
            before = node.peer.received.count(Pong())
            node.peer.connection.ask(Ping(), None)
            node.peer.flush()
            wait_until(
                lambda node=node, before=before: node.peer.received.count(Pong()) > before,
                f"{where}: a ping is not answered",
                poll=LOOK_SECONDS,
            )

    def _caches_are_right(self, where: str) -> None:
        cache = self.storage._invalidations.cache
        if not cache._torn:
            records = [r for revisions in cache._records.values() for r in revisions]
            assert cache.size == sum(r.size for r in records), where
            assert {*cache._small, *cache._main} == set(records), where
            assert not cache._loads, where
        for oid in [oid for oid, rs in cache._records.items() if rs[0].next_tid is None]:
            view = add64(self.storage.lastTransaction(), 1)
            found = self.storage.loadBefore(oid, view)
            assert found is not None and found[:2][::-1] == self.cluster.current(oid), where
