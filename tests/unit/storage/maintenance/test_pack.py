"""A pack is wanted until it is done, and replicas end the same (neo.storage.maintenance.pack)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AddObject,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerPack,
    AnswerPackState,
    AskFetchObjects,
    AskFetchTransactions,
    AskLockInformation,
    AskPack,
    AskPackState,
    AskStoreObject,
    NotifyFeatures,
    NotifyPartitionChanges,
    NotifyReady,
    NotifyReplicationDone,
    NotifyUnlockInformation,
    RequestIdentification,
    StartOperation,
    StopOperation,
)
from neo.storage.maintenance.pack import LOOK_SECONDS
from tests.unit.storage.packing import full, returned, rows, state
from tests.unit.storage.pauses import in_pauses, slow_clock
from tests.unit.storage.replicas import OTHER, reply, storage_row
from tests.unit.storage.requests import commit, finish, load, vote
from tests.unit.storage.world import OUT, UP, End, MakeWorld, World, check_refused, refused


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neo.storage.maintenance.pack.STEP_LENGTH", 1)


def stop(world: World, master: End, left: int) -> None:
    """When ``left`` revisions of partition 0 are there; each step takes one."""
    world.wait(lambda: len(rows(world, 0)) <= left, "the pack does not begin")
    master.send(StopOperation())


def again(master: End) -> None:
    master.send(StartOperation(False))
    master.take(NotifyReady)


def test_a_pack_that_is_interrupted_is_refused_and_goes_on_with_the_operation(world: World) -> None:
    """Specification 12.5."""
    master = world.operate()
    full(world, master, 0, 2, 4)
    packing = master.ask_later(AskPack(p64(36)))
    stop(world, master, 5)
    assert "goes on" in refused(packing[0])[1]
    assert len(rows(world, 0)) == 5  # one step was done
    again(master)
    world.wait(lambda: not world.core.background.jobs, "the pack does not go on")
    assert rows(world, 0) == [(16, 0), (26, 2), (36, 4)]


def test_nothing_goes_before_it_is_durable_that_it_is_to_go(world: World, master: End) -> None:
    """After a crash, a revision that readers did not find any more would be there again
    (specification 12.5)."""
    full(world, master, 0)
    packing = master.ask_later(AskPack(p64(16)))
    assert world.core.packer.wanted() == 16
    assert len(rows(world, 0)) == 2
    world.wait(lambda: bool(packing), "the pack does not end")
    assert len(rows(world, 0)) == 1


def test_a_pack_goes_on_after_a_restart_where_it_was(make_world: MakeWorld) -> None:
    """Specification 12.5, 12.8."""
    world = make_world()
    master = world.operate()
    full(world, master, 0, 2, 4)
    master.ask_later(AskPack(p64(36)))
    stop(world, master, 4)
    world.settle()
    assert world.backend.tables.get_config("_packing") == f"0:36:{p64(4).hex()}"
    world = make_world()
    master = world.operate()
    world.wait(lambda: not world.core.background.jobs, "the pack does not go on")
    world.settle()
    assert rows(world, 0) == [(16, 0), (26, 2), (36, 4)]
    assert world.core.packer.packed(0) == world.core.packer.packed(1) == 36
    assert world.backend.tables.get_config("_packing") is None


def test_a_deletion_before_many_later_objects_does_not_hold_up_a_pack(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 12.25: a step that cannot decide about it is followed by one that looks further."""
    monkeypatch.setattr("neo.storage.backend.maintenance.ROWS_PER_OBJECT", 1)
    master = world.operate()
    client = world.client(master)
    commit(master, client, 10, 12, 0)
    deletion = AskStoreObject(ZERO_OID, p64(12), 0, ZERO_HASH, b"", None, p64(14))
    assert client.ask(deletion).locked is None
    vote(client, 14, 0)
    finish(master, 14, 16)
    for number in range(1, 6):
        commit(master, client, 20 + 4 * number, 22 + 4 * number, 2 * number)
    pack, steps = world.backend.maintenance.pack, []

    def step(*arguments: Any) -> bytes | None:
        steps.append(arguments[2])
        assert len(steps) < 30, steps
        return pack(*arguments)

    monkeypatch.setattr(world.backend.maintenance, "pack", step)
    packing = master.ask_later(AskPack(p64(16)))
    world.wait(lambda: bool(packing), "the pack does not end")
    assert packing == [AnswerPack(True)]
    assert steps.count(ZERO_OID) > 2
    assert rows(world, 0)[0] == (16, 0), "the greatest oid up to the tid is not given again"


