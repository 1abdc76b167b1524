"""ZODB's own suite for storages of blobs, whole: on SQLite with one storage node, through a wrapper that
transforms every record, and on MariaDB with three and a replica (specification 26). ``NEO_WHOLE=1`` runs
it on every shape of a cluster, and embedded.

The tests come unchanged from ``ZODB.tests.testblob``; this module only opens storages.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from ZODB.tests.hexstorage import HexStorage
from ZODB.tests.testblob import storage_reusable_suite
from ZODB.tests.util import MonotonicallyIncreasingTimeMinimalTestLayer

from neo.client import NEOStorage
from tests.support.privileges import bound_by_permissions
from tests.support.whole import few
from tests.zodb.conftest import GetFleet
from tests.zodb.fleet import Fleet

#: A test opens so many at most.
STORAGES = 2
#: (backend, storage nodes, replicas, whether records are transformed)
SHAPES = few(
    ("sqlite", 1, 0, True),
    ("mariadb", 3, 1, False),
    whole=[
        ("embedded", 1, 0, False),
        *(("sqlite", 1, 0, False), ("sqlite", 3, 0, False), ("sqlite", 3, 1, False)),
        *(("mariadb", 1, 0, False), ("mariadb", 3, 0, False), ("mariadb", 3, 1, False)),
        *(("sqlite", 1, 0, True), ("sqlite", 3, 1, True)),
    ],
)


class Opener:
    """Opens the storages of one test: the first one in an empty cluster, others in clusters of their
    own. The suite closes most of them."""

    def __init__(self) -> None:
        self.fleets: GetFleet
        self.shape = SHAPES[0]
        self._clusters: dict[str, Fleet] = {}
        self._opened: list[NEOStorage] = []

    def cluster(self, name: str) -> Fleet:
        """Return the cluster of a storage."""
        backend, storages, replicas, _ = self.shape
        if name not in self._clusters:
            cluster = self.fleets(storages, backend, len(self._clusters), replicas)
            cluster.start()
            self._clusters[name] = cluster
        return self._clusters[name]

    def __call__(self, name: str, blob_dir: str) -> Any:
        storage = self.cluster(name).storage(blob_dir=blob_dir)
        self._opened.append(storage)
        return HexStorage(storage) if self.shape[3] else storage

    def close(self) -> None:
        for storage in self._opened:
            storage.close()
        self._opened.clear()
        self._clusters.clear()


opener = Opener()
SUITE = storage_reusable_suite("NEO", opener, True, True, True)


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests(test)
        else:
            assert isinstance(test, unittest.TestCase), test
            yield test


TESTS = {test.id().rpartition("/")[2].removeprefix("ZODB.tests."): test for test in _tests(SUITE)}


def test_the_suite_is_whole() -> None:
    assert len(TESTS) == SUITE.countTestCases() >= 20


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_blobs(
    name: str,
    shape: tuple[str, int, int, bool],
    fleets: GetFleet,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ZODB's test with this name."""
    opener.fleets, opener.shape = fleets, shape
    # Before the test, which may break functions of the system, and moves the place of temporary files.
    for number in range(STORAGES):
        fleets(shape[1], shape[0], number, shape[2])
    layer = MonotonicallyIncreasingTimeMinimalTestLayer("NEO")
    monkeypatch.chdir(tmp_path)
    result = unittest.TestResult()
    layer.setUp()
    layer.testSetUp()
    try:
        with bound_by_permissions():
            TESTS[name].run(result)
    finally:
        layer.testTearDown()
        layer.tearDown()
        opener.close()
    wrong = [text for _, text in (*result.errors, *result.failures)]
    assert not wrong, "\n".join(wrong)
    assert result.testsRun == 1 and not result.skipped
