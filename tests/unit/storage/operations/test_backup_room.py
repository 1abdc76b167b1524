"""What a storage node tells of the room for its part of a backup (specification 27.56)."""

from __future__ import annotations

from pathlib import Path

from neo.node.task import Task
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerRoom, AskRoom
from neo.storage.operations.backup import COPY, LOOK, MANIFEST
from neo.storage.operations.room import Room
from tests.unit.storage.archive_node import ArchiveNode
from tests.unit.storage.requests import commit
from tests.unit.storage.world import World

#: The last transaction of the first copy, and the last one.
FIRST, LAST = 32, 42


def measured(node: ArchiveNode, path: Path, full: bool, *partitions: int) -> AnswerRoom:
    core = node.world.core
    blobs = core.blobs.contents
    room = Room(core.database, core.cluster, core.cells, blobs, node.worker)
    return Task(room.measure(AskRoom(str(path), full, p64(LAST), [*partitions]))).result()


def test_a_copy_takes_what_the_partitions_take_and_the_next_one_what_is_new(
    world: World, tmp_path: Path
) -> None:
    """Eight transactions were copied, two are new."""
    master = world.operate()
    client = world.client(master)
    node = ArchiveNode(world, tmp_path, last=FIRST, partitions=2)
    node.worker.free = 7
    for number in range(4):
        for partition in range(2):
            tid = 12 + 6 * number + partition
            commit(master, client, tid - 2, tid, 2 * number + partition)
    size = world.backend.size()
    assert measured(node, tmp_path, False, 0, 1) == AnswerRoom(size, 7, "a disk")
    assert measured(node, tmp_path, False, 1).needed == size // 2
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    assert measured(node, tmp_path, False, 0, 1).needed == 0
    for partition in range(2):
        commit(master, client, 38 + partition, 40 + partition, 20 + partition)
    size = world.backend.size()
    assert measured(node, tmp_path, False, 0, 1).needed == size // 5
    assert measured(node, tmp_path, True, 0, 1).needed == size
