"""The steps of ``backup`` and ``restore`` on a storage node: twice, undone twice, and undone after any
half (specification 27.3, 27.50 to 27.65)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neo.node.task import Cancelled, Task
from neo.operations.model import Operation, Step
from neo.protocol.ids import p64
from neo.storage.operations.backup import COPY, LOOK, MANIFEST, steps_of_backup
from neo.storage.operations.restore import CHECK, LOAD, steps_of_restore
from neo.storage.operations.worker import InlineWorker
from tests.unit.storage.requests import commit
from tests.unit.storage.world import World

OIDS = range(6)
LAST = 12 + 4 * len(OIDS) - 4


class Broken(Exception):
    """The process dies here."""


class FlakyWorker(InlineWorker):
    """Dies at a call."""

    def __init__(self) -> None:
        self.left = 1_000_000
        self.calls = 0

    def call(self, function: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls > self.left:
            raise Broken
        return super().call(function)


class Node:
    """The steps of a node with two partitions."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.worker = FlakyWorker()
        core, blobs = world.core, world.core.blobs
        where = core.database, core.cluster, core.cells
        self.functions = steps_of_backup(
            *where, core.locks, core.background, blobs.contents, self.worker
        ) | steps_of_restore(*where, core.background, blobs.contents, self.worker)
        self.order = {
            "path": str(path),
            "full": False,
            "tid": p64(LAST).hex(),
            "pack": p64(0).hex(),
            "partitions": 2,
            "readers": [1, 1],
        }
        self.wanted = {"path": str(path), "tid": "", "partitions": 2}
        self.context: dict[tuple[int, int], bytes] = {}

    def operation(self, name: str) -> Operation:
        values = self.wanted if name in (CHECK, LOAD) else self.order
        step = Step(name, (1,), True, True)
        return Operation(7, "x", values, 1, (step,), (), 0.0, 1.0, True)

    def run(self, name: str) -> bytes:
        number = {LOOK: 0, COPY: 1, MANIFEST: 2, CHECK: 0, LOAD: 1}[name]
        task = Task(
            self.functions[name].run(
                self.operation(name), number, self.context, lambda done, text: None
            )
        )
        self.world.wait(lambda: task.done, f"{name} does not end")
        told: bytes = task.result()
        self.context[number, 1] = told
        return told

    def undo(self, name: str) -> None:
        told = {number: data for (number, _), data in self.context.items()}
        operation = self.operation(name)
        undo = self.functions[name].prepare(operation, told)
        task = Task(self.functions[name].undo(operation, undo))
        self.world.wait(lambda: task.done, f"{name} is not undone")
        task.result()

    def half(self, name: str, calls: int) -> bool:
        """Run a step that dies after some calls. Return whether it was over before."""
        self.worker.calls, self.worker.left = 0, calls
        try:
            self.run(name)
        except (Broken, Cancelled):
            return False
        finally:
            self.worker.left = 1_000_000
        return True


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
def node(world: World, path: Path) -> Node:
    master = world.operate()
    client = world.client(master)
    for oid in OIDS:
        commit(master, client, 10 + 4 * oid, 12 + 4 * oid, oid)
    return Node(world, path)


def test_each_step_of_a_backup_may_happen_twice_27_3(node: Node, path: Path) -> None:
    for name in (LOOK, COPY, MANIFEST):
        told = node.run(name)
        before = files(path)
        assert node.run(name) == told and files(path) == before
    assert before


def test_each_step_of_a_backup_may_be_undone_twice_27_3(node: Node, path: Path) -> None:
    node.run(LOOK)
    for name in (COPY, MANIFEST):
        node.undo(name)  # nothing was done
    node.run(COPY)
    node.run(MANIFEST)
    for name in (MANIFEST, MANIFEST, COPY, COPY):
        node.undo(name)
        assert files(path) == {}


def test_a_backup_may_be_undone_after_any_half_and_begun_again_27_3(node: Node, path: Path) -> None:
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


def test_the_undo_of_a_backup_of_nothing_new_keeps_the_copy_27_55(node: Node, path: Path) -> None:
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
def empty(node: Node, tmp_path: Path, path: Path) -> Iterator[Node]:
    """A node with an empty database, and an archive."""
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    world = World(str(tmp_path / "other.sqlite"))
    world.operate()
    yield Node(world, path)
    world.close()


def check_loaded(node: Node) -> None:
    backend = node.world.backend
    found = [backend.load(p64(oid), None, None) for oid in OIDS]
    assert [record.serial for record in found] == [p64(12 + 4 * oid) for oid in OIDS]


def is_empty(node: Node) -> bool:
    return bool(node.world.backend.last_ids([0, 1]) == (None, None))


def test_each_step_of_a_restore_may_happen_twice_27_3(empty: Node) -> None:
    told = empty.run(CHECK)
    assert empty.run(CHECK) == told
    for _ in range(2):
        empty.run(LOAD)
        check_loaded(empty)


def test_a_restore_may_be_undone_twice_and_after_any_half_27_3(empty: Node) -> None:
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
