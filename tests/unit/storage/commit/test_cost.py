"""What a commit costs a storage node: how often it waits for the disk, and when it need not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AskLockInformation,
    AskStoreTransaction,
    AskVoteTransaction,
    NotifyPartitionChanges,
    NotifyUnlockInformation,
)
from neo.storage.backend.sqlite.wal_sync import Syncer
from tests.unit.storage.requests import store, store_request
from tests.unit.storage.world import OUT, End, World

METADATA = AskStoreTransaction(p64(10), b"", b"", b"", [p64(1)])


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


def test_a_commit_with_metadata_syncs_twice(
    world: World, master: End, client: End, syncs: list[int]
) -> None:
    """Specification 7.12, 7.20, 7.30."""
    store(client, 10, 1)
    assert not syncs, "a store promises nothing"
    client.ask(METADATA)
    master.ask(AskLockInformation(p64(10), p64(12)))
    master.send(NotifyUnlockInformation(p64(10)))
    assert len(syncs) == 2


def test_a_commit_without_metadata_syncs_once(
    world: World, master: End, client: End, other: End, syncs: list[int]
) -> None:
    """Specification 7.30."""
    store(client, 10, 1)
    client.ask(AskVoteTransaction(p64(10)))
    store(other, 11, 2)  # something is written that a sync would cover
    assert master.ask_later(AskLockInformation(p64(10), p64(12)))
    assert len(syncs) == 1


@pytest.mark.parametrize("what", ["vote", "partition table"])
def test_a_lock_waits_for_what_is_not_durable_whatever_the_client_does(
    world: World, master: End, client: End, what: str
) -> None:
    """Specification 7.30, 9.6."""
    world.settle()  # else the lock would wait for the first partition table
    store(client, 10, 1)
    if what == "vote":
        client.ask_later(AskVoteTransaction(p64(10)))  # the client does not wait
    else:
        client.ask(AskVoteTransaction(p64(10)))
        master.send(NotifyPartitionChanges(2, 0, [(0, 2, OUT)]))
    locked = master.ask_later(AskLockInformation(p64(10), p64(12)))
    assert not locked
    world.wait(lambda: bool(locked), "the lock is not answered")


def test_all_who_wait_for_an_object_cost_one_store_each_and_one_more_to_resolve(
    world: World, master: End, client: End, other: End
) -> None:
    """Ten transactions of a client wait for the object that another one commits ten times."""
    store(client, 10, 1)
    waiting = {ttid: other.ask_later(store_request(ttid, 1)) for ttid in range(11, 20)}
    ttid, owner, serial = 10, client, 0
    while True:
        owner.ask(replace(METADATA, ttid=p64(ttid)))
        serial = 100 + ttid
        master.ask(AskLockInformation(p64(ttid), p64(serial)))
        master.send(NotifyUnlockInformation(p64(ttid)))
        world.settle()
        if not waiting:
            break
        ttid, owner = min(waiting), other
        (answer,) = waiting.pop(ttid)
        assert answer.locked == p64(serial)
        assert not any(waiting.values()), "told of a conflict that it cannot win"
        assert store(other, ttid, 1, serial) not in (ZERO_TID, p64(serial))
    assert not master.inbox, "a deadlock"
