"""Published partition tables, with which a restarted master could start (decision 6)."""

from __future__ import annotations

import logging

import pytest

from neo.master.published_tables import PublishedTables
from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AddPendingNodes,
    AskFinishTransaction,
    AskRecovery,
    AskUnfinishedTransactions,
    NotifyPartitionChanges,
    NotifyReplicationDone,
    SetClusterState,
    SetNumReplicas,
    TweakPartitionTable,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import (
    FEEDING,
    OUT,
    RECOVERING,
    RUNNING,
    UP,
    VERIFYING,
    MasterWorld,
    Rows,
    tid,
)
from tests.unit.master.committing import begin, lock

# -- the rule ------------------------------------------------------------------------------------


def test_a_table_is_replaced_when_a_node_that_is_readable_in_it_has_a_later_one() -> None:
    """Specification 9.13."""
    told = PublishedTables()
    told.publish(1, {2})
    assert told.complete
    told.publish(2, {1, 2})
    assert not told.complete and told.awaited() == {2}
    told.confirmed(1, 2)
    assert not told.complete, "who has table 1 does not ask node 1"
    told.confirmed(2, 2)
    assert told.complete


def test_nodes_that_have_an_old_table_confirm_nothing() -> None:
    told = PublishedTables()
    told.publish(1, {1, 2})
    told.publish(2, {1})
    told.confirmed(2, 1)
    assert not told.complete


def test_every_table_must_be_replaced_by_somebody_who_is_here() -> None:
    told = PublishedTables()
    told.publish(4, {1, 2})
    told.publish(5, {2})
    assert told.missing({1, 2}) is None
    assert told.missing({1}) == (5, {2})
    told.publish(6, {1, 2})
    told.confirmed(1, 6)
    assert not told.complete and told.awaited() == {2}


def test_tables_are_replaced_step_by_step() -> None:
    """A master that starts with table 1 asks S1, which has table 2, then S2, readable in it, which has
    table 3."""
    told = PublishedTables()
    told.publish(1, {1})
    told.publish(2, {1, 2})
    told.confirmed(1, 2)
    told.publish(3, {2})
    told.confirmed(2, 3)
    assert told.complete


def test_a_number_is_never_told_twice() -> None:
    told = PublishedTables()
    told.publish(7, {1})
    told.give_up({2})
    assert told.complete and told.ptid == 7
    told.publish(7, {1})
    told.publish(3, {2})
    assert told.ptid == 7


def test_a_log_that_remembers_the_last_table_replaces_all_others() -> None:
    """Specification 9.13."""
    told = PublishedTables()
    told.publish(1, {1})
    told.publish(2, {2})
    told.logged(2)
    assert told.complete and told.missing({2}) is None


# -- the master ----------------------------------------------------------------------------------


BOTH: Rows = [[(1, UP), (2, UP)] for _ in range(4)]


class OwnStorages(MasterWorld):
    """A cluster whose storage nodes can be asked what is on their disks."""

    extra = {"features": ["oids"]}


def with_a_new_copy(instead: bool = False) -> tuple[OwnStorages, Remote, Remote]:
    """S1 has everything. S2 has just become complete, as another copy or in the place of S1. S1 has not
    confirmed this table yet."""
    world = OwnStorages()
    (first,) = world.running(1)
    second = world.join(NodeType.STORAGE, port=9102)
    admin = world.admin()
    admin.ask(AddPendingNodes([2])).result()
    world.make_ready(second)
    if not instead:
        admin.ask(SetNumReplicas(1)).result()
    admin.ask(TweakPartitionTable(False, [1] if instead else [])).result()
    confirm(world, first)
    second.ask(AskUnfinishedTransactions([0, 1, 2, 3]))
    for partition in range(4):
        second.send(NotifyReplicationDone(partition, tid(0)))
    assert world.master.partitions.row_list() == (
        [[(1, FEEDING), (2, UP)]] * 4 if instead else BOTH
    )
    return world, first, second


def confirm(world: MasterWorld, storage: Remote) -> None:
    """Confirm that the table is on the disk of this node."""
    while storage.has(AskRecovery):
        world.remember(storage, world.master.cluster.published.ptid)