def test_a_later_pack_begins_again_with_the_cell(world: World, master: End) -> None:
    full(world, master, 0, 2)
    first = master.ask_later(AskPack(p64(16)))
    second = master.ask_later(AskPack(p64(26)))
    world.wait(lambda: bool(second), "the pack does not end")
    assert first == second == [AnswerPack(True)]
    assert rows(world, 0) == [(16, 0), (26, 2)]
    assert world.core.packer.packed(0) == 26


def test_a_cell_that_becomes_readable_is_packed_then(world: World, master: End) -> None:
    """Specification 12.6."""
    full(world, master, 0, 2)
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, OUT), (0, 2, UP)]))
    assert master.ask(AskPack(p64(26))) == AnswerPack(True)
    assert len(rows(world, 0)) == 4
    assert world.core.packer.packed(1) == 26
    master.send(NotifyPartitionChanges(3, 0, [(0, 1, UP)]))
    world.wait(lambda: world.core.packer.packed(0) == 26, "the cell is not packed")
    world.settle()
    assert rows(world, 0) == [(16, 0), (26, 2)]


def test_a_pack_works_in_small_pieces_with_pauses_while_clients_are_at_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.maintenance.pack.STEP_LENGTH", 100)
    monkeypatch.setattr("neo.storage.background.STEP_LENGTH", 1)
    master = world.operate()
    full(world, master, 0, 2, 4)
    client = world.client(master)
    load(client, 0)
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.001))
    master.ask_later(AskPack(p64(36)))
    assert in_pauses(world, lambda: load(client, 0), lambda: len(rows(world, 0))) == [5, 4, 3]


def test_the_node_tells_the_master_of_the_last_pack(make_world: MakeWorld) -> None:
    """Specification 12.9, 21.8."""
    world = make_world()
    master = world.operate()
    full(world, master, 0)
    master.ask(AskPack(p64(16)))
    world = make_world()
    world.join()
    assert world.request.extra["pack_tid"] == 16


# -- source --------------------------------------------------------------------------------------


def knowing(world: World, master: End, nid: int | None) -> End:
    """A storage node that knows of packs; ``nid`` None: of a backup."""
    if nid is not None:
        world.notify(master, storage_row(nid))
    end = world.stranger()
    extra = {FEATURES: [FEATURE_OURS]}
    stamp = None if nid is None else 20.0 + nid
    end.ask(RequestIdentification(NodeType.STORAGE, nid, OTHER, "test", stamp, extra))
    assert FEATURE_OURS in end.take(NotifyFeatures).features
    return end


def fetch(peer: End, partition: int, first: int) -> object:
    tid = p64(first)
    answer: object = peer.ask(AskFetchObjects(partition, 10, tid, p64(2**62), ZERO_OID, {}))
    peer.inbox.clear()
    return answer


@pytest.mark.parametrize("nid", [2, None])
def test_what_a_pack_may_remove_is_sent_when_that_is_done(world: World, nid: int | None) -> None:
    """Specification 10.10, 12.10."""
    master = world.operate()
    full(world, master, 0, 2)
    peer = knowing(world, master, nid)
    assert peer.ask(AskPackState(0)) == AnswerPackState(ZERO_TID)
    packing = master.ask_later(AskPack(p64(16)))
    assert peer.ask(AskPackState(0)) == AnswerPackState(p64(16))
    check_refused(fetch(peer, 0, 16), ErrorCode.REPLICATION_ERROR)
    assert isinstance(fetch(peer, 0, 17), AnswerFetchObjects)
    world.wait(lambda: bool(packing), "the pack does not end")
    assert isinstance(fetch(peer, 0, 0), AnswerFetchObjects)


def test_an_undo_is_sent_as_it_is_when_the_pack_is_done(world: World, master: End) -> None:
    """The destination may be packed already: what the undo goes back to is not there any more
    (specification 12.8, 12.11)."""
    full(world, master, 0)
    client = world.client(master)
    for ttid in 28, 32, 36:
        serial = world.backend.reads.last_serial(p64(0))
        assert serial is not None
        request = AskStoreObject(p64(0), serial, 0, ZERO_HASH, b"", p64(12), p64(ttid))
        assert client.ask(request).locked is None
        vote(client, ttid, 0)
        if ttid < 36:  # the last one keeps the pack waiting
            finish(master, ttid, ttid + 2)
    peer = knowing(world, master, 2)
    packing = master.ask_later(AskPack(p64(16)))
    peer.ask_later(AskFetchObjects(0, 10, p64(17), p64(34), ZERO_OID, {}))
    sent = [peer.take(AddObject) for _ in range(2)]
    assert [(m.tid, m.data_serial) for m in sent] == [(p64(30), None), (p64(34), p64(30))]
    assert not packing


