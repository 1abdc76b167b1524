"""The revision that comes with a conflict (specification 8.31)."""

from __future__ import annotations

from hashlib import sha1

import pytest

from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskLockInformation,
    AskVoteSingle,
    NotifyConflictData,
    NotifyFeatures,
    NotifyUnlockInformation,
)
from neo.storage.serving.conflicts import DATA_MAX
from tests.unit.storage.requests import commit, data_of, finish, store, store_request, vote
from tests.unit.storage.world import C2, End, World


@pytest.fixture
def knowing(world: World, master: End) -> End:
    """A client that announced the feature."""
    world.notify(master, world.client_row(C2))
    end = world.stranger()
    world.identify(end, C2, extra={FEATURES: [FEATURE_OURS]})
    end.take(NotifyFeatures)
    return end


def test_the_revision_is_sent_with_a_conflict(master: End, client: End, knowing: End) -> None:
    commit(master, client, 10, 12, 1)
    assert store(knowing, 20, 1) == p64(12)
    data = data_of(10)
    assert knowing.take(NotifyConflictData) == NotifyConflictData(
        p64(20), p64(1), p64(12), 0, sha1(data).digest(), data
    )
    assert store(knowing, 20, 1, serial=12) is None
    assert not knowing.inbox


def test_it_is_sent_before_the_answer_also_after_a_wait(
    world: World, master: End, client: End, knowing: End
) -> None:
    assert store(client, 10, 1) is None
    waits = knowing.ask_later(store_request(20, 1))
    vote(client, 10, 1)
    finish(master, 10, 12)
    world.wait(lambda: bool(waits), "the store is not answered")
    assert waits == [AnswerStoreObject(p64(12))]
    assert knowing.take(NotifyConflictData).serial == p64(12)


def test_nothing_else_is_sent(master: End, client: End, knowing: End) -> None:
    """Neither to a client that does not know it, nor what is too large, nor what is gone."""
    assert client.ask(store_request(10, 1, data=bytes(DATA_MAX + 1))).locked is None
    vote(client, 10, 1)
    finish(master, 10, 12)
    assert store(client, 20, 1) == p64(12)
    assert store(knowing, 21, 2, serial=7) == MAX_TID
    assert store(knowing, 21, 3) is None
    assert not client.inbox and not knowing.inbox
    # The conflict holds the object for the first one (rule 8.8).
    vote(client, 20)
    finish(master, 20, 22)
    assert store(knowing, 23, 1) == p64(12)
    assert not knowing.inbox


def test_the_next_store_is_told_its_conflict_when_the_transaction_before_is_locked(
    world: World, master: End, client: End, knowing: End
) -> None:
    """Specification 8.32: its client resolves it meanwhile. What it stores again, and the vote behind
    that, wait for the unlock."""
    assert store(client, 10, 1) is None
    conflict = knowing.ask_later(store_request(20, 1))
    vote(client, 10, 1)
    assert not conflict and not knowing.inbox
    master.ask(AskLockInformation(p64(10), p64(12)))
    assert conflict == [AnswerStoreObject(p64(12))]
    told = knowing.take(NotifyConflictData)
    assert (told.ttid, told.serial, told.data) == (p64(20), p64(12), data_of(10))
    again = knowing.ask_later(store_request(20, 1, serial=12))
    voted = knowing.ask_later(
        AskVoteSingle(p64(20), b"user", b"note", b"ext", [p64(1)], [], durable=False)
    )
    assert not again and not voted
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(voted), "the vote is not answered")
    assert again == [AnswerStoreObject(None)] and voted == [AnswerVoteSingle(True)]
    assert not knowing.inbox


def test_a_transaction_that_was_told_is_the_next_holder(
    world: World, master: End, client: End, knowing: End
) -> None:
    """Specification 8.8: though it has not stored again when the object becomes free."""
    assert store(client, 10, 1) is None
    conflict = knowing.ask_later(store_request(20, 1))
    behind = client.ask_later(store_request(30, 1))
    vote(client, 10, 1)
    finish(master, 10, 12)
    world.wait(lambda: bool(conflict), "the store is not answered")
    assert store(knowing, 20, 1, serial=12) is None
    vote(knowing, 20, 1)
    assert not behind
    finish(master, 20, 22)
    world.wait(lambda: bool(behind), "the store is not answered")
    assert behind == [AnswerStoreObject(p64(22))]


def test_a_client_that_does_not_know_it_is_not_told(
    master: End, client: End, world: World
) -> None:
    assert store(client, 10, 1) is None
    conflict = client.ask_later(store_request(20, 1))
    vote(client, 10, 1)
    master.ask(AskLockInformation(p64(10), p64(12)))
    assert not conflict
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(conflict), "the store is not answered")
