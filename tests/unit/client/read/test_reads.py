"""Reads of a client, from any replica."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha1
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from ZODB.POSException import POSKeyError

from neo.client import NEOStorage
from neo.client.errors import CorruptedError, RefusedError, UnavailableError
from neo.client.read.replicas import FIRST, WINDOW, WINDOW_BYTES, Replicas, Where
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerObject,
    AnswerObjectHistory,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AnswerTransactionLog,
    AskObject,
    AskObjectHistory,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskTransactionLog,
    LoggedTransaction,
    Message,
    NotifyNodeInformation,
    Ping,
)
from tests.unit.client.peers import in_threads
from tests.unit.client.reading import OID, answer, refuse
from tests.unit.client.scripted import Scripted, scripted


def test_reads_go_to_all_replicas() -> None:
    """Specification 6.1, 6.2."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskObject] = answer(b"x")
        for _ in range(60):
            storage.load(OID)
        assert all(len(node.asked(AskObject)) > 5 for node in cluster.storages.values())


def test_a_failing_replica_is_replaced_by_another_one() -> None:
    """Specification 6.5."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        cluster.storages[1].server.close()
        cluster.storages[2].answers[AskObject] = answer(b"x")
        for _ in range(20):
            assert storage.load(OID)[0] == b"x"


def test_a_cell_that_is_not_readable_any_more_is_not_asked_again() -> None:
    """Specification 6.4."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        late = threading.Event()

        def moved(m: AskObject) -> Message:
            if not late.is_set():
                late.set()
                cluster.tell(cluster.change((0, 2, CellState.OUT_OF_DATE)))
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)

        cluster.storages[2].answers[AskObject] = moved
        for _ in range(30):
            assert storage.load(OID)[0] == b"x"
        assert len(cluster.storages[2].asked(AskObject)) == 1
        assert len(cluster.master.asked(Ping)) == 1


def test_a_partition_that_nobody_can_read_is_a_transient_error_after_the_wait() -> None:
    """Specification 6.5, 16.26."""
    with scripted([1], wait_timeout=0.3) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = refuse(ErrorCode.NON_READABLE_CELL)
        with pytest.raises(UnavailableError, match="partition 0: S1: NON_READABLE_CELL"):
            storage.load(OID)


def away_for_a_moment(cluster: Scripted, storage: NEOStorage, nid: int) -> None:
    """Let a storage node be down, and come back a little later."""
    cluster.tell(NotifyNodeInformation(time.time(), cluster.rows(down=[nid])))
    storage.sync()
    back = NotifyNodeInformation(time.time(), cluster.rows())
    threading.Timer(0.1, cluster.tell, [back]).start()


