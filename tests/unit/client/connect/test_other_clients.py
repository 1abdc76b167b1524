"""What one client did, another one finds at once: commits (specification 16.38) and packs (16.39)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from neo.client import NEOStorage
from neo.client.read.cache import Cache, Loaded
from neo.protocol.blobs import Content, with_content
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import add64, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerObjectHistory,
    AnswerObjectUndoSerial,
    AnswerOIDs,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    InvalidateObjects,
    NotifyPack,
    Ping,
    Pong,
    RequestIdentification,
)
from tests.support.patience import wait_until
from tests.unit.client.reading import OID, answer, refuse
from tests.unit.client.scripted import Scripted, scripted

#: A transaction of another client, which the master has acknowledged.
TID = p64(200)


@contextmanager
def another_committed() -> Iterator[tuple[Scripted, NEOStorage]]:
    """The master's news of the transaction are still on their way: they come before its next Pong."""
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        cluster.storage_features[1] = [FEATURE_OURS]
        node.answers |= {
            AskTIDs: lambda m: AnswerTIDs([TID] if m.first == 0 else []),
            AskTIDsFrom: lambda m: AnswerTIDsFrom([TID] if m.min_tid <= TID <= m.max_tid else []),
            AskTransactionInformation: lambda m: AnswerTransactionInformation(
                m.tid, b"", b"", b"", False, [OID]
            ),
            AskObjectHistory: lambda m: AnswerObjectHistory(m.oid, [(TID, 1)]),
            AskObject: lambda m: answer(b"new", 200)(m)
            if m.at == TID or m.at is None and (m.before or maxtid) > TID
            else answer(b"old", 50, 200)(m),
            AskOIDs: lambda m: AnswerOIDs([OID] if m.min_oid <= OID else []),
            AskObjectUndoSerial: lambda m: AnswerObjectUndoSerial(
                {OID: (TID, p64(50), True)} if m.max_tid > TID else {}
            ),
        }

        def pong(m: Ping) -> Pong:
            cluster.tell(InvalidateObjects(TID, [OID]))
            return Pong()

        cluster.master.answers[Ping] = pong
        yield cluster, storage


def undone(storage: NEOStorage) -> list[bytes]:
    t = TransactionMetaData()
    storage.tpc_begin(t)
    try:
        return storage.undo(TID, t)[1]
    finally:
        storage.tpc_abort(t)


def synced(storage: NEOStorage) -> bytes:
    storage.sync()
    return storage.lastTransaction()


READS: dict[str, tuple[Callable[[NEOStorage], Any], Any]] = {
    "iterator": (lambda s: [t.tid for t in s.iterator()], [TID]),
    "iterator to it": (lambda s: [t.tid for t in s.iterator(None, TID)], [TID]),
    "loadBefore": (lambda s: s.loadBefore(OID, add64(TID, 1)), (b"new", TID, None)),
    "loadSerial": (lambda s: s.loadSerial(OID, TID), b"new"),
    "history": (lambda s: [h["tid"] for h in s.history(OID)], [TID]),
    "undoLog": (lambda s: [d["id"] for d in s.undoLog()], [TID]),
    "undoInfo": (lambda s: [d["id"] for d in s.undoInfo()], [TID]),
    "undo": (undone, [OID]),
    "record_iternext": (lambda s: s.record_iternext()[1], TID),
    "lastTransaction": (synced, TID),
}


@pytest.mark.parametrize("name", READS)
def test_what_another_client_committed_is_found(name: str) -> None:
    """Specification 16.38."""
    method, expected = READS[name]
    with another_committed() as (_, storage):
        assert method(storage) == expected


def test_a_load_of_a_known_view_asks_the_master_nothing() -> None:
    with another_committed() as (cluster, storage):
        pings = len(cluster.master.asked(Ping))
        assert storage.loadBefore(OID, add64(storage.lastTransaction(), 1))
        storage.load(OID)
        assert len(cluster.master.asked(Ping)) == pings


# -- packs -----------------------------------------------------------------------------------------


def test_a_client_wants_to_hear_of_packs() -> None:
    with scripted([1]) as (cluster, _):
        (request,) = cluster.master.asked(RequestIdentification)
        assert FEATURE_OURS in request.extra[FEATURES]


def test_packed_revisions_are_not_given_from_the_cache() -> None:
    """Specification 16.39: for a pack at 60, the revision of 20 goes, those of 50 and 70 stay."""
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        for serial, following in ((20, 50), (50, 70), (70, None)):
            node.answers[AskObject] = answer(b"%d" % serial, serial, following)
            assert storage.loadBefore(OID, p64(serial + 1)) is not None
        cluster.tell(NotifyPack(p64(60)))
        node.answers[AskObject] = refuse(ErrorCode.OID_NOT_FOUND)

        def gone() -> bool:
            return storage.loadBefore(OID, p64(21)) is None

        wait_until(gone, "it is not dropped")
        with pytest.raises(POSKeyError):
            storage.loadSerial(OID, p64(20))
        assert storage.loadSerial(OID, p64(50)) == b"50"
        assert storage.loadSerial(OID, p64(70)) == b"70"


def test_a_revision_that_is_read_while_the_pack_runs_is_not_cached() -> None:
    cache = Cache(10_000)
    load = cache.load_begins(OID)
    cache.packed(p64(60))
    assert cache.load_ends(OID, load, Loaded(b"x", p64(20), p64(50))) is not None
    assert cache.load_at(OID, p64(20)) is None
    cache.packed(p64(40))  # an older pack, of which a new connection tells, changes nothing
    cache.load_ends(OID, cache.load_begins(OID), Loaded(b"x", p64(20), p64(50)))
    assert cache.load_at(OID, p64(20)) is None


def test_the_content_of_a_packed_revision_is_asked_for_again(tmp_path: Path) -> None:
    with scripted([1], blob_dir=str(tmp_path / "blobs")) as (cluster, storage):
        content = Content(3, bytes(32))
        node = cluster.storages[1]
        node.answers[AskObject] = answer(with_content(b"pickle", content), 20, 50)
        storage.loadBefore(OID, p64(21))
        file = Path(storage.fshelper._files.cache.path(OID, p64(20)))
        file.parent.mkdir()
        file.write_bytes(b"abc")
        assert storage.loadBlob(OID, p64(20)) == str(file)
        cluster.tell(NotifyPack(p64(60)))
        storage.sync()
        assert storage.loadBlob(OID, p64(20)) == str(file), "the node has not packed yet"
        node.answers[AskObject] = refuse(ErrorCode.OID_NOT_FOUND)
        with pytest.raises(POSKeyError):
            storage.loadBlob(OID, p64(20))
