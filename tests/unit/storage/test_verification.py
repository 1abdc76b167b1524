"""Verification, as a storage node answers it (specification 5)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import NodeState
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskLockInformation,
    AskRecovery,
    Error,
    NotifyPartitionChanges,
    NotifyReady,
    StartOperation,
    StopOperation,
    Truncate,
    ValidateTransaction,
)
from tests.unit.storage.requests import commit, commit_twice, load, voted
from tests.unit.storage.world import C1, DISCARDED, OUT, UP, End, MakeWorld, World


def test_truncates_when_asked_for_the_last_ids(world: World, master: End, client: End) -> None:
    """Specification 5.9, 12.17."""
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 2)
    world.host.advance(5)
    master.disconnect()
    master = world.join()
    world.send_table(master)
    master.send(Truncate(p64(13)))
    master.ask(AskRecovery())
    assert master.ask(AskLastIDs()) == AnswerLastIDs(p64(1), p64(12))
    assert master.ask(AskRecovery()).truncate_tid is None


def test_a_truncation_without_this_node_is_made_up_for_before_it_is_replicated(
    world: World, master: End, client: End
) -> None:
    """It came back when the others had truncated, and had committed since (specification 4.28, 12.18)."""
    commit_twice(master, client, 0)
    master.send(Truncate(p64(13)))
    world.host.advance(5)
    world.settle()
    master.disconnect()
    master = world.join()
    world.send_table(master, [[(1, OUT), (2, UP)], [(1, UP)]], 2)
    master.send(StartOperation(False))
    master.take(NotifyReady)
    assert world.backend.tables.get_config("truncate_tid") is None
    assert [cell.tid for cell in world.backend.tables.cells() if cell[:2] == (0, 1)] == [13]
    assert world.backend.reads.last_ids([0]) == (p64(0), p64(12))


def test_truncation_reaches_data_that_is_still_to_be_erased(world: World) -> None:
    """Specification 12.17."""
    master = world.operate()
    client = world.client(master)
    commit_twice(master, client, 0)
    world.core.eraser.enabled = False
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, DISCARDED), (0, 2, UP)]))
    master.send(Truncate(p64(13)))
    master.send(StopOperation())
    master.ask(AskLastIDs())
    assert world.backend.reads.last_ids([0]) == (p64(0), p64(12))


def test_last_ids_of_an_empty_database(world: World) -> None:
    """Specification 5.9."""
    master = world.join()
    world.send_table(master)
    assert master.ask(AskLastIDs()) == AnswerLastIDs(None, None)


@pytest.mark.parametrize(
    "how", ["the operation starts again", "its client is lost", "the master aborts"]
)
def test_the_ttid_of_a_vote_that_was_dropped_is_never_forgotten(
    make_world: MakeWorld, world: World, master: End, client: End, how: str
) -> None:
    """Else a master whose clock is behind may give it again, and the client that asks for its end hears
    of somebody else's commit (specification 5.3, 7.48)."""
    for ttid, oid in ((14, 1), (10, 2)):
        voted(client, ttid, oid)
    if how == "its client is lost":
        world.notify(master, world.client_row(C1, NodeState.DOWN))
    elif how == "the master aborts":
        master.send(AbortTransaction(p64(14), []))
        master.send(AbortTransaction(p64(10), []))
    world.settle()
    world.close()
    for _ in range(2):
        world = make_world()
        master = world.join()
        world.send_table(master)
        assert p64(14) in master.ask(AskLockedTransactions()).tid_dict
        assert master.ask(AskFinalTID(p64(14))).tid is None
        master.send(StartOperation(False))
        world.settle()
        assert world.backend.commits.locked_transactions() == {}
        world.close()


def test_interrupted_transactions_are_reported_and_validated(
    make_world: MakeWorld, world: World, master: End, client: End
) -> None:
    """Specification 4.28, 5.1, 5.2, 5.6, 5.7."""
    voted(client, 10, 1)
    voted(client, 14, 2)
    master.ask(AskLockInformation(p64(14), p64(16)))
    world = make_world()
    master = world.join()
    world.send_table(master)
    answer = master.ask(AskLockedTransactions())
    assert answer == AnswerLockedTransactions({p64(10): None, p64(14): p64(16)})
    assert master.ask(AskFinalTID(p64(10))).tid is None
    assert master.ask(AskFinalTID(p64(14))).tid == p64(16)
    master.send(ValidateTransaction(p64(14), p64(16)))
    assert master.ask(AskLastIDs()) == AnswerLastIDs(p64(2), p64(16))
    master.send(StartOperation(False))
    assert master.take(NotifyReady) == NotifyReady()
    assert world.backend.commits.locked_transactions() == {}  # dropped by the start
    client = world.client(master)
    assert load(client, 2).serial == p64(16)
    assert isinstance(load(client, 1), Error)