def test_a_partition_comes_back() -> None:
    """Specification 6.1."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        away_for_a_moment(cluster, storage, 1)
        assert storage.load(OID)[0] == b"x"


def test_the_log_for_undo_waits_for_nodes_that_are_away() -> None:
    """An iterator without them would lack their transactions silently."""
    with scripted([1], [2]) as (cluster, storage):
        for nid, node in cluster.storages.items():
            node.answers[AskTIDs] = lambda m, nid=nid: AnswerTIDs([p64(50 + nid)])
            node.answers[AskTransactionInformation] = _information
        away_for_a_moment(cluster, storage, 2)
        assert [entry["id"] for entry in storage.undoLog()] == [p64(52), p64(51)]


def test_the_log_is_asked_of_each_node_once_and_older_transactions_as_ever() -> None:
    """Specification 7.61, 7.62."""
    with scripted([1], [2], [1]) as (cluster, storage):

        def row(tid: int) -> LoggedTransaction:
            return p64(tid), b"user", b"", b"", False

        def tids(m: AskTIDs) -> Message:
            return AnswerTIDs({0: [p64(60), p64(30)], 1: [p64(50), p64(40)], 2: []}[m.partition])

        logs = {1: ([row(60)], True), 2: ([row(101), row(50), row(40)], False)}
        for nid, node in cluster.storages.items():
            cluster.storage_features[nid] = [FEATURE_OURS]
            storage._session.storages.features(nid)
            node.answers[AskTransactionLog] = lambda m, nid=nid: AnswerTransactionLog(*logs[nid])
            node.answers |= {AskTIDs: tids, AskTransactionInformation: _information}
        # 101 was committed later; 50 may come behind others of node 1.
        assert [entry["id"] for entry in storage.undoLog()] == [*map(p64, (60, 50, 40, 30))]
        assert [node.asked(AskTransactionLog) for node in cluster.storages.values()] == [
            [AskTransactionLog(20, 3, [0, 2])],
            [AskTransactionLog(20, 3, [1])],
        ]
        asked = [m.tid for n in cluster.storages.values() for m in n.asked(AskTransactionInformation)]
        assert p64(60) not in asked

        logs[1] = [row(60), row(30)], False
        for node in cluster.storages.values():
            node.log.clear()
        found = storage.undoLog()
        assert [(entry["id"], entry["user_name"]) for entry in found] == [
            (p64(tid), b"user") for tid in (60, 50, 40, 30)
        ]
        assert not any(node.asked(AskTIDs) for node in cluster.storages.values())

        cluster.storages[2].answers[AskTransactionLog] = refuse(ErrorCode.NON_READABLE_CELL)
        assert [entry["id"] for entry in storage.undoLog()] == [*map(p64, (60, 50, 40, 30))]


def _information(m: AskTransactionInformation) -> Message:
    return AnswerTransactionInformation(m.tid, b"", b"", b"", False, [])


def test_a_node_that_is_not_ready_for_us_yet_is_asked_again() -> None:
    """The answer to an identification whose announcement by the master is late (specification 6.5)."""
    with scripted([1]) as (cluster, storage):
        refusals = [ErrorCode.NOT_READY, ErrorCode.NOT_READY]

        def tids(m: AskTIDs) -> Message:
            if refusals:
                raise ErrorAnswer(refusals.pop())
            return AnswerTIDs([])

        cluster.storages[1].answers[AskTIDs] = tids
        assert storage.undoLog() == []
        assert not refusals


def walkable(cluster: Scripted, count: int) -> list[bytes]:
    """Let a node have one transaction with so many objects. Return their oids."""
    oids = [p64(n) for n in range(count)]
    cluster.storages[1].answers |= {
        AskTIDsFrom: lambda m: AnswerTIDsFrom([p64(50)] if m.min_tid <= p64(50) else []),
        AskTransactionInformation: lambda m: replace(_information(m), oid_list=oids),
        AskObject: answer(b"x"),
    }
    return oids


def test_two_walks_through_the_records_do_not_disturb_each_other() -> None:
    """One walk goes on from the same place while the other loads, as two threads may."""
    with scripted([1]) as (cluster, storage):
        oids = walkable(cluster, 10)
        load = storage.loadBefore
        others: list[bytes | None] = []

        def interrupted(oid: bytes, before: bytes) -> Any:
            if oid == oids[5] and not others:
                others.append(None)
                others[0] = storage.record_iternext(oid)[3]
            return load(oid, before)

        storage.loadBefore = interrupted  # type: ignore[method-assign, assignment]
        found: list[bytes] = []
        next_oid: bytes | None = None
        while not found or next_oid is not None:
            oid, _, _, next_oid = storage.record_iternext(next_oid)
            found.append(oid)
        assert found == oids
        assert others == [oids[6]]


@pytest.mark.parametrize(("cache_size", "portions"), [(1 << 20, [2, 4, 8, 6]), (0, [])])
def test_a_walk_through_the_records_reads_ahead_what_the_cache_can_keep(
    cache_size: int, portions: list[int]
) -> None:
    with scripted([1], cache_size=cache_size) as (cluster, storage):
        oids = walkable(cluster, 20)
        prefetch = storage.prefetch
        found: list[int] = []

        def counted(oids: Collection[bytes], tid: bytes) -> None:
            found.append(len(oids))
            prefetch(oids, tid)

        storage.prefetch = counted  # type: ignore[method-assign, assignment]
        next_oid = None
        for oid in oids:
            walked, _, _, next_oid = storage.record_iternext(next_oid)
            assert walked == oid
        assert found == portions
        asked = [m.oid for m in cluster.storages[1].asked(AskObject)]
        assert asked == oids, "each object is read once"


def test_an_unexpected_refusal_is_one_of_the_clients_errors() -> None:
    with scripted([1]) as (cluster, storage):
        refusing = dict.fromkeys((AskTIDs, AskTIDsFrom), refuse(ErrorCode.DENIED))
        cluster.storages[1].answers |= refusing
        for ask in (lambda: list(storage.iterator()), storage.undoLog):
            with pytest.raises(RefusedError, match="list of transactions: DENIED"):
                ask()


def test_damaged_data_is_read_from_another_replica() -> None:
    """Specification 6.5."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        good = answer(b"x")
        cluster.storages[1].answers[AskObject] = lambda m: replace(good(m), data=b"y")
        cluster.storages[2].answers[AskObject] = good
        assert storage.load(OID)[0] == b"x"
        cluster.storages[2].answers[AskObject] = cluster.storages[1].answers[AskObject]
        with pytest.raises(CorruptedError, match="no storage node has sound data"):
            storage.load(OID)