def test_rows_are_sent_unpacked_while_the_pack_waits_for_a_locked_undo(world: World) -> None:
    """Specification 12.10, 25.16: the undo may wait for the synchronous backup that asks for them."""
    master = world.operate()
    full(world, master, 0)
    client = world.client(master)
    serial = world.backend.reads.last_serial(p64(0))
    assert serial is not None
    request = AskStoreObject(p64(0), serial, 0, ZERO_HASH, b"", p64(12), p64(28))
    assert client.ask(request).locked is None
    vote(client, 28, 0)
    peer = knowing(world, master, None)
    before = rows(world, 0)
    packing = master.ask_later(AskPack(p64(16)))
    check_refused(fetch(peer, 0, 16), ErrorCode.REPLICATION_ERROR)
    assert peer.ask(AskPackState(0)) == AnswerPackState(p64(16))
    master.ask(AskLockInformation(p64(28), p64(30)))
    assert peer.ask(AskPackState(0)) == AnswerPackState(ZERO_TID)
    answer = peer.ask(AskFetchObjects(0, 10, ZERO_TID, p64(24), ZERO_OID, {}))
    assert isinstance(answer, AnswerFetchObjects)
    assert rows(world, 0) == before and not packing
    master.send(NotifyUnlockInformation(p64(28)))
    world.settle()
    world.host.advance(LOOK_SECONDS)
    world.wait(lambda: bool(packing), "the pack does not end")
    assert peer.ask(AskPackState(0)) == AnswerPackState(p64(16))


def test_a_source_is_not_packed_before_others_can_see_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that reads before the last step is executed would keep the revisions for ever."""
    monkeypatch.setattr("neo.storage.maintenance.pack.STEP_LENGTH", 200)
    master = world.operate()
    full(world, master, 0)
    peer = knowing(world, master, 2)
    packing = master.ask_later(AskPack(p64(16)))
    check_refused(fetch(peer, 0, 0), ErrorCode.REPLICATION_ERROR)
    world.wait(lambda: bool(packing), "the pack does not end")
    assert isinstance(fetch(peer, 0, 0), AnswerFetchObjects)


def test_a_cell_that_others_wait_for_comes_next(world: World) -> None:
    master = world.operate([[(1, UP)], [(1, UP)], [(1, UP)]])
    full(world, master, 0, 3, 2)
    order: list[int] = []
    packer = world.core.packer
    original = packer.set_packed

    def in_order(partition: int, tid: int) -> None:
        order.append(partition)
        original(partition, tid)

    packer.set_packed = in_order  # type: ignore[method-assign]
    peer = knowing(world, master, 2)
    packing = master.ask_later(AskPack(p64(36)))
    world.wait(lambda: len(rows(world, 0)) < 4, "the pack does not begin")
    check_refused(fetch(peer, 2, 0), ErrorCode.REPLICATION_ERROR)
    world.wait(lambda: bool(packing), "the pack does not end")
    assert order == [0, 2, 1]


# -- destination ---------------------------------------------------------------------------------


def fetched(source: End, first: int, deleted: dict[bytes, list[bytes]]) -> None:
    m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    assert m.min_tid == p64(first)
    o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, deleted))
    assert o.min_tid == p64(first)


def test_after_a_pack_that_it_missed_everything_is_compared_again(world: World) -> None:
    """Specification 10.23."""
    node, source = returned(world)
    state(source, 20)
    fetched(source, 0, {p64(12): [p64(0)]})
    state(source, 20)
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    assert rows(world, 0) == [(16, 0)]
    assert world.core.packer.packed(0) == world.core.packer.wanted() == 20


def test_a_replicated_cell_forgets_where_its_pack_was_cut_short(world: World) -> None:
    node, source = returned(world)
    world.backend.tables.set_config("_packing", f"0:20:{p64(4).hex()}")
    state(source, 20)
    fetched(source, 0, {p64(12): [p64(0)]})
    state(source, 20)
    node.master.take(NotifyReplicationDone)
    assert world.backend.tables.get_config("_packing") is None


def test_without_a_pack_only_what_was_missed_is_compared(world: World) -> None:
    node, source = returned(world)
    state(source, 0)
    fetched(source, 16, {})
    state(source, 0)
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)


def test_a_round_during_which_the_source_was_packed_is_repeated(world: World) -> None:
    """Specification 10.23."""
    node, source = returned(world)
    state(source, 0)
    fetched(source, 16, {})
    state(source, 20)
    world.settle()
    world.host.advance(1.5)
    state(source, 20)
    fetched(source, 0, {p64(12): [p64(0)]})
    state(source, 20)
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    assert rows(world, 0) == [(16, 0)]
