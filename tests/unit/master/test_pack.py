"""Packs reach all replicas (neo.master.maintenance.pack)."""

from __future__ import annotations

from typing import Any

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    FEATURE_PACK,
    FEATURES,
    AnswerPack,
    AskPack,
    Error,
    NotifyPack,
    NotifyReady,
    RequestIdentification,
    StartOperation,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, spread, tid


def served() -> tuple[MasterWorld, list[Remote]]:
    world = MasterWorld(replicas=1)
    storages = world.running(2)
    world.master.cluster.last_tid = tid(50)
    return world, storages


def back(world: MasterWorld, nid: int, **extra: Any) -> Remote:
    """Join a storage node with cells again."""
    remote = Remote.connect(world.master)
    remote.ask(
        RequestIdentification(
            *(NodeType.STORAGE, nid, ("127.0.0.1", 9100 + nid), "test", None),
            {FEATURES: [FEATURE_MAINTENANCE], **extra},
        )
    )
    remote.take(StartOperation)
    remote.send(NotifyReady())
    return remote


def join_backup(world: MasterWorld) -> Remote:
    """Join the master of a backup."""
    backup = Remote.connect(world.master)
    extra = {"backup": b"bak", FEATURES: [FEATURE_PACK]}
    backup.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, extra))
    return backup


def refuse(storage: Remote, question: AskPack) -> None:
    message_id = storage.ids[id(question)]
    assert message_id is not None
    storage.connection.answer(message_id, Error(ErrorCode.NOT_READY.value, "it stops"))
    storage._flush()


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
    refuse(second, second.take(AskPack))
    assert error_of(answer).message == "pack is not complete: NOT_READY: it stops"


def test_a_node_that_was_away_is_asked_when_it_is_back() -> None:
    """Specification 12.9."""
    world, (first, second) = served()
    second.lose()
    world.client().ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    assert back(world, 2).take(AskPack).tid == tid(7)


def test_a_node_that_knows_is_not_asked_again() -> None:
    world, (first, second) = served()
    second.lose()
    world.client().ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    assert not back(world, 2, pack_tid=7).has(AskPack)


def test_nodes_that_know_less_than_one_that_is_back_are_asked() -> None:
    """The master that started the pack is lost."""
    world = MasterWorld(replicas=2)
    first, second, _ = world.running(3)
    world.master.cluster.last_tid = tid(50)
    first.lose()
    first = back(world, 1)
    second.lose()
    second = back(world, 2, pack_tid=9)
    assert first.take(AskPack).tid == tid(9)
    assert not second.has(AskPack)


def test_a_master_tells_backups_of_packs_before_its_time() -> None:
    """Storage nodes remember packs."""
    world, (first, _) = served()
    backup = join_backup(world)
    assert not backup.has(NotifyPack)
    first.lose()
    first = back(world, 1, pack_tid=9)
    assert backup.take(NotifyPack).tid == tid(9)
    first.lose()
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
    assert join_backup(again).take(NotifyPack).tid == tid(7)


def test_a_pack_of_another_database_is_not_believed() -> None:
    """Specification 12.9."""
    world, _ = served()
    spare = Remote.connect(world.master)
    extra = {FEATURES: [FEATURE_MAINTENANCE], "pack_tid": 40}
    address = ("127.0.0.1", 9109)
    spare.ask(RequestIdentification(NodeType.STORAGE, 9, address, "test", None, extra))
    assert world.master.packs.tid == tid(0)
