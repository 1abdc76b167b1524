"""Orders for the cells of a backup, and the watermark that clients see."""

from __future__ import annotations

from neo.master.following.cells import BackupCells, Order, Where
from neo.protocol.ids import ZERO_TID
from tests.unit.master.cluster import tid

UPSTREAM, NOWHERE = Where.UPSTREAM, Where.NOWHERE


def cells(*rows: dict[int, int], last: int) -> BackupCells:
    return BackupCells([{nid: tid(at) for nid, at in row.items()} for row in rows], tid(last))


def orders(found: BackupCells, partition: int, upstream: bool = True) -> list[Order]:
    return found.orders(partition, lambda p: upstream)


def test_clients_see_what_every_cell_has() -> None:
    """Specification 13.24."""
    found = cells({1: 10, 2: 8}, {1: 9}, last=10)
    assert found.tid == tid(8)
    found.done(0, 2, tid(10))
    assert found.advance() and found.tid == tid(9)
    assert not found.advance()


def test_what_clients_see_never_goes_back() -> None:
    """Specification 13.24."""
    found = cells({1: 10}, last=10)
    found.done(0, 2, tid(5))
    assert not found.advance() and found.tid == tid(10)


def test_nobody_sees_more_while_a_partition_has_no_cell() -> None:
    found = cells({1: 10}, {2: 10}, last=10)
    found.remove(0, 1)
    found.done(1, 2, tid(12))
    assert not found.advance()


def test_what_is_left_of_a_restart_is_fetched_though_nothing_is_new() -> None:
    found = cells({1: 5}, last=9)
    assert orders(found, 0) == [Order(1, 0, tid(9), UPSTREAM)]


def test_one_cell_fetches_from_upstream_and_the_others_from_it() -> None:
    """Specification 13.14."""
    found = cells({1: 10, 2: 10}, last=10)
    found.heard(tid(12), [0])
    assert orders(found, 0) == [Order(1, 0, tid(12), UPSTREAM)]
    assert orders(found, 0) == []
    found.done(0, 1, tid(12))
    assert orders(found, 0) == [Order(2, 0, tid(12), 1)]


def test_leaders_differ_between_partitions() -> None:
    found = cells({1: 10, 2: 10}, {1: 10, 2: 10}, last=10)
    found.heard(tid(12), [0, 1])
    assert [orders(found, p)[0].nid for p in (0, 1)] == [1, 2]


def test_cells_without_changes_are_told_so() -> None:
    """Specification 13.12."""
    found = cells({1: 10}, {2: 10}, last=10)
    found.heard(tid(12), [0])
    assert orders(found, 1) == [Order(2, 1, tid(12), NOWHERE)]
    assert orders(found, 1) == []
    cell = found.get(1, 2)
    assert cell is not None and cell.tid == tid(10), "it is not durable yet"


def test_a_cell_that_fetches_gets_no_other_order_before_it_is_done() -> None:
    """Specification 13.15."""
    found = cells({1: 10}, last=10)
    found.heard(tid(12), [0])
    assert len(orders(found, 0)) == 1
    found.heard(tid(14), [])
    assert orders(found, 0) == []
    found.done(0, 1, tid(12))
    assert orders(found, 0) == [Order(1, 0, tid(14), NOWHERE)]


def test_after_a_gap_everything_may_have_changed() -> None:
    found = cells({1: 10}, {1: 10}, last=10)
    found.jumped(tid(20))
    assert [orders(found, p)[0].source for p in (0, 1)] == [UPSTREAM, UPSTREAM]


def test_without_upstream_cells_still_get_what_others_have() -> None:
    found = cells({1: 12, 2: 10}, last=14)
    assert orders(found, 0, upstream=False) == [Order(2, 0, tid(12), 1)]


def test_who_fetches_from_a_lost_cell_is_asked_again() -> None:
    found = cells({1: 12, 2: 10}, last=12)
    assert orders(found, 0) == [Order(2, 0, tid(12), 1)]
    found.remove(0, 1)
    assert orders(found, 0) == [Order(2, 0, tid(12), UPSTREAM)]


