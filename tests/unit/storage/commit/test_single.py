"""The vote of a transaction with one storage node, which comes behind its stores (specification 7.51)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.ids import p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerVoteSingle,
    AskCheckCurrentSerial,
    AskLockInformation,
    AskVoteSingle,
    NotifyUnlockInformation,
)
from neo.storage.backend.sqlite.wal_sync import Syncer
from tests.unit.storage.requests import commit, data_of, finish, load, store, store_request
from tests.unit.storage.world import End, World


def single(
    ttid: int, *stored: int, checked: tuple[int, ...] = (), durable: bool = True
) -> AskVoteSingle:
    listed = [p64(oid) for oid in stored]
    return AskVoteSingle(p64(ttid), b"user", b"note", b"ext", listed, list(map(p64, checked)), durable)


def check(client: End, ttid: int, oid: int, serial: int) -> Any:
    return client.ask(AskCheckCurrentSerial(p64(ttid), p64(oid), p64(serial))).locked


def test_a_vote_behind_its_stores_is_accepted_when_all_have_their_locks(
    master: End, client: End
) -> None:
    """Specification 7.52."""
    commit(master, client, 10, 12, 2)
    stored = client.ask_later(store_request(20, 1))
    checked = client.ask_later(AskCheckCurrentSerial(p64(20), p64(2), p64(12)))
    assert client.ask(single(20, 1, checked=(2,))) == AnswerVoteSingle(True)
    assert [answers[0].locked for answers in (stored, checked)] == [None, None]
    finish(master, 20, 22)
    assert load(client, 1).data == data_of(20)


def test_a_transaction_without_objects_votes_too(master: End, client: End) -> None:
    """Specification 7.52."""
    assert client.ask(single(20)) == AnswerVoteSingle(True)
    finish(master, 20, 22)


@pytest.mark.parametrize("how", ["stored", "checked"])
def test_a_conflict_before_the_vote_refuses_it_and_the_next_one_is_accepted(
    how: str, master: End, client: End
) -> None:
    """Specification 7.52: a transaction that had voted could not store again."""
    commit(master, client, 10, 12, 1)
    assert store(client, 20, 2) is None
    if how == "stored":
        assert store(client, 20, 1) == p64(12)
        assert client.ask(single(20, 2, 1)) == AnswerVoteSingle(False)
        assert store(client, 20, 1, serial=12) is None
        assert client.ask(single(20, 2, 1)) == AnswerVoteSingle(True)
    else:
        assert check(client, 20, 1, 9) == p64(12)
        assert client.ask(single(20, 2, checked=(1,))) == AnswerVoteSingle(False)


def test_a_vote_behind_a_store_that_waits_is_refused_when_that_conflicts(
    master: End, client: End, other: End
) -> None:
    """Specification 7.63."""
    assert store(other, 10, 1) is None
    waits, vote = client.ask_later(store_request(20, 1)), client.ask_later(single(20, 1))
    assert other.ask(single(10, 1)) == AnswerVoteSingle(True)
    assert not vote
    finish(master, 10, 12)
    assert waits[0].locked == p64(12) and vote == [AnswerVoteSingle(False)]
    assert store(client, 20, 1, serial=12) is None
    assert client.ask(single(20, 1)) == AnswerVoteSingle(True)


def test_a_vote_behind_a_store_that_waits_is_accepted_with_its_lock(
    master: End, client: End, other: End
) -> None:
    """Specification 7.63."""
    assert store(other, 10, 1) is None
    waits, vote = client.ask_later(store_request(20, 1)), client.ask_later(single(20, 1))
    other.send(AbortTransaction(p64(10), []))
    client.world.wait(lambda: bool(vote), "the vote is not answered")
    assert waits[0].locked is None and vote == [AnswerVoteSingle(True)]
    finish(master, 20, 22)
    assert load(client, 1).data == data_of(20)


@pytest.mark.parametrize("how", ["store", "vote", "abort"])
def test_a_vote_that_waits_is_refused_when_its_transaction_goes_on_or_ends(
    how: str, client: End, other: End
) -> None:
    """Specification 7.63: another request says more than the vote knows."""
    assert store(other, 10, 1) is None
    waits, vote = client.ask_later(store_request(20, 1)), client.ask_later(single(20, 1))
    again: list[Any] = []
    if how == "store":
        assert store(client, 20, 2) is None
    elif how == "vote":
        again = client.ask_later(single(20, 1))
    else:
        client.send(AbortTransaction(p64(20), []))
    assert vote == [AnswerVoteSingle(False)] and not again
    assert bool(waits) is (how == "abort")


def test_a_vote_waits_for_all_locks(client: End, other: End) -> None:
    """Specification 7.63."""
    for ttid, oid in ((10, 1), (11, 2)):
        assert store(other, ttid, oid) is None
    client.ask_later(store_request(20, 1))
    client.ask_later(store_request(20, 2))
    vote = client.ask_later(single(20, 1, 2))
    other.send(AbortTransaction(p64(10), []))
    assert not vote
    other.send(AbortTransaction(p64(11), []))
    client.world.wait(lambda: bool(vote), "the vote is not answered")
    assert vote == [AnswerVoteSingle(True)]


def test_the_vote_names_what_it_is_about(client: End) -> None:
    """Specification 7.52: a store that the node has not is as one without its lock."""
    assert store(client, 20, 1) is None
    for wrong in (single(20), single(20, 1, 2), single(20, checked=(1,)), single(21, 1)):
        assert client.ask(wrong) == AnswerVoteSingle(False)
    assert client.ask(single(20, 1)) == AnswerVoteSingle(True)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, world: World, client: End) -> list[int]:
    """Grows with each sync of the node's disk from now on."""
    world.settle()
    asked: list[int] = []
    real = Syncer.sync

    def sync(*args: object) -> None:
        asked.append(len(asked))
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Syncer, "sync", sync)
    return asked


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_on_one_node_syncs_once_or_twice_if_the_client_wants_a_durable_vote(
    durable: bool, world: World, master: End, client: End, syncs: list[int]
) -> None:
    """Specification 7.53, 7.54."""
    store(client, 10, 1)
    assert client.ask(single(10, 1, durable=durable)) == AnswerVoteSingle(True)
    assert len(syncs) == durable
    master.ask(AskLockInformation(p64(10), p64(12)))
    master.send(NotifyUnlockInformation(p64(10)))
    assert len(syncs) == 1 + durable


