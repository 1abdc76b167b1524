"""Cells that a node's disk would not hold are not moved to it (specification 27.79)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.maintenance.reports import ANSWER_SECONDS
from neo.node.task import Future
from neo.protocol.packets import (
    AnswerBeginOperation,
    AnswerDisks,
    AskBeginOperation,
    NotifyOperation,
)
from tests.support.remote import error_of
from tests.unit.master.moves_world import World

GB = 10**9
#: S1 and S2 have two of four partitions each; S3 is new.
REPLACE = "replace", {"old": 1, "new": 3}
ADD = "add", {"nodes": [3]}


def keeps(size: int, free: int = 90 * GB) -> AnswerDisks:
    disks = [("database", free, 100 * GB), ("contents of blobs", 2**40, 2**41)]
    return AnswerDisks("0.1.0", size, disks)


def begin(world: World, kind: tuple[str, dict[str, Any]], dry_run: bool, **more: Any) -> Future[Any]:
    name, arguments = kind
    return world.admin().ask(AskBeginOperation(name, {**arguments, **more}, dry_run))


@pytest.mark.parametrize(
    ("kind", "needed", "free"),
    [(REPLACE, "40.0", 44 * GB), (ADD, "20.0", 24 * GB)],
    ids=["replace", "add"],
)
def test_a_disk_that_would_be_full_is_refused_unless_forced(
    kind: tuple[str, dict[str, Any]], needed: str, free: int
) -> None:
    """A twentieth of the disk has to be left, which is one gigabyte too much here."""
    world = World()
    told = {1: keeps(40 * GB), 2: keeps(40 * GB), 3: keeps(0, free)}
    for dry_run in (True, False):
        asked = begin(world, kind, dry_run)
        world.tell_disks(told)
        assert error_of(asked).message == (
            f"S3 would get about {needed} GB, and {free / GB:.1f} GB of 100.0 GB are free on the disk"
            " of its database: free space, name other nodes, or, if you know better: --force"
        )
    assert not world.fresh[0].has(NotifyOperation)
    forced = begin(world, kind, False, force=True)
    assert isinstance(forced.result(), AnswerBeginOperation)
    assert world.fresh[0].has(NotifyOperation)


def test_a_disk_with_room_gets_the_cells() -> None:
    world = World()
    asked = begin(world, REPLACE, False)
    world.tell_disks({1: keeps(40 * GB), 2: keeps(40 * GB), 3: keeps(0, 45 * GB)})
    assert isinstance(asked.result(), AnswerBeginOperation)
    assert world.fresh[0].has(NotifyOperation)


def test_nodes_that_do_not_answer_are_not_waited_for() -> None:
    world = World()
    asked = begin(world, REPLACE, False)
    assert not asked.done
    world.host.advance(ANSWER_SECONDS)
    assert isinstance(asked.result(), AnswerBeginOperation)
