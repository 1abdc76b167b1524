"""A client reads contents of blobs, keeps them in its folder, and sends those of its transactions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError, StorageError

from neo.client import NEOStorage
from neo.client.blobs import download
from neo.client.blobs.cache import BlobCache
from neo.client.blobs.eviction import SPARED_SECONDS, Eviction
from neo.client.errors import CorruptedError
from neo.protocol.blobs import Content, content_hash, with_content
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AbortTransaction,
    AnswerBlob,
    AnswerStoreBlob,
    AskBlob,
    AskObject,
    AskStoreBlob,
    AskStoreObject,
    Message,
    NotifyBlobDamaged,
)
from tests.support.patience import wait_until
from tests.unit.client.committing import finish
from tests.unit.client.peers import in_threads
from tests.unit.client.reading import OID, answer, refuse
from tests.unit.client.scripted import Scripted, scripted

TID = p64(50)
DATA = bytes(range(100))
PIECE = 10


def content_of(data: bytes) -> Content:
    computed = content_hash()
    computed.update(data)
    return Content(len(data), computed.digest())


def pieces(data: bytes) -> Callable[[AskBlob], Message]:
    """Return the answers of a node that has these bytes."""
    return lambda m: AnswerBlob(data[m.offset : m.offset + m.length])


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PIECE_BYTES", PIECE)


@contextmanager
def cluster_with_blob(
    path: Path, *nids: int, **options: Any
) -> Iterator[tuple[Scripted, NEOStorage]]:
    """Yield a cluster whose nodes have the content of an object, and a client."""
    with scripted(nids, blob_dir=str(path / "cache"), **options) as (cluster, storage):
        for nid, node in cluster.storages.items():
            cluster.storage_features[nid] = [FEATURE_BLOBS]
            node.answers[AskObject] = answer(with_content(b"pickle", content_of(DATA)))
            node.answers[AskBlob] = pieces(DATA)
            node.answers[AskStoreBlob] = lambda m: AnswerStoreBlob(m.ttid, m.oid)
        yield cluster, storage


def read(storage: NEOStorage) -> bytes:
    return Path(storage.loadBlob(OID, TID)).read_bytes()


# -- reading ---------------------------------------------------------------------------------------


def test_a_content_is_read_once_in_pieces(tmp_path: Path) -> None:
    """Specification 26.15."""
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        assert read(storage) == read(storage) == DATA
        asked = cluster.storages[1].asked(AskBlob)
        assert [m.offset for m in asked] == list(range(0, len(DATA), PIECE))


def test_an_empty_content_needs_no_piece(tmp_path: Path) -> None:
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(with_content(b"", content_of(b"")))
        assert read(storage) == b""
        assert not cluster.storages[1].asked(AskBlob)


@pytest.mark.parametrize("how", ["refuses", "ends"])
def test_another_node_goes_on_where_one_stops(tmp_path: Path, how: str) -> None:
    """Specification 26.15: at the same offset."""

    def stops(m: AskBlob) -> Message | None:
        if m.offset < 3 * PIECE:
            return pieces(DATA)(m)
        if how == "refuses":
            return refuse(ErrorCode.OID_NOT_FOUND)(m)
        first.peer.close()
        return None

    with cluster_with_blob(tmp_path, 1, 2) as (cluster, storage):
        first, second = cluster.storages[1], cluster.storages[2]
        second.answers[AskBlob] = refuse(ErrorCode.NOT_READY)
        first.answers[AskBlob] = stops

        def opens_the_second() -> None:
            first.wait_for(AskBlob, count=4)
            second.answers[AskBlob] = pieces(DATA)

        assert in_threads(lambda: read(storage), opens_the_second) == [DATA, None]
        given = [m for m in second.log if isinstance(m, AskBlob)][-7:]
        assert given[0].offset == 3 * PIECE


def test_what_is_damaged_on_the_way_is_read_from_another_node(tmp_path: Path) -> None:
    """Specification 26.15: the node is told, and verifies its file."""
    with cluster_with_blob(tmp_path, 1, 2) as (cluster, storage):
        wrong, right = cluster.storages[1], cluster.storages[2]
        wrong.answers[AskBlob] = pieces(b"?" + DATA[1:])
        right.answers[AskBlob] = refuse(ErrorCode.NOT_READY)

        def opens_the_right_one() -> None:
            told = wrong.wait_for(NotifyBlobDamaged)
            assert told == NotifyBlobDamaged(OID, content_of(DATA).checksum)
            right.answers[AskBlob] = pieces(DATA)

        assert in_threads(lambda: read(storage), opens_the_right_one) == [DATA, None]


def test_a_content_that_no_node_has_intact_is_an_error_that_names_them(tmp_path: Path) -> None:
    """Specification 26.15."""
    with cluster_with_blob(tmp_path, 1, 2) as (cluster, storage):
        cluster.storages[1].answers[AskBlob] = pieces(DATA[:-1])
        cluster.storages[2].answers[AskBlob] = refuse(ErrorCode.OID_NOT_FOUND)
        with pytest.raises(CorruptedError, match="no storage node has the content") as error:
            storage.loadBlob(OID, TID)
        assert "S1: what was received" in str(error.value) and "S2: " in str(error.value)
        assert os.listdir(tmp_path / "cache" / "downloads") == []


def test_a_node_without_a_folder_is_not_asked(tmp_path: Path) -> None:
    """Specification 26.5."""
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        cluster.storage_features.clear()
        with pytest.raises(CorruptedError, match="has it a blob_dir"):
            storage.loadBlob(OID, TID)
        assert not cluster.storages[1].asked(AskBlob)


def test_an_object_that_is_no_blob_has_no_file(tmp_path: Path) -> None:
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"pickle")
        with pytest.raises(POSKeyError):
            storage.loadBlob(OID, TID)


def test_threads_that_want_the_same_content_download_it_once(tmp_path: Path) -> None:
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        assert in_threads(*[lambda: read(storage)] * 5) == [DATA] * 5
        assert len(cluster.storages[1].asked(AskBlob)) == len(DATA) // PIECE


def test_a_download_that_ends_while_another_thread_looks_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        find = BlobCache.find

        def looks_late(cache: BlobCache, oid: bytes, tid: bytes, size: int) -> str | None:
            found = find(cache, oid, tid, size)
            monkeypatch.setattr(BlobCache, "find", find)
            assert found is None and read(storage) == DATA
            return found

        monkeypatch.setattr(BlobCache, "find", looks_late)
        assert read(storage) == DATA
        assert len(cluster.storages[1].asked(AskBlob)) == len(DATA) // PIECE


def test_a_file_of_another_size_is_fetched_again(tmp_path: Path) -> None:
    with cluster_with_blob(tmp_path, 1) as (_, storage):
        path = Path(storage.loadBlob(OID, TID))
        os.truncate(path, 3)
        assert read(storage) == DATA


# -- writing ---------------------------------------------------------------------------------------


def store(storage: NEOStorage, path: Path, data: bytes = DATA) -> TransactionMetaData:
    file = path / "new"
    file.write_bytes(data)
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.storeBlob(OID, p64(0), b"pickle", str(file), "", transaction)
    assert not file.exists()
    return transaction


def test_a_content_is_sent_before_its_record(tmp_path: Path) -> None:
    """Specification 26.10, 26.12. It is read from the file that the application gave."""
    with cluster_with_blob(tmp_path, 1, 2) as (cluster, storage):
        transaction = store(storage, tmp_path)
        tid = finish(storage, transaction)
        for node in cluster.storages.values():
            sent = [m for m in node.log if isinstance(m, AskStoreBlob | AskStoreObject)]
            assert [type(m) for m in sent] == [AskStoreBlob, AskStoreObject]
            assert sent[0].checksum == content_of(DATA).checksum
            assert sent[1].data == with_content(b"pickle", content_of(DATA))
        assert tid is not None
        assert Path(storage.loadBlob(OID, tid)).read_bytes() == DATA
        assert not any(node.asked(AskBlob) for node in cluster.storages.values())


def test_contents_of_a_transaction_are_sent_behind_one_another(tmp_path: Path) -> None:
    """Specification 26.10, 26.27: a client that waited for each would keep a node from sharing syncs."""
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        node = cluster.storages[1]
        node.answers |= {AskStoreBlob: lambda m: None, AskStoreObject: lambda m: None}
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        for number in range(1, 20):
            file = tmp_path / "new"
            file.write_bytes(DATA)
            storage.storeBlob(p64(number), p64(0), b"pickle", str(file), "", transaction)
        node.wait_for(AskStoreObject, count=19)
        storage.tpc_abort(transaction)


def test_an_abort_leaves_no_file(tmp_path: Path) -> None:
    """Specification 26.13."""
    with cluster_with_blob(tmp_path, 1) as (cluster, storage):
        transaction = store(storage, tmp_path)
        storage.tpc_abort(transaction)
        cluster.storages[1].wait_for(AbortTransaction)
        assert os.listdir(tmp_path / "cache" / "tmp") == []
        assert not list((tmp_path / "cache").glob("*/*.blob"))


def test_nothing_is_sent_if_one_node_keeps_no_contents(tmp_path: Path) -> None:
    """Specification 26.14."""
    with cluster_with_blob(tmp_path, 1, 2) as (cluster, storage):
        del cluster.storage_features[2]
        with pytest.raises(StorageError, match="S2"):
            store_and_vote(storage, tmp_path)
        assert not any(node.asked(AskStoreBlob) for node in cluster.storages.values())


def store_and_vote(storage: NEOStorage, path: Path) -> None:
    transaction = store(storage, path)
    storage.tpc_vote(transaction)


# -- the bound of the folder -----------------------------------------------------------------------


def age(hours: int, *paths: Path) -> None:
    """Let files seem unused for some time."""
    old = time.time() - 3600 * hours
    for path in paths:
        os.utime(path, (old, old))


def commit(storage: NEOStorage, path: Path) -> Path:
    return Path(storage.loadBlob(OID, finish(storage, store(storage, path))))


def evict(storage: NEOStorage) -> None:
    """Evict files of the cache, after an eviction that runs by itself."""
    tidied(storage)
    storage._blobs._eviction.evict()


def test_files_that_were_not_used_for_long_are_removed_first(tmp_path: Path) -> None:
    options = {"blob_cache_size": 3 * len(DATA), "blob_cache_size_check": 100}
    with cluster_with_blob(tmp_path, 1, **options) as (_, storage):
        cache = tmp_path / "cache"
        found = []
        for number in range(4):
            found.append(commit(storage, tmp_path))
            age(10 - number, found[-1])
        recent = commit(storage, tmp_path)
        evict(storage)
        left = sorted(cache.glob("*/*.blob"))
        assert left == sorted([found[3], recent])


def tidied(storage: NEOStorage) -> None:
    """Wait until the cache's thread is done."""
    wait_until(lambda: not storage._blobs._eviction._running, "the cache is not tidied")


