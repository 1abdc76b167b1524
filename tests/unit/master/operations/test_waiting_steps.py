"""A step of the master that waits says for what (specification 27.101)."""

from __future__ import annotations

import pytest

from neo.master.operations.moves import GIVE, HAND_OVER
from neo.master.operations.partitions import HOLD_SECONDS
from neo.master.operations.waiting import LONG_SECONDS
from neo.operations.model import Operation
from neo.protocol.enums import ClusterState
from neo.protocol.packets import AnswerBeginTransaction, AskBeginTransaction
from tests.unit.master.moves_world import World


class Waiting:
    """The step of an operation that the master does."""

    def __init__(self, kind: str, step: str, arguments: dict[str, object], **world: int) -> None:
        self.world = World(**world)
        self.operation: Operation = self.world.operation(kind, **arguments)
        self.step = [each.name for each in self.operation.steps].index(step)

    def said(self) -> str:
        """Try the step; return for what it waits."""
        operations = self.world.master.operations
        assert not operations.run(self.operation, self.step)
        return operations.waits(self.operation, self.step)


def switch(**world: int) -> Waiting:
    return Waiting("partitions", "switch", {"partitions": 8}, **{"pending": 0} | world)


def test_the_switch_names_the_transaction_that_is_open_longest() -> None:
    waiting = switch()
    client = waiting.world.client()
    answer = client.ask(AskBeginTransaction(None)).result()
    assert isinstance(answer, AnswerBeginTransaction)
    client.ask(AskBeginTransaction(None))
    waiting.world.host.advance(3.0)
    said = waiting.said()
    assert said.startswith(f"transaction {answer.ttid.hex()} of C1 is open for 3 s")
    assert "and 1 other: neoctl print transactions" in said


def test_a_try_that_ended_in_vain_says_why_until_the_next_one() -> None:
    waiting = switch()
    client = waiting.world.client()
    answer = client.ask(AskBeginTransaction(None)).result()
    assert isinstance(answer, AnswerBeginTransaction)
    waiting.said()
    waiting.world.host.advance(HOLD_SECONDS + 0.1)
    assert answer.ttid.hex() in waiting.said()
    client.lose()
    assert answer.ttid.hex() in waiting.said(), "the next try is later"


def test_the_switch_names_a_node_that_is_away() -> None:
    waiting = switch(replicas=1, count=3)
    waiting.world.storages[0].lose()
    assert waiting.said() == "S1 must operate: neoctl status"


def test_the_switch_waits_for_prepared_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = switch()
    monkeypatch.setattr(type(waiting.world.master.coordinator), "prepared_count", 2)
    assert waiting.said() == (
        "2 transactions are prepared, and wait for their coordinators: neoctl print prepared"
    )


def test_a_switch_that_waits_for_long_says_so() -> None:
    waiting = switch(replicas=1, count=3)
    waiting.world.storages[0].lose()
    assert "it has waited" not in waiting.said()
    waiting.world.host.advance(LONG_SECONDS * 3)
    assert waiting.said().endswith("; it has waited for 3 min")


def test_a_move_names_the_node_that_must_be_there_and_the_cell_that_is_not_complete() -> None:
    waiting = Waiting("add", HAND_OVER, {"nodes": [3]}, count=2)
    assert waiting.world.master.cluster.state is ClusterState.RUNNING
    operations, give = waiting.world.master.operations, waiting.step - 2
    assert waiting.operation.steps[give].name == GIVE
    operations.run(waiting.operation, give)
    assert "is OUT_OF_DATE on S3: neoctl print pt" in waiting.said()
    pending = waiting.world.master.nodes.get(3)
    assert pending is not None
    waiting.world.master.cluster.disconnect(waiting.world.master.cluster.connected[3])
    assert waiting.said() == "S3 must be connected: neoctl status"