def test_the_lock_waits_for_the_disk_if_the_vote_has_not(
    world: World, master: End, client: End
) -> None:
    """Specification 7.54, 7.30."""
    world.settle()  # else the lock would wait for the first partition table
    store(client, 10, 1)
    assert client.ask(single(10, 1, durable=False)) == AnswerVoteSingle(True)
    locked = master.ask_later(AskLockInformation(p64(10), p64(12)))
    assert not locked
    world.wait(lambda: bool(locked), "the lock is not answered")


def test_the_lock_of_the_only_transaction_may_be_synced_at_once(
    world: World, master: End, client: End, other: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.51."""
    world.settle()
    alone: list[bool] = []
    real = Syncer.sync

    def sync(self: Syncer, covered: list[Any], checkpoint: bool, at_once: bool) -> None:
        alone.append(at_once)
        real(self, covered, checkpoint, at_once)

    monkeypatch.setattr(Syncer, "sync", sync)
    store(client, 10, 1)
    client.ask(single(10, 1, durable=False))
    master.ask(AskLockInformation(p64(10), p64(12)))
    assert alone == [True]
    master.send(NotifyUnlockInformation(p64(10)))
    world.settle()
    alone.clear()
    store(client, 20, 1, serial=12)
    store(other, 30, 2)
    client.ask(single(20, 1, durable=False))
    master.ask(AskLockInformation(p64(20), p64(32)))
    assert alone == [False]
