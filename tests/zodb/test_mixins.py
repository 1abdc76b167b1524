"""ZODB's own suites for storages, whole, on every backend, with one storage node, with three and a
replica, and with four and two replicas.

The tests come unchanged from ``ZODB.tests``; this module only opens storages. With three nodes on SQLite
they go through HexStorage, a wrapper that transforms every record. ``NEO_ZODB_WHOLE=1`` runs them in
every combination, also without a replica. Else the races, which are many threads of one client that wait
for the interpreter, run with one node and with three.

Suites of conflicts, undo, packs, threads and recovery run once more on a cluster with a synchronous
backup; with ``NEO_ZODB_SYNC=1`` every cluster has one.
"""

from __future__ import annotations

import os
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
import ZODB
from ZODB.tests import (
    BasicStorage,
    ConflictResolution,
    HistoryStorage,
    IteratorStorage,
    MTStorage,
    PackableStorage,
    PersistentStorage,
    ReadOnlyStorage,
    RecoveryStorage,
    RevisionStorage,
    Synchronization,
    TransactionalUndoStorage,
    testMVCCMappingStorage,
    testZODB,
)
from ZODB.tests.hexstorage import HexStorage
from ZODB.tests.StorageTestBase import StorageTestBase

from tests.zodb.conftest import SYNC, GetFleet

WHOLE = bool(os.environ.get("NEO_ZODB_WHOLE"))
#: Longer than a thread waits for the interpreter if 64 others want it and the machine does other things.
WAIT_SECONDS = 120


class Opening(StorageTestBase):
    """Opens a storage. Subclasses below set ``backend``, ``storages``, ``replicas``, ``sync`` and
    ``wrap``."""

    backend: str
    storages: int
    replicas: int
    sync: bool
    wrap = staticmethod(lambda storage: storage)
    use_extension_bytes = True

    @pytest.fixture(autouse=True)
    def _fleet(self, fleets: GetFleet) -> None:
        # Before setUp(), which changes the directory for temporary files.
        self.cluster = fleets(self.storages, self.backend, 0, self.replicas, self.sync)

    def setUp(self) -> None:
        super().setUp()
        self.cluster.start()
        self.open()

    def open(self, **options: Any) -> None:
        self._storage = self.wrap(self.cluster.storage(wait_timeout=WAIT_SECONDS, **options))

    def _new_storage_client(self) -> Any:
        return self.wrap(self.cluster.storage(wait_timeout=WAIT_SECONDS))


class StorageMixins(
    Opening,
    BasicStorage.BasicStorage,
    RevisionStorage.RevisionStorage,
    HistoryStorage.HistoryStorage,
    Synchronization.SynchronizedStorage,
    ConflictResolution.ConflictResolvingStorage,
    ConflictResolution.ConflictResolvingTransUndoStorage,
    PersistentStorage.PersistentStorage,
    ReadOnlyStorage.ReadOnlyStorage,
    MTStorage.MTStorage,
    IteratorStorage.IteratorStorage,
    IteratorStorage.ExtendedIteratorStorage,
    TransactionalUndoStorage.TransactionalUndoStorage,
    PackableStorage.PackableStorageWithOptionalGC,
    PackableStorage.PackableUndoStorage,
    testMVCCMappingStorage.MVCCTests,
):
    __test__ = False


class SyncMixins(
    Opening,
    ConflictResolution.ConflictResolvingStorage,
    ConflictResolution.ConflictResolvingTransUndoStorage,
    MTStorage.MTStorage,
    TransactionalUndoStorage.TransactionalUndoStorage,
    PackableStorage.PackableUndoStorage,
):
    """What is most likely to go wrong with a synchronous backup, which takes three seconds to start."""

    __test__ = False


class RecoveryMixin(Opening, RecoveryStorage.RecoveryStorage):
    __test__ = False

    @pytest.fixture(autouse=True)
    def _other_fleet(self, fleets: GetFleet) -> None:
        self.other_cluster = fleets(self.storages, self.backend, 1, self.replicas, self.sync)

    def setUp(self) -> None:
        super().setUp()
        self.other_cluster.start()
        self._dst = self.wrap(self.other_cluster.storage())

    def tearDown(self) -> None:
        self._dst.close()
        super().tearDown()


class ZODBMixin(Opening, testZODB.ZODBTests):
    __test__ = False

    def setUp(self) -> None:
        Opening.setUp(self)
        self._db = ZODB.DB(self._storage)


def _tests(base: type) -> dict[str, Any]:
    """Return the tests of a suite under names that pytest collects: before ZODB 6 they began with
    ``check``, which now is the prefix of a helper."""
    found = {name: getattr(base, name) for name in dir(base) if name.startswith("test")}
    if not found:
        names = [name for name in dir(base) if name.startswith("check")]
        found = {f"test{name.removeprefix('check')}": getattr(base, name) for name in names}
    assert found, f"{base.__name__} has no tests"
    return found


def _shapes(backend: str) -> Iterator[tuple[int, int, bool]]:
    """Combinations of storage nodes, replicas, and HexStorage."""
    if WHOLE:
        for hexed in (False, True):
            yield from ((1, 0, hexed), (3, 0, hexed), (3, 1, hexed), (4, 2, hexed))
    elif backend == "sqlite":
        # The wrapper is above the client, to which the number of nodes makes no difference.
        yield from ((1, 0, False), (3, 1, True), (4, 2, False))
    else:
        yield from ((1, 0, False), (3, 1, False))


def _class(
    base: type, name: str, backend: str, storages: int, replicas: int, sync: bool, hexed: bool = False
) -> type[unittest.TestCase]:
    attributes: dict[str, Any] = {
        **_tests(base),
        "__test__": True,
        "__module__": __name__,
        "backend": backend,
        "storages": storages,
        "replicas": replicas,
        "sync": sync,
    }
    if hexed:
        attributes["wrap"] = staticmethod(HexStorage)
    if not WHOLE and (backend, storages) not in (("sqlite", 1), ("mariadb", 3)):
        attributes.update((test, None) for test in attributes if test.startswith("test_race"))
    return type(name, (base,), attributes)


def _classes() -> dict[str, type[unittest.TestCase]]:
    classes: dict[str, type[unittest.TestCase]] = {}
    for backend in ("sqlite", "mariadb"):
        for storages, replicas, hexed in _shapes(backend):
            for base in (StorageMixins, RecoveryMixin, ZODBMixin):
                name = f"{base.__name__}_{backend}_{storages}"
                name += f"{('', '_replica', '_replicas')[replicas]}{'_hex' if hexed else ''}"
                classes[name] = _class(base, name, backend, storages, replicas, SYNC, hexed)
    if not SYNC:
        for base in (SyncMixins, RecoveryMixin):
            name = f"{base.__name__}_sync_backup"
            classes[name] = _class(base, name, "sqlite", 3, 1, True)
    return classes


globals().update(_classes())
