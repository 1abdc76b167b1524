"""The steps of ``backup`` and ``restore`` on a storage node: twice, undone twice, and undone after any
half (specification 27.3, 27.50 to 27.65)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from neo.protocol.ids import p64, u64
from neo.storage.backend.api import Record, Transaction
from neo.storage.operations.backup import COPY, LOOK, MANIFEST
from neo.storage.operations.restore import CHECK, LOAD
from tests.unit.storage.archive_node import ArchiveNode
from tests.unit.storage.requests import commit
from tests.unit.storage.world import UP, World

OIDS = range(6)
LAST = 12 + 4 * len(OIDS) - 4


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    os.mkdir(path)
    return path


@pytest.fixture
def node(world: World, path: Path) -> ArchiveNode:
    master = world.operate()
    client = world.client(master)
    for oid in OIDS:
        commit(master, client, 10 + 4 * oid, 12 + 4 * oid, oid)
    return ArchiveNode(world, path, LAST, 2)


def test_each_step_of_a_backup_may_happen_twice_27_3(node: ArchiveNode, path: Path) -> None:
    for name in (LOOK, COPY, MANIFEST):
        told = node.run(name)
        before = files(path)
        assert node.run(name) == told and files(path) == before
    assert before


def test_each_step_of_a_backup_may_be_undone_twice_27_3(node: ArchiveNode, path: Path) -> None:
    node.run(LOOK)
    for name in (COPY, MANIFEST):
        node.undo(name)  # nothing was done
    node.run(COPY)
    node.run(MANIFEST)
    for name in (MANIFEST, MANIFEST, COPY, COPY):
        node.undo(name)
        assert files(path) == {}


def test_a_backup_may_be_undone_after_any_half_and_begun_again_27_3(
    node: ArchiveNode, path: Path
) -> None:
    node.run(LOOK)
    for calls in range(100):
        whole = node.half(COPY, calls)
        node.undo(COPY)
        assert files(path) == {}, calls
        if whole:
            break
    else:
        raise AssertionError("it does not end")
    assert calls > 5
    for calls in range(5):
        node.half(COPY, calls)
    node.run(COPY)
    node.half(MANIFEST, 0)
    node.run(MANIFEST)
    assert any(name.endswith("manifest.json") or "manifest" in name for name in files(path))


def test_the_undo_of_a_backup_of_nothing_new_keeps_the_copy_27_55(
    node: ArchiveNode, path: Path
) -> None:
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    before = files(path)
    node.context.clear()
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    for name in (MANIFEST, COPY):
        node.undo(name)
    assert files(path) == before


@pytest.fixture
def empty(node: ArchiveNode, tmp_path: Path, path: Path) -> Iterator[ArchiveNode]:
    """A node with an empty database, and an archive."""
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    world = World(str(tmp_path / "other.sqlite"))
    world.operate()
    yield ArchiveNode(world, path, LAST, 2)
    world.close()


def check_loaded(node: ArchiveNode) -> None:
    backend = node.world.backend
    found = [backend.reads.load(p64(oid), None, None) for oid in OIDS]
    assert [record.serial for record in found] == [p64(12 + 4 * oid) for oid in OIDS]


def is_empty(node: ArchiveNode) -> bool:
    return bool(node.world.backend.reads.last_ids([0, 1]) == (None, None))


def test_each_step_of_a_restore_may_happen_twice_27_3(empty: ArchiveNode) -> None:
    told = empty.run(CHECK)
    assert empty.run(CHECK) == told
    for _ in range(2):
        empty.run(LOAD)
        check_loaded(empty)


def test_a_restore_may_be_undone_twice_and_after_any_half_27_3(empty: ArchiveNode) -> None:
    empty.run(CHECK)
    empty.undo(LOAD)  # nothing was done
    for calls in range(100):
        whole = empty.half(LOAD, calls)
        for _ in range(2):
            empty.undo(LOAD)
            assert is_empty(empty), calls
        if whole:
            break
    else:
        raise AssertionError("it does not end")
    assert calls > 3
    empty.half(LOAD, calls - 1)
    empty.run(LOAD)
    check_loaded(empty)


@pytest.mark.parametrize("length", [1, 2, 100])
@pytest.mark.parametrize("partitions", [2, 3])
def test_what_a_pack_removed_between_two_copies_is_not_restored_28_21(
    node: ArchiveNode,
    tmp_path: Path,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    length: int,
) -> None:
    """A deletion that was packed away is in no copy. Also into another number of partitions.
    ``length``: of blocks and of steps."""
    monkeypatch.setattr("neo.storage.operations.backup.LENGTH", length)
    monkeypatch.setattr("neo.storage.operations.restore.LENGTH", length)
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    replication, last = node.world.backend.replication, LAST + 8
    deleted = [0, 2, 5]  # the first of a partition, the next, the last
    replication.delete_objects([(p64(12 + 4 * oid), p64(oid)) for oid in deleted])
    replication.add_object(p64(1), Record(p64(LAST + 4), None, 0, sha1(b"new").digest(), b"new", None))
    replication.add_transaction(Transaction(p64(last), b"", b"", b"", False, [], p64(last - 1)))
    node.context.clear()
    node.order |= {"tid": p64(last).hex(), "pack": p64(LAST + 4).hex()}
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    world = World(str(tmp_path / "other.sqlite"))
    world.operate([[(1, UP)]] * partitions)
    restored = ArchiveNode(world, path, last, partitions)
    restored.run(CHECK)
    restored.run(LOAD)
    found = {oid: [u64(tid) for tid, _ in world.backend.reads.history(p64(oid), 0, 9)] for oid in OIDS}
    assert found == {0: [], 1: [LAST + 4, 16], 2: [], 3: [24], 4: [28], 5: []}
    world.close()


def test_a_copy_names_what_is_left_only_after_a_pack_28_21(node: ArchiveNode, path: Path) -> None:
    """Else an increment would cost as much as the database has objects."""
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    last = LAST + 4
    row = Transaction(p64(last), b"", b"", b"", False, [], p64(last - 1))
    node.world.backend.replication.add_transaction(row)
    sizes = []
    for pack in (LAST, LAST + 1):
        node.context.clear()
        node.order |= {"tid": p64(last).hex(), "pack": p64(pack).hex()}
        node.run(LOOK)
        node.run(COPY)
        sizes.append(sum(file.stat().st_size for file in (path / p64(last).hex()).glob("*.rows")))
        node.undo(COPY)
    assert sizes[0] + 20 * len(OIDS) <= sizes[1] <= sizes[0] + 40 * len(OIDS)
