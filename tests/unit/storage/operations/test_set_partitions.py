"""A storage node gets a table with another number of partitions, and regroups its rows for it
(specification 27.92 to 27.97)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from neo.node.task import Task
from neo.operations.model import Operation, Step
from neo.protocol.ids import ZERO_OID, p64
from neo.protocol.packets import SendPartitionTable, StartOperation, StopOperation
from neo.storage.backend.api import StatementRefused
from neo.storage.backend.regrouped import others
from neo.storage.database import COMMIT_SECONDS
from neo.storage.operations.partitions import REGROUP, Regroups
from neo.storage.operations.steps import StepFailed
from tests.unit.storage.requests import commit, load
from tests.unit.storage.world import OUT, UP, End, MakeWorld, World

OIDS = range(9)
TWO: Any = [[(1, UP)], [(1, UP)]]
SIX: Any = [[(1, UP)]] * 6


def full(world: World, master: End) -> None:
    client = world.client(master)
    for oid in OIDS:
        commit(master, client, 10 + 4 * oid, 12 + 4 * oid, oid)


def operation(partitions: Any = 6) -> Operation:
    steps = (Step(REGROUP, (1,), True, True),)
    values = {"partitions": partitions, "before": 2}
    return Operation(7, "partitions", values, 1, steps, (), 0.0, 1.0, True)


class Regrouping:
    """The step of an operation on a node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.function = Regroups(world.core.database, world.core.background)
        self.told: list[str] = []

    def run(self, about: Operation | None = None) -> Task[bytes]:
        task = Task(
            self.function.run(
                about or operation(), 0, {}, lambda done, text: self.told.append(text)
            )
        )
        self.world.wait(lambda: task.done, "the rows are not regrouped")
        return task

    def undo(self) -> Task[None]:
        return Task(self.function.undo(operation(), b""))


def switch(world: World, master: End, rows: Any, ptid: int) -> None:
    """Play a recovery, after which the node operates."""
    master.send(StopOperation())
    world.send_table(master, rows, ptid)
    master.send(StartOperation(False))
    world.wait(lambda: bool(master.inbox), "the node is not ready")
    master.inbox.clear()


def check_objects(world: World, master: End) -> None:
    client = world.client(master)
    assert [load(client, oid).serial for oid in OIDS] == [p64(12 + 4 * oid) for oid in OIDS]


@pytest.fixture
def master(world: World) -> End:
    """The node operates with two partitions, and has an object of each oid."""
    master = world.operate(TWO)
    full(world, master)
    return master


@pytest.fixture
def busy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has a part in the operation."""
    monkeypatch.setattr(type(world.core.operations), "busy", True)


def test_rows_are_regrouped_and_the_table_switches_27_94(
    world: World, master: End, busy: None
) -> None:
    Regrouping(world).run().result()
    assert world.backend.regrouping.regrouped() == 6
    switch(world, master, SIX, 2)
    assert world.backend.tables.partition_count() == 6 and world.backend.regrouping.regrouped() == 2
    check_objects(world, master)
    switch(world, master, TWO, 3)
    assert world.backend.tables.partition_count() == 2 and world.backend.regrouping.regrouped() == 6
    check_objects(world, master)


@pytest.mark.parametrize(
    ("before", "after", "packed", "found"),
    [
        (2, 6, [40, 30], [40, 30] * 3),
        (6, 2, [40, 40, 30, 40, 40, 0], [30, 0]),
        (6, 4, [40, 20, 30, 40, 40, 10], [30, 10] * 2),
    ],
)
def test_a_partition_is_packed_as_far_as_all_that_it_is_made_of_27_94(
    world: World, busy: None, before: int, after: int, packed: list[int], found: list[int]
) -> None:
    """A pack may not be complete on a node that was away."""
    rows: Any = [[(1, UP)]] * before
    master = world.operate(rows)
    full(world, master)
    packer = world.core.packer
    for partition, tid in enumerate(packed):
        packer.set_packed(partition, tid)
    world.backend.tables.set_config("_packing", f"0:50:{p64(7).hex()}")
    Regrouping(world).run(operation(after)).result()
    switch(world, master, [[(1, UP)]] * after, 2)
    assert [packer.packed(partition) for partition in range(after)] == found
    assert [packer.packed(partition) for partition in range(after, 9)] == [0] * (9 - after)
    assert packer._start_oid(0) == ZERO_OID


def test_the_step_may_happen_twice_and_after_half_of_it_27_3(
    world: World, master: End, busy: None
) -> None:
    regrouping = Regrouping(world)
    assert world.backend.regrouping.begin_regrouping(12) == ""  # of an operation that ended half
    regrouping.run().result()
    assert world.backend.regrouping.regrouped() == 6
    told = len(regrouping.told)
    regrouping.run().result()
    assert len(regrouping.told) == told, "nothing is done again"
    switch(world, master, SIX, 2)
    regrouping.run().result()
    assert world.backend.tables.partition_count() == 6


def test_the_undo_keeps_both_until_the_operation_is_over_everywhere_27_96(
    world: World, master: End, busy: None
) -> None:
    """Another node may have the table of the new number, which counts then."""
    regrouping = Regrouping(world)
    assert regrouping.undo().done  # nothing was done
    regrouping.run().result()
    for _ in range(2):
        assert regrouping.undo().done
    world.settle()
    switch(world, master, SIX, 2)
    check_objects(world, master)
    assert regrouping.undo().done
    switch(world, master, TWO, 3)
    check_objects(world, master)


def test_rows_of_the_next_operation_are_not_deleted_with_those_of_the_last_27_97(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins in the middle."""
    length = [1]
    monkeypatch.setattr(type(world.core.background), "rows", lambda self, idle: length[0])
    Regrouping(world).run().result()
    world.core.eraser.maintenance_ended()
    assert world.backend.regrouping.regrouped() is None, "it deletes"
    length[0] = 1000  # and is overtaken
    monkeypatch.setattr(type(world.core.operations), "busy", True)
    Regrouping(world).run(operation(4)).result()
    world.wait(lambda: not world.core.background.jobs, "it does not end")
    assert world.backend.regrouping.regrouped() == 4
    switch(world, master, [[(1, UP)]] * 4, 2)
    check_objects(world, master)


