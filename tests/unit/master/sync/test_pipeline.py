"""The order in which a synchronous backup prepares and locks (specification 25)."""

from __future__ import annotations

from random import Random

import pytest

from neo.master.sync.pipeline import BackupTransaction, Pipeline, Rows
from tests.unit.master.cluster import tid


class World:
    """Partition → nodes with a readable cell."""

    def __init__(self, *rows: list[int]) -> None:
        self.rows = list(rows)
        self.pipeline = Pipeline(lambda partition: self.rows[partition])

    def add(self, number: int, *partitions: int) -> BackupTransaction:
        rows = Rows(frozenset(partitions))
        oids = [tid(p) for p in partitions]
        transaction = BackupTransaction(tid(number - 1), tid(number), oids, rows)
        self.pipeline.add(transaction)
        return transaction

    def ask(self, transaction: BackupTransaction) -> dict[int, list[int]]:
        """Ask for the rows that nodes lack, and return what was asked."""
        lacking = transaction.rows.lacking(lambda partition: self.rows[partition])
        for nid, partitions in lacking.items():
            transaction.rows.ask(nid, partitions)
        return lacking

    def prepare(self, transaction: BackupTransaction) -> None:
        for nid in self.ask(transaction):
            transaction.rows.answered(nid)


def test_all_nodes_with_readable_cells_of_its_partitions_are_asked_for_rows() -> None:
    """Specification 25.3."""
    world = World([1, 2], [2, 3], [4])
    transaction = world.add(10, 0, 1)
    assert world.ask(transaction) == {1: [0], 2: [0, 1], 3: [1]}
    assert world.ask(transaction) == {}, "they are asked once"


def test_no_lock_begins_before_all_nodes_have_the_rows() -> None:
    """Specification 25.3."""
    world = World([1], [2])
    transaction = world.add(10, 0, 1)
    world.ask(transaction)
    transaction.rows.answered(1)
    assert world.pipeline.next() is None
    transaction.rows.answered(2)
    assert world.pipeline.next() is transaction


def test_locks_begin_in_the_order_of_tids_one_after_the_other() -> None:
    """Specification 25.2."""
    world = World([1], [2])
    first, second = world.add(10, 0), world.add(20, 1)
    world.prepare(second)
    assert world.pipeline.next() is None, "an earlier one is not prepared"
    world.prepare(first)
    assert world.pipeline.next() is first
    assert world.pipeline.lock(first) == [1]
    assert world.pipeline.next() is None, "an earlier one is not locked"
    world.pipeline.locked(first, 1)
    assert world.pipeline.next() is second, "though the first was not unlocked"
    world.pipeline.lock(second)
    world.pipeline.locked(second, 2)
    assert world.pipeline.locking
    assert [world.pipeline.pop_locked(), world.pipeline.pop_locked()] == [first, second]
    assert not world.pipeline.locking and world.pipeline.pop_locked() is None


def test_an_earlier_transaction_is_refused() -> None:
    """Specification 25.2."""
    world = World([1])
    world.add(10, 0)
    for number in (10, 9):
        with pytest.raises(ValueError, match="not later"):
            world.add(number, 0)


def test_a_cell_that_became_readable_gets_the_rows_before_the_lock() -> None:
    """Specification 25.3."""
    world = World([1])
    transaction = world.add(10, 0)
    world.prepare(transaction)
    world.rows[0] = [1, 2]
    assert world.pipeline.next() is None
    assert world.ask(transaction) == {2: [0]}
    assert world.pipeline.next() is None
    transaction.rows.answered(2)
    assert world.pipeline.lock(transaction) == [1, 2]


def test_a_node_that_is_lost_is_not_waited_for() -> None:
    world = World([1, 2])
    first, second = world.add(10, 0), world.add(20, 0)
    world.prepare(first)
    world.pipeline.lock(first)
    world.ask(second)
    world.pipeline.locked(first, 1)
    second.rows.answered(1)
    assert world.pipeline.pop_locked() is None
    world.pipeline.storage_lost(2)
    assert first.nodes == {1}
    assert world.pipeline.next() is None, "its cell is readable: it may come back"
    world.rows[0] = [1]
    assert world.pipeline.next() is second
    assert world.pipeline.pop_locked() is first


def test_a_node_that_was_lost_is_asked_again() -> None:
    world = World([1, 2])
    transaction = world.add(10, 0)
    world.prepare(transaction)
    world.pipeline.storage_lost(2)
    assert world.ask(transaction) == {2: [0]}


def test_what_is_being_locked_is_not_dropped() -> None:
    """Specification 25.18."""
    world = World([1])
    first, second = world.add(10, 0), world.add(20, 0)
    world.prepare(first)
    world.pipeline.lock(first)
    assert world.pipeline.drop() == [second]
    assert world.pipeline.get(first.ttid) is first and world.pipeline.locking


@pytest.mark.parametrize("seed", range(30))
def test_what_a_node_has_locked_is_a_prefix_and_all_have_its_rows(seed: int) -> None:
    """Specification 25.2, 25.3: whatever the order of answers and losses is."""
    random = Random(seed)
    world, added = World([1, 2], [2, 3], [3, 1]), 0
    pipeline = world.pipeline
    rows: dict[int, set[bytes]] = {1: set(), 2: set(), 3: set()}
    locked: list[BackupTransaction] = []
    while len(locked) < 20:
        pipeline.validate()
        what = random.choice("aaarrrppppppppppllllkkkkkkx")
        if what == "a" and added < 20:
            added += 1
            world.add(10 * added, *random.sample(range(3), random.randrange(1, 4)))
        elif what == "r":
            for transaction in pipeline.preparing():
                world.ask(transaction)
        elif what == "p" and (waiting := [t for t in pipeline.preparing() if t.rows.waiting]):
            transaction = random.choice(waiting)
            nid = random.choice(sorted(transaction.rows.waiting))
            transaction.rows.answered(nid)
            rows[nid].add(transaction.tid)
        elif what == "l" and (ready := pipeline.next()):
            for nid in pipeline.lock(ready):
                assert ready.tid in rows[nid]
            assert ready.tid == tid(10 * (len(locked) + 1))
            locked.append(ready)
        elif what == "x":
            pipeline.storage_lost(nid := random.randrange(1, 4))
            rows[nid].clear()
        elif locked:
            for nid in list(locked[-1].locking)[:1]:
                pipeline.locked(locked[-1], nid)
            pipeline.pop_locked()