def test_missing_objects_and_undone_creations_are_key_errors() -> None:
    with scripted([1]) as (cluster, storage):
        answers = cluster.storages[1].answers
        answers[AskObject] = refuse(ErrorCode.OID_DOES_NOT_EXIST)
        with pytest.raises(POSKeyError):
            storage.loadBefore(OID, p64(50))
        answers[AskObject] = refuse(ErrorCode.OID_NOT_FOUND)
        assert storage.loadBefore(OID, p64(50)) is None
        with pytest.raises(POSKeyError):
            storage.loadSerial(OID, p64(50))
        with pytest.raises(POSKeyError):
            storage.load(OID)
        answers[AskObject] = lambda m: AnswerObject(m.oid, p64(5), None, None, ZERO_HASH, b"", None)
        with pytest.raises(POSKeyError):
            storage.load(OID)


def test_prefetched_objects_need_no_further_request() -> None:
    with scripted([1], [1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        storage.prefetch([p64(n) for n in range(250)] * 2, p64(101))
        assert len(cluster.storages[1].asked(AskObject)) == 250
        for n in range(250):
            assert storage.loadBefore(p64(n), p64(101)) == (b"x", p64(50), None)
        assert len(cluster.storages[1].asked(AskObject)) == 250


def test_concurrent_loads_get_their_own_objects() -> None:
    with scripted([1], cache_size=0) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = lambda m: answer(m.oid)(m)

        def work(first: int) -> bool:
            return all(storage.load(p64(n))[0] == p64(n) for n in range(first, first + 200))

        assert in_threads(*(lambda i=i: work(1000 * i) for i in range(6))) == [True] * 6


def _packed(cluster: Scripted, *listed: int) -> None:
    """Let the node list the revisions since a pack, ``listed``. The pack kept the revision at 40."""
    answers = cluster.storages[1].answers
    answers[AskTransactionInformation] = refuse(ErrorCode.TID_NOT_FOUND)

    def history(m: AskObjectHistory) -> Message:
        items = [(p64(tid), 7) for tid in listed[m.first : m.last]]
        if not items:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, m.oid.hex())
        return AnswerObjectHistory(m.oid, items)

    def load(m: AskObject) -> Message:
        assert m.at is None and m.before is not None
        if m.before <= p64(40):
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, m.oid.hex())
        return answer(b"kept", serial=40)(m)

    answers[AskObjectHistory], answers[AskObject] = history, load


@pytest.mark.parametrize("listed", [(60, 50), ()])
def test_the_revision_that_a_pack_kept_belongs_to_the_history(listed: tuple[int, ...]) -> None:
    """No storage node lists the revision, and nothing is loaded if the list is long enough
    (specification 16.22)."""
    with scripted([1]) as (cluster, storage):
        _packed(cluster, *listed)
        found = [(item["tid"], item["size"]) for item in storage.history(OID, len(listed))]
        assert found == [(p64(tid), 7) for tid in listed]
        assert not cluster.storages[1].asked(AskObject)
        found = [(item["tid"], item["size"]) for item in storage.history(OID, 10)]
        assert found == [*((p64(tid), 7) for tid in listed), (p64(40), 4)]


def test_the_history_of_an_object_that_never_was_is_a_key_error() -> None:
    with scripted([1]) as (cluster, storage):
        _packed(cluster)
        cluster.storages[1].answers[AskObject] = refuse(ErrorCode.OID_DOES_NOT_EXIST)
        with pytest.raises(POSKeyError):
            storage.history(OID, 10)


