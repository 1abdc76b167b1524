"""Packs with garbage collection, against a scripted cluster."""

from __future__ import annotations

from hashlib import sha1
from pickle import UnpicklingError

import pytest

from neo.client import NEOStorage
from neo.client.errors import NEOStorageError
from neo.client.maintenance import pack
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_OID, p64, time_from_tid
from neo.protocol.packets import (
    AbortTransaction,
    AnswerObject,
    AnswerObjectUndoSerial,
    AnswerPack,
    AnswerStoreTransaction,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskFinishTransaction,
    AskObject,
    AskObjectUndoSerial,
    AskPack,
    AskStoreObject,
    AskStoreTransaction,
    AskTIDsFrom,
    AskTransactionInformation,
    InvalidateObjects,
    Message,
)
from tests.support.patience import wait_until
from tests.unit.client.reading import DB
from tests.unit.client.scripted import Scripted, scripted

CREATED = p64(1 << 40)


HEAD, END, OTHER = p64(2), p64(1), p64(3)
TAKEN_BACK = p64(1 << 41)


class Database:
    """One storage node. ``references``: of garbage objects created at CREATED, the end of a chain
    before its head. When a transaction has voted, another one makes the root refer to HEAD if
    ``taken_back``. If ``taken_back_late``, the client learns of that only after the first one is
    finished."""

    def __init__(self, cluster: Scripted, references: dict[bytes, list[bytes]]) -> None:
        self.taken_back = self.taken_back_late = False
        self.committed = {CREATED: [ZERO_OID, *sorted(references)]}
        self._references = references
        self._cluster = cluster
        cluster.storages[1].answers |= {
            AskObject: self._record,
            AskTIDsFrom: lambda m: AnswerTIDsFrom(
                [tid for tid in self.committed if m.min_tid <= tid <= m.max_tid]
            ),
            AskTransactionInformation: lambda m: AnswerTransactionInformation(
                m.tid, b"", b"", b"", False, self.committed[m.tid]
            ),
            AskStoreTransaction: self._vote,
            AskObjectUndoSerial: lambda m: AnswerObjectUndoSerial(
                dict.fromkeys(m.oid_list, (m.undone_tid, CREATED, True))
            ),
        }
        self._finished = cluster.master.answers[AskFinishTransaction]
        cluster.master.answers |= {
            AskPack: lambda m: AnswerPack(True),
            AskFinishTransaction: self._finish,
        }
        cluster.next_tid = 1 << 42
        cluster.last_tid = CREATED
        cluster.master.peer.close()

    def pack(self, storage: NEOStorage) -> None:
        storage.sync()  # the client joins again, and learns of the last transaction
        storage.pack(time_from_tid(CREATED) + 1, self._referred)

    def deleted(self) -> list[list[bytes]]:
        """Return the objects of finished transactions."""
        return [sorted(m.stored_list) for m in self._cluster.master.asked(AskFinishTransaction)]

    def _record(self, m: AskObject) -> Message:
        serials = [tid for tid, oids in self.committed.items() if m.oid in oids]
        serial = m.at or max(tid for tid in serials if m.before is None or tid < m.before)
        data = m.oid + serial
        return AnswerObject(m.oid, serial, None, 0, sha1(data).digest(), data, None)

    def _referred(self, data: bytes) -> list[bytes]:
        if data == ZERO_OID + TAKEN_BACK:
            return [HEAD]
        return self._references.get(data[:8], [])

    def _vote(self, m: AskStoreTransaction) -> Message:
        if self.taken_back and TAKEN_BACK not in self.committed:
            self.committed[TAKEN_BACK] = [ZERO_OID]
            self._cluster.tell(InvalidateObjects(TAKEN_BACK, [ZERO_OID]))
        return AnswerStoreTransaction()

    def _finish(self, m: AskFinishTransaction) -> Message | None:
        answer = self._finished(m)
        if self.taken_back_late:
            self.committed[TAKEN_BACK] = [ZERO_OID]
        self.committed[self._cluster.last_tid] = m.stored_list
        return answer


def unreadable(storage: NEOStorage, oid: bytes) -> None:
    """Pack while the record of this object is no pickle."""

    def references(data: bytes) -> list[bytes]:
        if data[:8] == oid:
            raise UnpicklingError("invalid load key")
        return []

    storage.sync()
    storage.pack(time_from_tid(CREATED) + 1, references)


def test_garbage_that_cannot_be_read_is_kept_and_does_not_stop_the_pack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: [], HEAD: []})
        unreadable(storage, HEAD)
        assert database.deleted() == [[END]]
        assert cluster.master.asked(AskPack)
    assert "object 0000000000000002 is not in use, but its record cannot be read" in caplog.text


def test_an_object_in_use_that_cannot_be_read_stops_the_pack_before_anything_is_deleted() -> None:
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: []})
        with pytest.raises(NEOStorageError, match="object 0000000000000000 is in use"):
            unreadable(storage, ZERO_OID)
        assert not database.deleted()
        assert not cluster.master.asked(AskPack)


