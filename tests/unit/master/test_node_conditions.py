"""The master asks storage nodes what is wrong with them (specification 17.32)."""

from __future__ import annotations

from neo.master.maintenance.reports import ANSWER_SECONDS, SILENT_SECONDS
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerConditions,
    AnswerDisks,
    AskConditions,
    AskDisks,
    AskNodeConditions,
    AskNodeDisks,
)
from tests.unit.master.cluster import MasterWorld

FULL = ("room", "problem", "3.0 MB are free", "free space")
STUCK = ("copy", "problem", "2 partitions cannot be copied", "mend it")


def test_those_that_announced_it_are_asked_and_those_that_answer_are_told(
    world: MasterWorld,
) -> None:
    storages = world.running(4)
    for storage in storages[:3]:
        assert storage.peer.node is not None
        storage.peer.node.features = frozenset({FEATURE_OURS})
    asked = world.admin().ask(AskNodeConditions())
    storages[0].answer(storages[0].take(AskConditions), AnswerConditions([FULL, STUCK]))
    storages[1].answer(storages[1].take(AskConditions), AnswerConditions([]))
    storages[2].take(AskConditions)
    assert not asked.done
    world.host.advance(ANSWER_SECONDS)
    assert asked.result().row_list[:2] == [(1, FULL), (1, STUCK)]


def test_a_node_that_does_not_answer_is_told_and_waited_for_once(world: MasterWorld) -> None:
    first, second = world.running(2)
    for storage in (first, second):
        assert storage.peer.node is not None
        storage.peer.node.features = frozenset({FEATURE_OURS})
    admin = world.admin()

    def silent() -> list[tuple[str, str]]:
        asked = admin.ask(AskNodeConditions())
        first.answer(first.take(AskConditions), AnswerConditions([]))
        return [(row[1], row[2].partition(";")[0]) for _, row in asked.result().row_list]

    asked = admin.ask(AskNodeConditions())
    first.answer(first.take(AskConditions), AnswerConditions([]))
    question = second.take(AskConditions)
    assert not asked.done
    world.host.advance(ANSWER_SECONDS)
    ((nid, (kind, *_)),) = asked.result().row_list
    assert (nid, kind) == (2, "silent")
    # From now on nobody waits for it, whatever the question.
    assert silent() == [("warning", "has not answered for 3 s")]
    disks = admin.ask(AskNodeDisks())
    first.answer(first.take(AskDisks), AnswerDisks("0.1.0", 7, []))
    assert [row[0] for row in disks.result().row_list] == [1]
    world.host.advance(SILENT_SECONDS)
    assert silent() == [("problem", "has not answered for 13 s")]
    # It answers at last, and is asked again.
    second.answer(question, AnswerConditions([FULL]))
    asked = admin.ask(AskNodeConditions())
    first.answer(first.take(AskConditions), AnswerConditions([]))
    second.answer(second.take(AskConditions), AnswerConditions([FULL]))
    assert asked.result().row_list == [(2, FULL)]


def test_disks_of_those_that_announced_it_are_told(world: MasterWorld) -> None:
    """Specification 17.36."""
    storages = world.running(3)
    for storage in storages[:2]:
        assert storage.peer.node is not None
        storage.peer.node.features = frozenset({FEATURE_OURS})
    asked = world.admin().ask(AskNodeDisks())
    disks = [("database", 5, 10)]
    storages[1].answer(storages[1].take(AskDisks), AnswerDisks("0.1.0", 7, disks))
    world.host.advance(ANSWER_SECONDS)
    assert asked.result().row_list == [(2, "0.1.0", 7, disks)]
