"""A backup for which a disk has no room is refused before it begins (specification 27.56)."""

from __future__ import annotations

from typing import Any

from neo.master.operations.room import ANSWER_SECONDS
from neo.node.task import Future
from neo.operations.model import decode
from neo.protocol.enums import CellState
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerBeginOperation,
    AnswerRoom,
    AskBeginOperation,
    AskRoom,
    NotifyOperation,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, tid

GB = 10**9


class World(MasterWorld):
    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self) -> None:
        super().__init__()
        self.storages = self.running(3)
        self.master.cluster.last_tid = tid(50)

    def backup(self, dry_run: bool = False) -> Future[Any]:
        values = {"path": "/archive", "full": True}
        return self.admin().ask(AskBeginOperation("backup", values, dry_run))

    def tell(self, *answers: tuple[int, int | None, str]) -> None:
        for storage, (needed, free, disk) in zip(self.storages, answers, strict=False):
            asked = storage.take(AskRoom)
            assert (asked.path, asked.full, asked.tid) == ("/archive", True, tid(50))
            storage.answer(asked, AnswerRoom(needed, free, disk))

    def begun(self) -> list[bool]:
        return [storage.has(NotifyOperation) for storage in self.storages]


def test_nodes_that_share_a_disk_need_room_for_all_their_parts() -> None:
    world = World()
    for dry_run in (True, False):
        asked = world.backup(dry_run)
        world.tell((2 * GB, 3 * GB, "shared"), (GB, 3 * GB, "other"), (2 * GB, 3 * GB, "shared"))
        assert error_of(asked).message == (
            "the backup needs about 4.0 GB on the disk of /archive of S1, S3, and 3.0 GB are free:"
            " remove old copies, or choose another folder"
        )
    assert world.begun() == [False] * 3


def test_disks_that_are_large_enough_or_unknown_are_no_obstacle() -> None:
    world = World()
    for dry_run in (True, False):
        asked = world.backup(dry_run)
        world.tell((2 * GB, 3 * GB, "one"), (2 * GB, 3 * GB, "other"), (0, None, ""))
        assert isinstance(asked.result(), AnswerBeginOperation)
    assert world.begun() == [True] * 3


def test_a_node_that_does_not_answer_in_time_is_not_waited_for() -> None:
    """Its disk hangs, which the first step says."""
    world = World()
    asked = world.backup()
    world.tell((GB, 3 * GB, "one"))
    assert not asked.done and world.begun() == [False] * 3
    world.host.advance(ANSWER_SECONDS)
    assert isinstance(asked.result(), AnswerBeginOperation)
    assert world.begun() == [True] * 3


def test_a_cell_that_is_given_up_when_its_successor_is_copied_is_not_read() -> None:
    """Specification 27.53: it may be gone before the copy begins."""
    world = World()
    rows = world.master.cluster.partitions.rows
    for row in rows:
        row.clear()
        row.update({1: CellState.FEEDING, 2: CellState.UP_TO_DATE, 3: CellState.OUT_OF_DATE})
    rows[0].pop(2)  # no other can be read
    asked = world.backup()
    world.tell((GB, None, ""), (GB, None, ""))
    assert isinstance(asked.result(), AnswerBeginOperation)
    operation = decode(world.storages[1].take(NotifyOperation).operation)
    assert operation.arguments["readers"] == [1, *[2] * (len(rows) - 1)]