@pytest.mark.parametrize("refused", [False, True])
def test_garbage_is_deleted_only_when_the_pack_is_done(refused: bool) -> None:
    """Specification 12.23: else an undo could bring back a reference to it."""
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: []})

        def pack(m: AskPack) -> Message:
            if refused:
                raise ErrorAnswer(ErrorCode.DENIED, "a backup holds 'history'")
            return AnswerPack(True)

        cluster.master.answers[AskPack] = pack
        if refused:
            with pytest.raises(NEOStorageError, match="a backup holds 'history'"):
                database.pack(storage)
        else:
            database.pack(storage)
        asked = [m for m in cluster.master.log if isinstance(m, (AskPack, AskFinishTransaction))]
        # The second pack is of the deletion: nothing else was committed.
        assert [type(m) for m in asked] == [AskPack, AskFinishTransaction, AskPack][: 1 if refused else 3]
        assert refused or asked[-1] == AskPack(cluster.last_tid)


def test_connections_of_the_client_that_packs_hear_of_the_objects_that_it_deletes() -> None:
    """Let the master tell the other clients."""
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: []})
        storage.sync()
        storage.registerDB(db := DB())
        database.pack(storage)
        assert [m.oid for m in cluster.storages[1].asked(AskStoreObject)] == [END]
        assert db.calls == [(cluster.last_tid, END)]


@pytest.mark.parametrize(
    ("references", "together", "taken_back", "deleted"),
    [
        # An application may use the head of a chain again between the two, and checks nothing else.
        pytest.param({END: [], HEAD: [END]}, 1, "", [[HEAD], [END]], id="referrers first"),
        pytest.param(
            {END: [], HEAD: [END], OTHER: []},
            1,
            "before it is finished",
            [[OTHER]],
            id="back in use",
        ),
        # OTHER is deleted together with HEAD, and restored together with it.
        pytest.param(
            {END: [], HEAD: [], OTHER: [END]},
            2,
            "late",
            [[HEAD, OTHER], [HEAD, OTHER]],
            id="restored",
        ),
        pytest.param(
            {END: [], HEAD: [OTHER, END], OTHER: [HEAD]},
            1,
            "",
            [[HEAD, OTHER], [END]],
            id="a circle",
        ),
    ],
)
def test_nothing_is_deleted_before_what_refers_to_it_or_if_that_is_in_use_again(
    references: dict[bytes, list[bytes]],
    together: int,
    taken_back: str,
    deleted: list[list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Specification 12.14, 12.15."""
    monkeypatch.setattr(pack, "DELETED_TOGETHER", together)
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, references)
        database.taken_back = taken_back == "before it is finished"
        database.taken_back_late = taken_back == "late"
        database.pack(storage)
        assert database.deleted() == deleted


@pytest.mark.parametrize("taken_back_late", [False, True])
def test_a_deletion_or_its_undo_that_is_interrupted_in_tpc_begin_is_aborted(
    monkeypatch: pytest.MonkeyPatch, taken_back_late: bool
) -> None:
    begins: list[object] = []
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: [], HEAD: [END]})
        database.taken_back_late = taken_back_late
        begin = storage.tpc_begin

        def tpc_begin(transaction: object) -> None:
            begin(transaction)
            begins.append(transaction)
            if len(begins) == 1 + taken_back_late:
                raise KeyboardInterrupt

        monkeypatch.setattr(storage, "tpc_begin", tpc_begin)
        with pytest.raises(KeyboardInterrupt):
            database.pack(storage)
        wait_until(lambda: cluster.master.asked(AbortTransaction), "no abort is sent")
        assert len(begins) == 1 + taken_back_late


def test_what_was_committed_meanwhile_is_read_before_objects_are_locked() -> None:
    """Busy writers commit much: locks are held only while the rest is read."""
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: [], OTHER: []})
        node = cluster.storages[1]
        record = node.answers[AskObject]

        def committing(m: AskObject) -> Message | None:
            if m.oid == END and TAKEN_BACK not in database.committed:
                database.committed[TAKEN_BACK] = [OTHER]
                cluster.tell(InvalidateObjects(TAKEN_BACK, [OTHER]))
            return record(m)

        node.answers[AskObject] = committing
        database.pack(storage)
        assert database.deleted() == [[END]]
        read = AskTransactionInformation(TAKEN_BACK)
        found = [m for m in node.log if m == read or isinstance(m, AskStoreObject)]
        assert [type(m) for m in found] == [AskTransactionInformation, AskStoreObject]


def test_a_circle_that_is_too_large_for_one_transaction_is_kept_with_what_hangs_on_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pack, "CIRCLE_MAX", 1)
    monkeypatch.setattr(pack, "DELETED_TOGETHER", 1)
    with scripted([1], cache_size=0) as (cluster, storage):
        database = Database(cluster, {END: [], HEAD: [OTHER, END], OTHER: [HEAD]})
        database.pack(storage)
        assert database.deleted() == []
    assert "2 objects refer to each other in a circle" in caplog.text
