"""Each method of a storage ends within ``wait-timeout`` and a second, whatever peers are silent
(specification 16.36, 16.37)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData

from neo.client import NEOStorage
from neo.client.errors import OutcomeUnknownError, UnavailableError
from neo.net.connection import Received
from neo.protocol.blobs import Content, with_content
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AnswerObject,
    AskFinishTransaction,
    AskObject,
    Ping,
    RequestIdentification,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.whole import WHOLE
from tests.unit.client.peers import Peer
from tests.unit.client.reading import answer, refuse
from tests.unit.client.scripted import NAME, Node, Scripted

TIMEOUT = 1.0
#: A machine that is used by others may stand still for so long. Without a bound, methods took 40 s. The
#: search for bugs (NEO_WHOLE) is strict.
STANDSTILL = 0.5 if WHOLE else 20.0
#: The bound of the specification.
BOUND = TIMEOUT + 1.0 + STANDSTILL
OID, SERIAL = p64(1), p64(50)
CONTENT = Content(3, bytes(32))

Method = Callable[[], object]


def silence(node: Node, identifies: bool) -> None:
    """Let a node answer nothing any more, as if it was stopped; ``identifies``: but new connections."""

    def script(peer: Peer, received: Received) -> None:
        if identifies and isinstance(received.message, RequestIdentification):
            node._identify(peer, received)

    node.server.script = script


class Refusing(dict[type, Any]):
    """Answers of a node that refuses what a test did not foresee."""

    def __missing__(self, question: type) -> Any:
        return refuse(ErrorCode.PROTOCOL_ERROR)


class Stage:
    """A storage, and transactions in each phase."""

    def __init__(self, cluster: Scripted, storage: NEOStorage, folder: Path) -> None:
        self.storage = storage
        self._folder = folder
        for node in [cluster.master, *cluster.storages.values()]:
            node.answers = Refusing(node.answers)
        for node in cluster.storages.values():
            node.answers[AskObject] = self._object
        self.begun, self.stored, self.undoing, self.deleting = (self._begin() for _ in range(4))
        self.blobbing, self.checking, self.restoring = (self._begin() for _ in range(3))
        self.voted, self.prepares = self._vote(), self._vote()
        self.aborted, self.voted_aborted = self._begin(), self._vote()
        storage.store(OID, None, b"x", "", self.stored)
        storage.load(OID)

    def _object(self, m: AskObject) -> AnswerObject:
        found = answer(b"x")(m)
        assert isinstance(found, AnswerObject)
        return found

    def _begin(self) -> TransactionMetaData:
        t = TransactionMetaData()
        self.storage.tpc_begin(t)
        assert self.storage._begun(t).ttid
        return t

    def _vote(self) -> TransactionMetaData:
        t = self._begin()
        self.storage.store(OID, SERIAL, b"x", "", t)
        self.storage.tpc_vote(t)
        return t

    def _blob_file(self) -> str:
        path = self._folder / "blob"
        path.write_bytes(b"abc")
        return str(path)

    def _commit(self) -> None:
        t = TransactionMetaData()
        self.storage.tpc_begin(t)
        try:
            self.storage.store(OID, SERIAL, b"x", "", t)
            self.storage.tpc_vote(t)
            self.storage.tpc_finish(t)
        except BaseException:
            self.storage.tpc_abort(t)
            raise

    def _begin_and_abort(self) -> None:
        t = TransactionMetaData()
        self.storage.tpc_begin(t)
        self.storage.tpc_abort(t)

    def methods(self) -> dict[str, Method]:
        s = self.storage
        blob = answer(with_content(b"x", CONTENT))(AskObject(OID, SERIAL, None))
        s._blobs.known(blob)
        return {
            "load": lambda: s.load(OID),
            "loadBefore": lambda: s.loadBefore(OID, p64(60)),
            "loadSerial": lambda: s.loadSerial(OID, SERIAL),
            "getTid": lambda: s.getTid(OID),
            "prefetch": lambda: s.prefetch([OID, p64(2)], p64(60)),
            "history": lambda: s.history(OID, 2),
            "iterator": lambda: list(s.iterator()),
            "record_iternext": lambda: s.record_iternext(),
            "undoLog": lambda: s.undoLog(),
            "undoInfo": lambda: s.undoInfo(),
            "loadBlob": lambda: s.loadBlob(OID, SERIAL),
            "openCommittedBlobFile": lambda: s.openCommittedBlobFile(OID, SERIAL),
            "sync": lambda: s.sync(),
            "lastTransaction": lambda: s.lastTransaction(),
            "getSize": lambda: s.getSize(),
            "len": lambda: len(s),
            "new_oid": lambda: [s.new_oid() for _ in range(200)],
            "a commit": self._commit,
            "tpc_begin": self._begin_and_abort,
            "store": lambda: s.store(p64(2), SERIAL, b"x", "", self.begun),
            "storeBlob": lambda: s.storeBlob(
                p64(3), SERIAL, b"x", self._blob_file(), "", self.blobbing
            ),
            "deleteObject": lambda: s.deleteObject(p64(4), SERIAL, self.deleting),
            "checkCurrentSerialInTransaction": lambda: s.checkCurrentSerialInTransaction(
                p64(5), SERIAL, self.checking
            ),
            "restore": lambda: s.restore(p64(6), SERIAL, b"x", "", None, self.restoring),
            "undo": lambda: s.undo(SERIAL, self.undoing),
            "tpc_vote": lambda: s.tpc_vote(self.stored),
            "tpc_finish": lambda: s.tpc_finish(self.voted),
            "tpc_prepare": lambda: s.tpc_prepare(self.prepares, b"xid"),
            "tpc_abort": lambda: s.tpc_abort(self.aborted),
            "tpc_abort after the vote": lambda: s.tpc_abort(self.voted_aborted),
            "pack": lambda: s.pack(time.time(), lambda data: []),
            "pack without garbage": lambda: s.pack(time.time(), lambda data: [], gc=False),
            "recover": lambda: s.recover(),
            "outcome": lambda: s.outcome(b"xid"),
            "commit_prepared": lambda: s.commit_prepared(b"another"),
            "rollback_prepared": lambda: s.rollback_prepared(b"another"),
            "forget_prepared": lambda: s.forget_prepared(b"another"),
        }


@contextmanager
def cluster_of(*cells: list[int]) -> Iterator[Scripted]:
    cluster = Scripted(cells)
    cluster.storage_features = {nid: [FEATURE_BLOBS] for nid in cluster.storages}
    try:
        yield cluster
    finally:
        cluster.close()


def timed(method: Method, found: dict[str, Any], name: str) -> threading.Thread:
    """Call a method in a thread. Put (seconds, result) there."""

    def run() -> None:
        begin = time.monotonic()
        try:
            result = method()
        except Exception as e:  # noqa: BLE001 - given to the caller
            result = e
        found[name] = time.monotonic() - begin, result

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


MODES = {
    "master": ([True], False),
    "storage": ([False], False),
    "all": ([True, False], False),
    "master, but for identification": ([True], True),
    "storage, but for identification": ([False], True),
    "all, but for identification": ([True, False], True),
}


@pytest.mark.parametrize("mode", MODES)
def test_each_method_ends_in_time_when_peers_are_silent(mode: str, tmp_path: Path) -> None:
    """All methods at once, so that they also wait for each other; then one by one."""
    masters, identifies = MODES[mode]
    with cluster_of([1, 2], [2, 3]) as cluster:
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=TIMEOUT, cache_size=0)
        try:
            stage = Stage(cluster, storage, tmp_path)
            methods = stage.methods()
            for master in masters:
                nodes = [cluster.master] if master else list(cluster.storages.values())
                for node in nodes:
                    silence(node, identifies)
            found: dict[str, Any] = {}
            threads = [timed(method, found, name) for name, method in methods.items()]
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            assert set(found) == set(methods)
            assert {n: f for n, f in found.items() if f[0] > BOUND} == {}
            for name in ("load", "sync", "new_oid", "a commit"):
                timed(methods[name], found, name).join(PATIENCE_SECONDS)
            assert {n: f for n, f in found.items() if f[0] > BOUND} == {}
        finally:
            timed(storage.close, found, "close").join(PATIENCE_SECONDS)
        assert found["close"][0] < 1.0


@pytest.mark.parametrize("accepts", [True, False])
def test_open_ends_in_time_when_the_master_is_silent(accepts: bool) -> None:
    with cluster_of([1]) as cluster:
        silence(cluster.master, accepts)
        begin = time.monotonic()
        with pytest.raises(UnavailableError):
            NEOStorage(cluster.masters, NAME, wait_timeout=TIMEOUT)
        assert time.monotonic() - begin < BOUND


def test_a_silent_peer_is_suspected_while_no_operation_waits() -> None:
    """Specification 16.36: the next operation finds the connection closed."""
    with cluster_of([1], [2]) as cluster:
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=TIMEOUT)
        try:
            channel = storage._session.storages.channel(1)
            silence(cluster.storages[1], identifies=False)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while channel.lost is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert channel.silent and "not even to Ping" in channel.lost
            assert storage._session.master.channel().lost is None, "it answers Ping"
        finally:
            storage.close()


def test_a_replica_is_asked_instead_of_a_node_that_was_silent() -> None:
    with cluster_of([1, 2]) as cluster:
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=TIMEOUT, cache_size=0)
        try:
            for node in cluster.storages.values():
                node.answers[AskObject] = answer(b"x")
            for nid in (1, 2):
                storage._session.storages.channel(nid)
            silence(cluster.storages[1], identifies=False)
            for _ in range(10):
                assert storage.load(OID)[0] == b"x"
            begin = time.monotonic()
            for _ in range(100):
                assert storage.load(OID)[0] == b"x"
            assert time.monotonic() - begin < STANDSTILL
        finally:
            storage.close()


def test_a_slow_commit_is_waited_for() -> None:
    """Specification 16.37: the master answers Ping, and the commit later than ``wait-timeout``."""
    with cluster_of([1]) as cluster:
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=0.4)
        try:
            t = TransactionMetaData()
            storage.tpc_begin(t)
            storage.store(OID, SERIAL, b"x", "", t)
            storage.tpc_vote(t)
            finish = cluster.master.answers[AskFinishTransaction]
            cluster.master.answers[AskFinishTransaction] = lambda m: None
            found: dict[str, Any] = {}
            thread = timed(lambda: storage.tpc_finish(t), found, "finish")
            question = cluster.master.wait_for(AskFinishTransaction)
            pings = len(cluster.master.asked(Ping))
            cluster.master.wait_for(Ping, count=pings + 5)
            assert not found
            late = finish(question)
            assert late is not None
            cluster.master.answer_last(AskFinishTransaction, late)
            thread.join(PATIENCE_SECONDS)
            assert found["finish"][1] == cluster.last_tid
        finally:
            storage.close()


def test_the_outcome_of_a_commit_is_unknown_when_all_fall_silent() -> None:
    """Specification 7.40, within the time."""
    with cluster_of([1]) as cluster:
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=TIMEOUT)
        try:
            t = TransactionMetaData()
            storage.tpc_begin(t)
            storage.store(OID, SERIAL, b"x", "", t)
            storage.tpc_vote(t)
            for node in [cluster.master, *cluster.storages.values()]:
                silence(node, identifies=True)
            begin = time.monotonic()
            with pytest.raises(OutcomeUnknownError):
                storage.tpc_finish(t)
            assert time.monotonic() - begin < BOUND
        finally:
            storage.close()
