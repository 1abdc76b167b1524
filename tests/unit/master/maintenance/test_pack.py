"""Packs reach all replicas (neo.master.maintenance.pack)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.packets import FEATURE_OURS, FEATURES, AnswerPack, AskPack, Error, NotifyPack
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, spread, tid

#: What the master of a backup tells besides.
BACKUP: dict[str, Any] = {"backup": b"bak", FEATURES: [FEATURE_OURS]}


def served() -> tuple[MasterWorld, list[Remote]]:
    world = MasterWorld(replicas=1)
    world.storages = world.running(2)
    world.master.cluster.last_tid = tid(50)
    return world, [*world.storages]


def back(world: MasterWorld, nid: int, **extra: Any) -> Remote:
    """Lose a storage node, and let it join again."""
    if not world.storages[nid - 1].closed:
        world.storages[nid - 1].lose()
    extra = {FEATURES: [FEATURE_OURS], **extra}
    storage = world.join(NodeType.STORAGE, nid, 9100 + nid, **extra)
    world.make_ready(storage)
    world.storages[nid - 1] = storage
    return storage


def test_all_storages_pack_and_then_it_is_answered() -> None:
    """Specification 12.4."""
    world, storages = served()
    answer = world.client().ask(AskPack(tid(7)))
    for storage in storages:
        assert not answer.done
        question = storage.take(AskPack)
        assert question.tid == tid(7)
        storage.answer(question, AnswerPack(True))
    assert answer.result() == AnswerPack(True)


def test_one_at_a_time() -> None:
    """Specification 12.4."""
    world, _ = served()
    client = world.client()
    client.ask(AskPack(tid(7)))
    assert client.ask(AskPack(tid(8))).result() == AnswerPack(False)


def test_what_is_not_committed_yet_is_not_packed() -> None:
    """A transaction that unlocks on one node before its pack and on another after it would differ
    (specification 12.4)."""
    world, (storage, _) = served()
    world.client().ask(AskPack(tid(70)))
    assert storage.take(AskPack).tid == tid(50)


def test_a_refusal_is_passed_on() -> None:
    """Specification 12.4."""
    world, (first, second) = served()
    answer = world.client().ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    second.answer(second.take(AskPack), Error(ErrorCode.NOT_READY.value, "it stops"))
    assert error_of(answer).message == "pack is not complete: NOT_READY: it stops"


@pytest.mark.parametrize("during", [False, True], ids=["it was away", "lost during the pack"])
def test_a_node_that_was_away_is_asked_when_it_is_back(during: bool) -> None:
    """Specification 12.4, 12.9."""
    world, (first, second) = served()
    if not during:
        second.lose()
    answer = world.client().ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    if during:
        second.lose()
    assert answer.result() == AnswerPack(True)
    assert back(world, 2).take(AskPack).tid == tid(7)
    assert not back(world, 2, pack_tid=7).has(AskPack), "it knows"


def test_nodes_that_know_less_than_one_that_is_back_are_asked() -> None:
    """The master that started the pack is lost."""
    world = MasterWorld(replicas=2)
    world.storages = world.running(3)
    world.master.cluster.last_tid = tid(50)
    first = back(world, 1)
    second = back(world, 2, pack_tid=9)
    assert first.take(AskPack).tid == tid(9)
    assert not second.has(AskPack)


def test_backups_are_told_of_packs_at_once_and_when_they_join() -> None:
    """Specification 12.12."""
    world, _ = served()
    first, client = world.client(**BACKUP), world.client()
    client.ask(AskPack(tid(5)))
    assert first.take(NotifyPack).tid == tid(5) == world.client(**BACKUP).take(NotifyPack).tid
    assert not client.has(NotifyPack)


def test_a_master_tells_backups_of_packs_before_its_time() -> None:
    """Storage nodes remember packs."""
    world, _ = served()
    backup = world.client(**BACKUP)
    assert not backup.has(NotifyPack)
    back(world, 1, pack_tid=9)
    assert backup.take(NotifyPack).tid == tid(9)
    back(world, 1, pack_tid=9)
    assert not backup.has(NotifyPack), "once is enough"


def test_a_backup_that_was_away_hears_of_a_pack_when_its_nodes_and_master_are_gone() -> None:
    """Specification 12.5, 12.9, 12.12: a node that replaces another one is asked, too, remembers the
    pack, and tells the next master."""
    world, (first, second) = served()
    second.lose()
    world.client().ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    assert back(world, 2).take(AskPack).tid == tid(7)
    again = MasterWorld()
    again.extra = {"pack_tid": 7}
    storage = again.storage(2, 7, spread(2), nid=2)
    again.verify(storage, ltid=tid(50))
    assert again.client(**BACKUP).take(NotifyPack).tid == tid(7)


def test_a_pack_of_another_database_is_not_believed() -> None:
    """Specification 12.9."""
    world, _ = served()
    extra: dict[str, Any] = {FEATURES: [FEATURE_OURS], "pack_tid": 40}
    world.join(NodeType.STORAGE, 9, 9109, **extra)
    assert world.master.packs.tid == tid(0)
