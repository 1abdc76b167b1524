"""Invalidations that leave together (specification 7.33)."""

from __future__ import annotations

from neo.master.commit.announcements import ANNOUNCE_SECONDS
from neo.protocol.packets import AskFinishTransaction, InvalidateObjects, Ping, Pong
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld
from tests.unit.master.committing import begin, lock, oid_of


class Committing:
    """A client commits one transaction after the other, and another client listens."""

    def __init__(self) -> None:
        self.world = MasterWorld()
        (self.storage,) = self.world.running(1)
        self.client, self.other = self.world.client(), self.world.client()
        self.commit()
        self.told()

    def commit(self) -> bytes:
        finished = self.client.ask(
            AskFinishTransaction(begin(self.client), [oid_of(self.world, 0)], [])
        )
        lock(self.storage)
        tid: bytes = finished.result().tid
        return tid

    def told(self) -> list[bytes]:
        """Take what the other client was told."""
        return told(self.other)


def told(client: Remote) -> list[bytes]:
    tids = []
    while client.has(InvalidateObjects):
        tids.append(client.take(InvalidateObjects).tid)
    return tids


def test_a_commit_after_a_pause_is_told_at_once() -> None:
    it = Committing()
    it.world.host.advance(ANNOUNCE_SECONDS)
    tid = it.commit()
    assert it.told() == [tid]


def test_commits_that_follow_each_other_are_told_together() -> None:
    it = Committing()
    tids = [it.commit() for _ in range(3)]
    assert it.told() == []
    it.world.host.advance(ANNOUNCE_SECONDS)
    assert it.told() == tids


def test_a_client_that_asks_has_heard_of_all_commits_before() -> None:
    """Specification 16.6: what the master sends takes effect in order."""
    it = Committing()
    tids = [it.commit() for _ in range(2)]
    assert it.other.ask(Ping()).result() == Pong()
    assert it.told() == tids
    it.world.host.advance(ANNOUNCE_SECONDS)
    assert it.told() == []
