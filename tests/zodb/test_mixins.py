"""ZODB's own suites for storages, on both backends.

The tests come unchanged from ``ZODB.tests``; this module only opens storages. The gate runs them whole on
SQLite with three storage nodes and a replica, and on MariaDB with one node. Through HexStorage, a wrapper
that transforms every record, on four nodes with two replicas, and on three nodes with MariaDB it runs the
suites of recovery and of ZODB; with a synchronous backup, those of recovery and of conflicts.
``NEO_WHOLE=1`` runs every suite on every shape, and suites of conflicts, undo, packs and threads with a
synchronous backup; with ``NEO_ZODB_SYNC=1`` every cluster has one.

Embedded databases take the place of clusters once. The races, which are many threads of one client that
wait for the interpreter, run in the gate with one node of a cluster.
"""

from __future__ import annotations

import unittest
from typing import Any, NamedTuple

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

from tests.support.whole import WHOLE, few
from tests.zodb.conftest import SYNC, GetFleet

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


class ConflictMixins(
    Opening,
    ConflictResolution.ConflictResolvingStorage,
    ConflictResolution.ConflictResolvingTransUndoStorage,
):
    __test__ = False
    # The suite of undos has this helper of the suite of conflicts.
    _begin_undos_vote = TransactionalUndoStorage.TransactionalUndoStorage._begin_undos_vote


class SyncMixins(
    ConflictMixins,
    MTStorage.MTStorage,
    TransactionalUndoStorage.TransactionalUndoStorage,
    PackableStorage.PackableUndoStorage,
):
    """What is most likely to go wrong with a synchronous backup."""

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


class Shape(NamedTuple):
    """A cluster. ``hexed``: its clients go through HexStorage. ``whole``: the gate runs every suite."""

    backend: str
    storages: int
    replicas: int = 0
    hexed: bool = False
    whole: bool = False
    sync: bool = SYNC

    @property
    def name(self) -> str:
        replicas = ("", "_replica", "_replicas")[self.replicas]
        return f"{self.backend}_{self.storages}{replicas}{'_hex' if self.hexed else ''}"


SHAPES = few(
    Shape("sqlite", 3, 1, whole=True),
    Shape("sqlite", 3, 1, hexed=True),
    Shape("sqlite", 4, 2),
    Shape("mariadb", 1, whole=True),
    Shape("embedded", 1, whole=True, sync=False),
    Shape("mariadb", 3, 1),
    whole=[
        *(Shape("embedded", 1, 0, hexed, whole=True, sync=False) for hexed in (False, True)),
        *(
            Shape(backend, storages, replicas, hexed, whole=True)
            for backend in ("sqlite", "mariadb")
            for hexed in (False, True)
            for storages, replicas in ((1, 0), (3, 0), (3, 1), (4, 2))
        ),
    ],
)
#: The suites with a synchronous backup, which takes three seconds to start.
SYNC_SUITES: list[type[Opening]] = few(
    ConflictMixins, RecoveryMixin, whole=(SyncMixins, RecoveryMixin)
)


def _class(base: type[Opening], name: str, shape: Shape) -> type[unittest.TestCase]:
    attributes: dict[str, Any] = {
        **_tests(base),
        "__test__": True,
        "__module__": __name__,
        "backend": shape.backend,
        "storages": shape.storages,
        "replicas": shape.replicas,
        "sync": shape.sync,
    }
    if shape.hexed:
        attributes["wrap"] = staticmethod(HexStorage)
    if not WHOLE and (shape.storages > 1 or shape.backend == "embedded"):
        attributes.update((test, None) for test in attributes if test.startswith("test_race"))
    return type(name, (base,), attributes)


def _classes() -> dict[str, type[unittest.TestCase]]:
    classes: dict[str, type[unittest.TestCase]] = {}
    for shape in SHAPES:
        bases = (StorageMixins, RecoveryMixin, ZODBMixin)
        for base in bases if shape.whole else bases[1:]:
            name = f"{base.__name__}_{shape.name}"
            classes[name] = _class(base, name, shape)
    if not SYNC:
        for base in SYNC_SUITES:
            name = f"{base.__name__}_sync_backup"
            classes[name] = _class(base, name, Shape("sqlite", 3, 1, sync=True))
    return classes


globals().update(_classes())