def test_files_that_were_just_handed_out_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Eviction, "added", lambda self, size: None)  # else it may come later
    with cluster_with_blob(tmp_path, 1, blob_cache_size=1) as (_, storage):
        path = commit(storage, tmp_path)
        evict(storage)
        assert path.exists()
        age(1, path)
        with open(path, "rb") as file:
            evict(storage)
            assert not path.exists() and file.read() == DATA
        assert read(storage) == DATA


def test_what_crashed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    with cluster_with_blob(tmp_path, 1) as (_, storage):
        commit(storage, tmp_path)
        temporary = tmp_path / "cache" / "downloads"
        for name in ("pending-x", "1.2.part", "of the application"):
            (temporary / name).touch()
        evict(storage)
        assert len(os.listdir(temporary)) == 3
        age(25, *temporary.iterdir())
        evict(storage)
        assert os.listdir(temporary) == ["of the application"]


@pytest.mark.parametrize(("seconds", "renewed"), [(20, False), (40, True), (3600, True)])
def test_a_file_that_is_handed_out_is_spared_for_a_minute(
    tmp_path: Path, seconds: int, renewed: bool
) -> None:
    with cluster_with_blob(tmp_path, 1) as (_, storage):
        path = commit(storage, tmp_path)
        oid, tid = bytes.fromhex(path.name[:16]), bytes.fromhex(path.name[17:33])
        before = float(int(time.time()) - seconds)
        os.utime(path, (before, before))
        assert storage.loadBlob(oid, tid) == str(path)
        assert (os.stat(path).st_mtime != before) == renewed
        assert os.stat(path).st_mtime > time.time() - SPARED_SECONDS + 60
