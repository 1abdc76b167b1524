"""Garbage of applications is found and deleted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import maxtid, p64, z64

from neo.client import NEOStorage
from neo.client.maintenance import pack
from tests.zodb.conftest import on_one_backend
from tests.zodb.fleet import Fleet
from tests.zodb.transactions import commit


def test_garbage_is_collected_and_everything_else_stays(storage: NEOStorage) -> None:
    """Specification 12.13, 12.16."""
    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    root["kept"] = kept = PersistentMapping()
    kept["deep"] = deep = PersistentMapping()
    root["lost"] = lost = PersistentMapping()
    lost["deep"] = deep_lost = PersistentMapping()
    deep_lost["cycle"] = lost
    transaction.commit()
    del root["lost"]
    transaction.commit()
    db.pack()
    for obj in (kept, deep):
        storage.load(obj._p_oid)
    for obj in (lost, deep_lost):
        with pytest.raises(POSKeyError):
            storage.load(obj._p_oid)
        with pytest.raises(POSKeyError):
            storage.loadBefore(obj._p_oid, maxtid)
    connection.close()
    db.close()


def test_garbage_with_later_history_is_deleted_but_can_be_brought_back(
    storage: NEOStorage,
) -> None:
    """Specification 12.16."""
    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    root["lost"] = lost = PersistentMapping()
    transaction.commit()
    unlinked = root._p_serial
    del root["lost"]
    transaction.commit()
    pack_time = time.time()
    root["later"] = 1
    transaction.commit()
    later = root._p_serial
    db.pack(pack_time)
    with pytest.raises(POSKeyError):
        storage.load(lost._p_oid)
    # The history after the pack time still exists, and undo works.
    assert storage.loadSerial(z64, later)
    assert storage.loadSerial(lost._p_oid, unlinked)
    deletion = db.undoLog(0, 1)[0]
    assert deletion["description"] == "garbage collection"
    db.undo(deletion["id"])
    transaction.commit()
    storage.load(lost._p_oid)
    connection.close()
    db.close()


@on_one_backend
def test_garbage_is_not_what_later_transactions_refer_to(storage: NEOStorage) -> None:
    """Specification 12.13."""
    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    root["a"] = a = PersistentMapping()
    a["b"] = b = PersistentMapping()
    transaction.commit()
    del root["a"]
    transaction.commit()
    pack_time = time.time()
    root["again"] = a
    transaction.commit()
    db.pack(pack_time)
    storage.load(a._p_oid)
    storage.load(b._p_oid)
    connection.close()
    db.close()


def test_many_later_transactions_are_read_in_pages(
    storage: NEOStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for each transaction and each object is slower than their writers."""
    monkeypatch.setattr(pack, "LATER_PAGED", 40)  # several pages, the last one shorter
    monkeypatch.setattr(pack, "LATER_TOGETHER", 0)

    def one_by_one(*_: object) -> None:
        raise AssertionError("transactions are read one by one")

    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    for name in ("lost", "found", "deep"):
        root[name] = PersistentMapping()
    lost, found = root["lost"], root["found"]
    found["deep"] = deep = root.pop("deep")
    root["busy"] = PersistentMapping()
    transaction.commit()
    del root["lost"], root["found"]
    transaction.commit()
    pack_time = time.time()
    for number in range(100):
        root["busy"]["number"] = number
        if number == 50:
            root["busy"]["found"] = found
        transaction.commit()
    del root["busy"]["found"]
    transaction.commit()
    monkeypatch.setattr(pack, "transaction_information", one_by_one)
    db.pack(pack_time)
    with pytest.raises(POSKeyError):
        storage.load(lost._p_oid)
    for obj in (found, deep):
        storage.load(obj._p_oid)
    connection.close()
    db.close()


@on_one_backend
def test_an_object_linked_again_before_garbage_is_deleted_is_never_missing(
    cluster: Fleet, storage: NEOStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    root["a"] = a = PersistentMapping()
    transaction.commit()
    del root["a"]
    transaction.commit()
    delete = storage.deleteObject

    def link_first(oid: bytes, serial: bytes, t: object) -> None:
        # A concurrent application that has the object in memory.
        other = ZODB.DB(cluster.storage())
        with other.transaction() as c:
            c.root()["a"] = c.get(a._p_oid)
        other.close()
        delete(oid, serial, t)

    monkeypatch.setattr(storage, "deleteObject", link_first)
    db.pack()
    # The object was never missing.
    serials = [entry["tid"] for entry in storage.history(a._p_oid, 10)]
    assert serials == [a._p_serial]
    storage.load(a._p_oid)
    connection.close()
    db.close()


@on_one_backend
def test_an_object_linked_again_while_garbage_is_deleted_is_brought_back(
    cluster: Fleet, storage: NEOStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 12.15."""
    db = ZODB.DB(storage)
    connection = db.open()
    root = connection.root()
    root["a"] = a = PersistentMapping()
    transaction.commit()
    del root["a"]
    transaction.commit()
    finish = storage.tpc_finish

    def link_first(t: object, func: Callable[[bytes], object]) -> bytes:
        monkeypatch.setattr(storage, "tpc_finish", finish)
        other = ZODB.DB(cluster.storage())
        with other.transaction() as c:
            c.root()["a"] = c.get(a._p_oid)
        other.close()
        return finish(t, func)

    monkeypatch.setattr(storage, "tpc_finish", link_first)
    db.pack()
    assert len(storage.history(a._p_oid, 10)) > 1
    storage.load(a._p_oid)
    connection.close()
    db.close()


@on_one_backend
def test_without_a_root_nothing_is_garbage(storage: NEOStorage) -> None:
    commit(storage, (p64(5), None, b"data"))
    storage.pack(time.time() + 10, referencesf)
    assert storage.load(p64(5))[0] == b"data"