def test_a_cell_that_joins_holds_everybody_until_it_has_what_they_see() -> None:
    """Specification 13.20."""
    found = cells({1: 10}, last=10)
    found.done(0, 2, tid(8))
    assert found.joined() == []
    found.heard(tid(12), [0])
    assert orders(found, 0) == [Order(1, 0, tid(12), UPSTREAM), Order(2, 0, tid(10), 1)]
    found.done(0, 1, tid(12))
    assert not found.advance()
    found.done(0, 2, tid(10))
    assert found.joined() == [(0, 2)] and found.joined() == []


def test_nothing_is_fetched_from_a_cell_that_cannot_be_read_though_it_is_ahead() -> None:
    """It joined ahead of the readable cells, from a source that is lost (specification 13.14)."""
    found = cells({1: 10}, last=10)
    found.jumped(tid(14))
    found.done(0, 2, tid(12))
    assert orders(found, 0) == [Order(1, 0, tid(14), UPSTREAM)]
    found.done(0, 1, tid(14))
    assert orders(found, 0) == [Order(2, 0, tid(14), 1)]


def test_cells_that_cannot_be_read_wait_for_one_that_can() -> None:
    """Specification 13.14."""
    found = cells({1: 10}, last=10)
    found.jumped(tid(14))
    found.done(0, 2, tid(10))
    found.remove(0, 1)
    assert orders(found, 0) == []


def test_a_joining_cell_that_misses_nothing_is_complete_at_once() -> None:
    found = cells({1: 10}, last=8)
    found.done(0, 1, tid(10))
    found.jumped(tid(8))
    found.done(0, 2, tid(8))
    found.heard(tid(14), [])
    assert orders(found, 0) == [Order(1, 0, tid(14), NOWHERE), Order(2, 0, tid(14), NOWHERE)]
    assert found.joined() == [(0, 2)]


def test_the_switch_loses_nothing_that_some_cell_of_each_partition_has() -> None:
    """Specification 13.28."""
    found = cells({1: 10, 2: 14}, {1: 12, 2: 3}, last=14)
    found.done(0, 3, tid(20))  # joins, and does not count
    assert found.tid == tid(3)
    assert found.switch_tid() == tid(12)
    found.validate()


# -- synchronous ---------------------------------------------------------------------------------


def test_cells_that_unlocked_a_transaction_have_nothing_to_fetch() -> None:
    """Specification 25.20."""
    found = cells({1: 10, 2: 10}, {1: 10}, last=10)
    found.unlocked(tid(12), [0], {1, 2})
    assert orders(found, 0) == [Order(1, 0, tid(12), NOWHERE), Order(2, 0, tid(12), NOWHERE)]
    assert orders(found, 1) == [Order(1, 1, tid(12), NOWHERE)]


def test_a_cell_that_missed_something_before_fetches_what_it_unlocked_too() -> None:
    """Specification 13.12, 25.20."""
    found = cells({1: 10}, last=10)
    found.heard(tid(12), [0])
    found.unlocked(tid(14), [0], {1})
    assert orders(found, 0) == [Order(1, 0, tid(14), UPSTREAM)]


def test_a_cell_that_is_not_readable_fetches_what_others_unlocked() -> None:
    """Specification 25.21."""
    found = cells({1: 10}, last=10)
    found.done(0, 2, tid(10))
    found.unlocked(tid(12), [0], {1, 2})
    assert orders(found, 0) == [Order(1, 0, tid(12), NOWHERE)]
    found.done(0, 1, tid(12))
    assert orders(found, 0) == [Order(2, 0, tid(12), 1)]


def test_what_all_readable_cells_have_does_not_depend_on_those_that_join() -> None:
    """Specification 25.13."""
    found = cells({1: 10}, {1: 12}, last=12)
    found.done(0, 2, tid(5))
    assert found.complete == tid(10)
    found.remove(0, 1)
    assert found.complete == ZERO_TID, "a partition cannot be read"


def test_a_cell_joins_when_it_has_what_is_asked_of_it() -> None:
    """Specification 25.44."""
    found = cells({1: 10}, last=10)
    found.done(0, 2, tid(10))
    assert found.joined(tid(12)) == []
    assert found.joined(tid(10)) == [(0, 2)]