def test_a_new_copy_does_not_serve_alone_before_the_old_one_knows_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise its commits would be lost when the old node returns to another master
    (specification 4.11, 9.16, 23.9)."""
    caplog.set_level(logging.INFO)
    world, first, second = with_a_new_copy()
    newest = world.master.cluster.published.ptid
    first.lose()
    assert world.master.cluster.state is RECOVERING
    second.received = [m for m in second.received if type(m) is AskRecovery][-1:]
    world.remember(second, newest, BOTH)
    assert world.master.cluster.state is RECOVERING
    assert "may be the last that S1 has" in caplog.text
    world.storage(1, newest - 4, nid=1)
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.row_list() == BOTH


def test_a_cell_that_has_moved_is_taken_from_its_node_when_this_one_knows_the_new_place() -> None:
    """Specification 9.11."""
    world, first, second = with_a_new_copy(instead=True)
    confirm(world, first)
    assert world.master.partitions.rows == [{2: UP}] * 4
    first.lose()
    assert world.master.cluster.state is RUNNING
    assert second.has(NotifyPartitionChanges)


def test_a_tweak_does_not_take_it_sooner() -> None:
    """Specification 9.24."""
    world, first, _ = with_a_new_copy()
    admin = world.admin()
    admin.ask(SetNumReplicas(0)).result()
    admin.ask(TweakPartitionTable(False, [1])).result()
    assert world.master.partitions.row_list() == [[(1, FEEDING), (2, UP)]] * 4
    confirm(world, first)
    assert world.master.partitions.rows == [{2: UP}] * 4


def test_the_operator_decides_that_the_old_copy_is_lost() -> None:
    """Specification 4.19, 9.16."""
    world, first, second = with_a_new_copy()
    first.lose()
    second.received = [m for m in second.received if type(m) is AskRecovery][-1:]
    world.remember(second, world.master.cluster.published.ptid, BOTH)
    assert world.master.cluster.state is RECOVERING
    world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verify(second)
    assert world.master.cluster.state is RUNNING
    assert world.master.partitions.rows == [{1: OUT, 2: UP}] * 4


def test_a_new_copy_serves_alone_when_the_old_one_knew_of_it() -> None:
    """Specification 9.9."""
    world, first, _ = with_a_new_copy()
    confirm(world, first)
    first.lose()
    assert world.master.cluster.state is RUNNING
    assert world.master.partitions.rows == [{1: OUT, 2: UP}] * 4


def test_nothing_is_acknowledged_before_the_table_is_confirmed() -> None:
    """Specification 7.32, 9.14, 9.15."""
    world, first, second = with_a_new_copy()
    client = world.client()
    answer = client.ask(AskFinishTransaction(begin(client), [], []))
    lock(first)
    lock(second)
    assert not answer.done
    confirm(world, first)
    assert answer.done


def test_a_table_in_which_another_node_was_alone_is_not_passed_over() -> None:
    """S1 is lost and S2 goes on; S2 is lost and S1 returns, before anything was committed. S2 has a table
    in which it is enough: a restarted master would not wait for S1."""
    world = OwnStorages(replicas=1)
    first, second = world.running()
    first.lose()
    confirm(world, second)
    second.lose()
    world.storage(1, 1, BOTH, nid=1)
    assert world.master.cluster.state is RECOVERING
    world.storage(2, 2, [[(1, OUT), (2, UP)]] * 4, nid=2)
    assert world.master.cluster.state is VERIFYING


def test_an_older_table_that_a_node_remembers_is_replaced_before_others_go_on_without_it() -> None:
    """Specification 9.17."""
    world = OwnStorages(replicas=1)
    world.storage(1, 7, BOTH, nid=1)
    second = world.storage(2, 6, nid=2)
    assert world.master.cluster.state is VERIFYING
    second.lose()
    assert world.master.cluster.state is RECOVERING


def test_storages_of_other_implementations_are_believed() -> None:
    """Specification 1.12, 9.14."""
    world = MasterWorld(replicas=1)
    first, second = world.running()
    first.lose()
    assert world.master.cluster.state is RUNNING and not second.has(AskRecovery)