def test_a_node_that_does_not_operate_keeps_both_27_97(world: World, master: End) -> None:
    """It does not know the table of the cluster."""
    Regrouping(world).run().result()
    master.send(StopOperation())
    world.core.eraser.maintenance_ended()
    world.settle()
    assert world.backend.regrouping.regrouped() == 6


def test_other_rows_are_deleted_when_no_operation_needs_them_27_97(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(world.core.operations), "busy", True)
        Regrouping(world).run().result()
        world.core.eraser.maintenance_ended()  # of another operation
        switch(world, master, SIX, 2)
        world.settle()
        assert world.backend.regrouping.regrouped() == 2
    world.core.eraser.maintenance_ended()
    world.wait(lambda: world.backend.regrouping.regrouped() is None, "the rows are not deleted")
    check_objects(world, master)


def other_tables(world: World) -> list[str]:
    """Return the names of the other tables that another process finds in the database."""
    with closing(sqlite3.connect(world.backend.engine.name)) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
    return others(name for (name,) in names)


def test_the_deletion_of_other_rows_is_durable_though_nothing_else_is_written_27_102(
    world: World, master: End
) -> None:
    Regrouping(world).run().result()
    world.settle()
    assert sorted(other_tables(world)) == ["obj_by_6", "trans_by_6"]
    world.core.eraser.maintenance_ended()
    world.wait(lambda: not world.core.background.jobs, "it does not end")
    world.host.advance(COMMIT_SECONDS)
    world.wait(lambda: not other_tables(world), "the end is in no durable transaction")


def test_a_deletion_that_the_database_refused_is_made_at_the_next_occasion_27_102(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.core.database, "careful", True)  # it refused another statement before
    Regrouping(world).run().result()

    def refuse(length: int) -> bool:
        raise StatementRefused("no such function")

    with monkeypatch.context() as patch:
        patch.setattr(world.backend.regrouping, "drop_regrouped", refuse)
        world.core.eraser.maintenance_ended()
        assert not world.core.background.jobs, "it goes on"
    assert world.host.restarts == 0
    world.core.eraser.maintenance_ended()
    world.wait(lambda: not world.core.background.jobs, "it does not end")
    assert world.backend.tables.get_config("_regrouping") is None


def test_rows_that_an_operation_left_are_deleted_when_the_node_starts_27_97(
    make_world: MakeWorld, world: World
) -> None:
    assert world.backend.regrouping.begin_regrouping(6) == ""
    world.settle()
    world = make_world()
    world.operate(TWO)
    world.wait(lambda: world.backend.tables.get_config("_regrouping") is None, "the rows are not deleted")


def test_a_node_without_the_rows_ends_rather_than_take_the_table_27_95(
    world: World, master: End
) -> None:
    master.send(StopOperation())
    world.send_table(master, SIX, 2)
    world.wait(lambda: world.host.exit_code is not None, "it does not end")
    assert world.backend.tables.partition_count() == 2


def test_a_node_without_cells_regroups_what_it_has_27_95(world: World) -> None:
    master = world.operate([[(2, UP)], [(2, UP)]])
    switch(world, master, [[(2, UP)]] * 6, 2)
    assert world.backend.tables.partition_count() == 6
    master.send(SendPartitionTable(3, 1, [[(1, OUT), (2, UP)]] * 6))
    world.settle()
    assert world.core.cells.assigned() == list(range(6))


@pytest.mark.parametrize("partitions", ["x", None, 1.5])
def test_an_order_of_another_release_fails(world: World, partitions: Any) -> None:
    world.operate(TWO)
    with pytest.raises(StepFailed, match="install the same release"):
        Regrouping(world).run(operation(partitions)).result()


def test_a_database_that_may_not_have_triggers_refuses_before_anything_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.operate(TWO)
    monkeypatch.setattr(world.backend.engine, "trigger_obstacle", lambda: "no triggers here")
    with pytest.raises(StepFailed, match="no triggers here"):
        Regrouping(world).run().result()
    assert world.backend.regrouping.regrouped() is None
