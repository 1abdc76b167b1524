"""``neoctl set partitions`` on the master: the plan, the switch, and the way back (specification 27.90 to
27.94)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.operations.partitions import HOLD_SECONDS, PAUSE_SECONDS, SWITCH
from neo.master.phases.recovery import STORAGES_SECONDS
from neo.operations.initiator import Refused
from neo.operations.model import Operation
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.packets import (
    AnswerBeginTransaction,
    AnswerRecovery,
    AskBeginTransaction,
    AskRecovery,
    SendPartitionTable,
    Truncate,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import Rows
from tests.unit.master.moves_world import UP, World, names, with_arguments


class Switching:
    """An operation that has regrouped the rows."""

    def __init__(self, partitions: int = 8, **world: Any) -> None:
        self.world = World(**{"pending": 0} | world)
        self.master = self.world.master
        self.operation: Operation = self.world.operation("partitions", partitions=partitions)
        self.own = self.master.operations
        self.step = [step.name for step in self.operation.steps].index(SWITCH)

    def run(self) -> bool:
        self.note()
        return self.own.run(self.operation, self.step)

    def undo(self) -> bool:
        self.note()
        return self.own.undo(self.operation, self.step)

    def note(self) -> None:
        """Note the table as the nodes have it."""
        table = self.world.table
        if table.rows:
            self.before: tuple[int | None, Rows] = table.ptid, rows_of(table.rows)

    def recover(self, *missing: int) -> None:
        """Play the recovery, with nodes that remember what they had; those in ``missing`` are gone."""
        assert self.master.cluster.state is ClusterState.RECOVERING
        self.master.flush()
        for nid, storage in enumerate(self.world.storages, 1):
            if nid not in missing:
                self.world.remember(storage, *self.before)
        self.master.flush()

    def serve(self) -> None:
        self.world.verify(*self.world.storages)
        assert self.master.cluster.state is ClusterState.RUNNING
        self.world.confirm()


def rows_of(rows: list[dict[int, CellState]]) -> Rows:
    return [list(row.items()) for row in rows]


def begin(client: Remote) -> Any:
    return client.ask(AskBeginTransaction(None))


def begun(world: World, asked: Any) -> bool:
    """Return whether a transaction has begun."""
    world.master.flush()
    return bool(asked.done)


def test_the_steps_27_92_27_93() -> None:
    planned = World(count=3).plan("partitions", partitions=8)
    assert names(planned) == [("regroup the rows", [1, 2, 3]), ("switch", [0])]
    assert all(synchronised and undo for *_, synchronised, undo in planned.step_list)
    arguments = World().operation("partitions", partitions=8).arguments
    assert arguments == {"partitions": 8, "before": 4}


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        (4, "there are 4 partitions already"),
        (0, "the number of partitions must be from 1 to 32768, not 0"),
        (32769, "the number of partitions must be from 1 to 32768, not 32769"),
        ("8", "the number of partitions must be from 1 to 32768, not '8'"),
        (None, "the number of partitions must be from 1 to 32768, not None"),
        (True, "the number of partitions must be from 1 to 32768, not True"),
        (
            3,
            "3 is no multiple of 4, and no 1 nodes have all that would be in one partition: choose a"
            " multiple of 4",
        ),
    ],
)
def test_what_is_refused_27_91(partitions: object, text: str) -> None:
    assert World().refusal("partitions", partitions=partitions) == text


def test_a_number_that_is_no_multiple_fits_when_the_nodes_have_all_of_it_27_90() -> None:
    assert len(World().plan("partitions", partitions=2).step_list) == 2
    assert len(World(replicas=1).plan("partitions", partitions=3).step_list) == 2


def test_cells_that_are_not_complete_are_waited_for_27_91() -> None:
    world = World(replicas=1)
    world.storages[0].lose()
    assert "is OUT_OF_DATE on S1: wait until all" in world.refusal("partitions", partitions=8)


def test_a_pack_is_waited_for_27_91(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.master.packs, "running", True)
    assert world.refusal("partitions", partitions=8) == (
        "the database is being packed: try again when that is over"
    )


def test_the_recovery_makes_the_table_27_94() -> None:
    switching = Switching()
    ptid = switching.world.table.ptid
    assert ptid is not None
    assert not switching.run()
    switching.recover()
    for storage in switching.world.storages:
        sent = storage.take(SendPartitionTable)
        assert len(sent.row_list) == 8 and sent.ptid is not None and sent.ptid > ptid
    assert [*switching.world.table.rows] == [{1: UP}, {2: UP}] * 4
    switching.serve()
    switching.world.until(switching.run)
    switching.world.until(lambda: switching.own.finish(switching.operation))


def test_the_way_back_is_another_switch_27_93() -> None:
    switching = Switching()
    switching.world.until(switching.undo)  # nothing was done
    switching.run()
    switching.recover()
    switching.serve()
    assert not switching.undo()
    switching.recover()
    assert len(switching.world.table) == 4
    switching.serve()
    switching.world.until(switching.undo)


def test_a_recovery_without_a_node_leaves_the_table_27_94() -> None:
    """The master tries again when the node is back."""
    switching = Switching(replicas=1)
    assert not switching.run()
    switching.world.storages[1].lose()
    switching.recover(2)
    switching.world.host.advance(STORAGES_SECONDS)
    assert switching.master.cluster.state is ClusterState.VERIFYING
    assert len(switching.world.table) == 4


def test_a_truncation_that_is_to_be_decided_comes_first_27_94() -> None:
    switching = Switching()
    assert not switching.run()
    switching.master.cluster.truncate_tid = bytes(7) + b"\x05"
    switching.recover()
    for storage in switching.world.storages:
        storage.take(Truncate)
        answer = AnswerRecovery(switching.before[0], None, bytes(7) + b"\x05")
        storage.answer(storage.take(AskRecovery), answer)
    switching.master.flush()
    assert len(switching.world.table) == 4


def test_transactions_that_are_open_are_waited_for_and_others_wait_a_moment_27_93() -> None:
    switching = Switching()
    world = switching.world
    client = world.client()
    first = begin(client)
    assert isinstance(first.result(), AnswerBeginTransaction)
    assert not switching.run()
    held = begin(client)
    assert not begun(world, held)
    switching.world.host.advance(HOLD_SECONDS + 0.1)
    assert not switching.run()
    assert begun(world, held), "others may begin when the first does not end"
    assert not switching.run()
    assert begun(world, begin(client)), "and for a while"
    switching.world.host.advance(PAUSE_SECONDS)
    assert not switching.run()
    assert not begun(world, begin(client))
    assert switching.master.cluster.state is ClusterState.RUNNING


def test_transactions_that_were_held_up_begin_when_the_operation_fails_27_93() -> None:
    switching = Switching()
    world = switching.world
    client = world.client()
    begin(client)
    switching.run()
    held = begin(client)
    assert not begun(world, held)
    assert switching.undo()
    assert begun(world, held)


def test_cells_that_are_not_complete_delay_the_switch_27_93() -> None:
    switching = Switching(replicas=1, count=3)
    switching.world.storages[0].lose()
    for _ in range(3):
        assert not switching.run()
    assert switching.master.cluster.state is ClusterState.RUNNING
    assert begun(switching.world, begin(switching.world.client()))


def test_prepared_transactions_delay_the_switch_27_93(monkeypatch: pytest.MonkeyPatch) -> None:
    switching = Switching()
    monkeypatch.setattr(type(switching.master.coordinator), "prepared_count", 1)
    assert not switching.run()
    assert switching.master.cluster.state is ClusterState.RUNNING


def test_an_order_of_another_release_does_not_end_the_master() -> None:
    switching = Switching()
    operation = switching.operation
    strange = with_arguments(operation, {"partitions": "x"})
    with pytest.raises(Refused, match="install the same release everywhere"):
        switching.master.operations.run(strange, switching.step)
    assert not switching.master.operations.undo(strange, switching.step)