class Pipe:
    """Stands for the connections of :meth:`Replicas.read_each`: objects of these sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sizes: Iterable[int]) -> None:
        self._sizes = iter(sizes)
        #: Sizes of the objects that are asked for and not read yet.
        self.waiting: list[int] = []
        self.counts: list[int] = []
        self.bytes: list[int] = []
        self.writes = 0
        monkeypatch.setattr(Replicas, "_connections", Mock(), raising=False)
        monkeypatch.setattr(Replicas, "_direct", None, raising=False)
        monkeypatch.setattr(Replicas, "_ask_many", self._ask_many)
        monkeypatch.setattr(Replicas, "collect", self._collect)

    def _ask_many(self, wanted: Sequence[tuple[Where, Any]], backoff: Any) -> list[None]:
        self.writes += bool(wanted)
        for _ in wanted:
            self.waiting.append(next(self._sizes))
            self.counts.append(len(self.waiting))
            self.bytes.append(sum(self.waiting))
        return [None] * len(wanted)

    def _collect(self, where: Where, message: Any, *rest: Any) -> Any:
        return AnswerObject(OID, OID, None, 0, ZERO_HASH, bytes(self.waiting.pop(0)), None)

    def read(self, count: int) -> Iterator[Any]:
        requests = [(OID, AskObject(OID, None, None))] * count
        return Replicas.__new__(Replicas).read_each(requests)


@pytest.mark.parametrize(
    ("size", "most"), [(10, WINDOW), (WINDOW_BYTES // 10, 9), (WINDOW_BYTES, 1)]
)
def test_as_much_is_asked_ahead_as_fits_in_a_window(
    size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 2.46."""
    pipe = Pipe(monkeypatch, [size] * 400)
    answers = pipe.read(400)
    for _ in range(20):
        next(answers)
    assert max(pipe.counts[:4]) == FIRST, "nothing is known of the first ones"
    del pipe.counts[:30]
    assert len(list(answers)) == 380
    assert max(pipe.counts) == most


def test_small_objects_are_asked_for_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe(monkeypatch, [10] * 1000)
    assert len(list(pipe.read(1000))) == 1000
    assert pipe.writes < 1000 / (WINDOW // 4)


class Direct:
    """Answers what ``answers`` has."""

    def __init__(self, answers: dict[bytes, AnswerObject]) -> None:
        self.answers = answers

    def answer(self, nids: Collection[int], message: AskObject) -> AnswerObject | None:
        return self.answers.get(message.oid)


def test_a_node_in_the_same_interpreter_is_asked_when_all_its_answers_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both need the interpreter's lock, and would hand it to and fro for each object."""
    pipe = Pipe(monkeypatch, [10] * 1000)
    monkeypatch.setattr(Replicas, "_direct", Direct({}), raising=False)
    monkeypatch.setattr(Replicas, "_master", Mock(), raising=False)
    assert len(list(pipe.read(1000))) == 1000
    assert pipe.writes <= 60
    before = [0, *pipe.counts]
    begins = [count for previous, count in pairwise(before) if count <= previous]
    assert set(begins) <= {1}, "something was asked while answers were left"


def test_a_window_of_requests_is_divided_among_the_nodes() -> None:
    """Each is asked with one write, and the answers come in the order of the requests."""
    oids = [p64(n) for n in range(50)]
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskObject] = lambda m: AnswerObject(
                m.oid, p64(5), None, 0, sha1(m.oid).digest(), m.oid, None
            )
        answers = storage.replicas.read_many([(o, AskObject(o, None, None)) for o in oids])
        assert [getattr(each, "data", each) for each in answers] == oids
        counts = [len(node.asked(AskObject)) for node in cluster.storages.values()]
    assert sum(counts) == 50 and min(counts) > 5


def test_a_window_is_small_again_when_large_objects_come(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe(monkeypatch, [10] * 50 + [WINDOW_BYTES // 2] * 150)
    assert len(list(pipe.read(200))) == 200
    assert max(pipe.bytes[-40:]) <= WINDOW_BYTES


def test_what_was_asked_ahead_is_forgotten_when_the_reader_stops() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        answers = storage.replicas.read_each([(OID, AskObject(OID, None, None))] * 10)
        next(answers)
        answers.close()
        storage.prefetch([p64(n) for n in range(20)], p64(101))
        assert storage.loadBefore(p64(7), p64(101)) == (b"x", p64(50), None)


def test_a_prefetch_that_fails_leaves_no_load_open() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = lambda m: AnswerObject(
            m.oid, p64(5), None, 1, sha1(b"no zlib").digest(), b"no zlib", None
        )
        with pytest.raises(CorruptedError):
            storage.prefetch([p64(n) for n in range(20)], p64(101))
        assert not storage._invalidations.cache._loads
