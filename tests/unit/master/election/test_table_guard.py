"""The log of several masters remembers the newest partition table, whoever is primary."""

from __future__ import annotations

import pytest

from neo.master.phases.recovery import STORAGES_SECONDS
from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    CellRow,
    ForgetTable,
    NotifyPartitionChanges,
    RequestIdentification,
    SetClusterState,
    SetNumReplicas,
    SetPrimary,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.changing_masters import admin
from tests.unit.master.database import Database

M1 = nid_namespace(NodeType.MASTER) + 1
UP, OLD = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
BOTH: list[list[CellRow]] = [[(1, UP), (2, UP)]] * 4
FIRST_OUTDATED: list[list[CellRow]] = [[(1, OLD), (2, UP)]] * 4


@pytest.fixture
def database() -> Database:
    return Database()


def test_nothing_is_told_of_a_table_before_it_is_in_the_log(database: Database) -> None:
    """Specification 19.14."""
    database.create()
    remote = admin(database)
    primary = database.serving()[0]
    others = database.others()
    for other in others:
        database.processes[other].pause()
    asked = remote.ask(SetNumReplicas(0))
    database.run(0.5)
    assert not asked.done and not remote.has(NotifyPartitionChanges)
    for other in others:
        database.processes[other].resume()
    database.run(0.5)
    assert asked.result().code == 0
    told = remote.take(NotifyPartitionChanges)
    log = database.core(primary).member.log
    assert log is not None and log.epochs.ptid == told.ptid == 2


def test_without_the_others_what_was_decided_is_never_told(database: Database) -> None:
    """Specification 19.14."""
    database.create()
    remote = admin(database)
    primary = database.serving()[0]
    for other in database.others():
        database.processes[other].pause()
    asked = remote.ask(SetNumReplicas(0))
    database.run(5)
    assert database.core(primary).primary is None
    assert not asked.done and remote.closed


def test_another_primary_takes_no_older_table(database: Database) -> None:
    """Specification 4.16, 19.16."""
    first, second = database.create()
    first.lose()  # the second goes on alone, with table 2
    database.run(1)
    database.fail_over()
    first = database.storage(1, 1, BOTH)
    database.run(30)
    assert database.state is ClusterState.RECOVERING
    remote = admin(database)
    refused = error_of(remote.ask(SetClusterState(ClusterState.VERIFYING)))
    assert "the newest partition table here is 1, but 2 was in use" in refused.message
    assert "start S2" in refused.message
    second = database.storage(2, 2, FIRST_OUTDATED)
    database.verify(first, second)
    assert database.state is ClusterState.RUNNING


def test_an_operator_can_give_up_a_table_by_its_number(database: Database) -> None:
    """Specification 9.18, 19.15."""
    first, _ = database.create()
    first.lose()
    database.run(1)
    database.fail_over()
    first = database.storage(1, 1, BOTH)
    remote = admin(database)
    assert error_of(remote.ask(ForgetTable(3))).message == "the newest partition table was 2, not 3"
    asked = remote.ask(ForgetTable(2))
    database.run(1)
    assert asked.result().message == "partition table 2 is given up: now neoctl start"
    database.fail_over()  # nor does another primary use its number again
    first = database.storage(1, 1, BOTH)
    admin(database).ask(SetClusterState(ClusterState.VERIFYING))
    database.verify(first)
    assert database.state is ClusterState.RUNNING
    log = database.core(0).member.log
    assert log is not None and log.epochs.ptid is not None and log.epochs.ptid > 2


def test_a_new_primary_waits_for_storages_then_goes_on_without_those_that_are_lost(
    database: Database,
) -> None:
    """Specification 4.20."""
    database.create()
    database.fail_over()
    second = database.storage(2, 1, BOTH)
    database.run(STORAGES_SECONDS / 2)
    assert database.state is ClusterState.RECOVERING
    database.run(STORAGES_SECONDS / 2)
    database.verify(second)
    assert database.state is ClusterState.RUNNING
    assert database.primary().partitions.rows[0] == {1: OLD, 2: UP}


def test_a_new_primary_starts_at_once_when_all_storages_are_there(database: Database) -> None:
    database.create()
    admin(database).ask(SetPrimary(M1 + (database.serving()[0] + 1) % 3)).result()
    database.run(1)
    database.verify(database.storage(1, 1, BOTH), database.storage(2, 1, BOTH))
    assert database.state is ClusterState.RUNNING


def test_a_refusal_that_waits_for_the_log_leaves_before_the_connection_is_closed(
    database: Database,
) -> None:
    database.create()
    remote = admin(database)
    primary = database.serving()[0]
    others = database.others()
    for other in others:
        database.processes[other].pause()
    remote.ask(SetNumReplicas(0))
    again = Remote.connect(database.core(primary))
    address = ("127.0.0.1", 9101)
    refused = again.ask(RequestIdentification(NodeType.STORAGE, 1, address, "test", None, {}))
    database.run(0.2)
    assert not refused.done and not again.closed
    for other in others:
        database.processes[other].resume()
    database.run(0.5)
    assert error_of(refused).message.startswith("already connected")
    assert again.closed
