"""Comparison of copies before service (neo/master/phases/comparison.py)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from neo.protocol.enums import CellState, NodeState
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerCheckReport,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerObstacle,
    AnswerTails,
    AskCheckReport,
    AskLastIDs,
    AskLockedTransactions,
    AskObstacle,
    AskRecovery,
    AskTails,
    NotifyPartitionChanges,
    SetClusterState,
    StartOperation,
    TailRow,
)
from tests.support.remote import Remote, error_of
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
from tests.unit.master.uneventful import nothing_prepared

TWO: Rows = [[(1, UP), (2, UP)]]
#: Tids of transactions in the one partition.
ALL = range(1, 7)


def row(tids: Iterable[int], proven: bool = True, partition: int = 0) -> TailRow:
    found = [tid(number) for number in tids]
    return partition, proven, found, [(each, bytes(8)) for each in found]


class Compared(MasterWorld):
    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self, rows: Rows = TWO, ptid: int = 5) -> None:
        super().__init__(partitions=len(rows), replicas=1)
        self.rows, self.ptid = rows, ptid
        self.nodes: dict[int, Remote] = {}

    def start(self, *nids: int, foreign: int | None = None) -> None:
        """Join nodes, and verify until they are asked for tails. ``foreign``: a node without features."""
        for nid in nids:
            self.extra = {} if nid == foreign else Compared.extra
            self.nodes[nid] = self.storage(nid, self.ptid, self.rows, nid=nid)
        self.verified()

    def verified(self) -> None:
        here = [node for node in self.nodes.values() if not node.closed]
        for node in here:
            node.answer(node.take(AskLockedTransactions), AnswerLockedTransactions({}))
        nothing_prepared(here)
        for nid, node in self.nodes.items():
            if node in here:
                last = AnswerLastIDs(tid(9), tid(6)) if nid == 2 else AnswerLastIDs(tid(4), tid(3))
                node.answer(node.take(AskLastIDs), last)

    def tails(self, nid: int, *rows: TailRow, pack_tid: int = 0) -> AskTails:
        node = self.nodes[nid]
        question = node.take(AskTails)
        node.answer(question, AnswerTails(tid(pack_tid), list(rows)))
        assert isinstance(question, AskTails)
        return question

    def leave(self, nid: int) -> None:
        self.nodes[nid].lose()

    def recover(self) -> None:
        """Answer AskRecovery for all nodes, when the cluster is back in RECOVERING."""
        for node in self.nodes.values():
            if not node.closed and node.has(AskRecovery):
                self.remember(node, self.ptid, self.rows)

    def report(self) -> list[tuple[int, int | None, str, str]]:
        answer = self.admin().ask(AskCheckReport()).result()
        assert isinstance(answer, AnswerCheckReport)
        return answer.row_list

    def obstacle(self) -> AnswerObstacle:
        answer = self.admin().ask(AskObstacle()).result()
        assert isinstance(answer, AnswerObstacle)
        return answer

    def states(self, partition: int = 0) -> dict[int, CellState]:
        return self.master.partitions.rows[partition]


@pytest.fixture
def world() -> Compared:
    return Compared()


def test_equal_copies_serve(world: Compared) -> None:
    """Specification 5.13."""
    world.start(1, 2)
    assert world.master.cluster.state is VERIFYING
    assert world.tails(1, row(ALL)) == AskTails([0], None, 100)
    assert world.master.cluster.state is VERIFYING
    world.tails(2, row(ALL))
    assert world.master.cluster.state is RUNNING
    assert world.states() == {1: UP, 2: UP}
    assert not world.report()


def test_who_is_behind_is_out_of_date_before_anybody_serves(
    world: Compared, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 5.17, 5.18."""
    caplog.set_level(logging.ERROR)
    world.start(1, 2)
    world.tails(1, row([1, 2, 3]))
    world.tails(2, row(ALL))
    # The old copy must have no row that the other one lacks.
    assert world.tails(1, row([1, 2, 3])).max_tid == tid(3)
    assert world.master.cluster.state is VERIFYING
    world.tails(2, row([1, 2, 3]))
    assert world.master.cluster.state is RUNNING
    assert world.states() == {1: OUT, 2: UP}
    assert (world.master.cluster.last_tid, world.master.cluster.oids.last) == (tid(6), tid(9))
    node = world.nodes[1]
    changes = node.take(NotifyPartitionChanges)
    assert changes.cell_list == [(0, 1, OUT)]
    assert node.take(StartOperation) and not node.has(NotifyPartitionChanges)
    assert "S1 went back in time: in partitions 0 it lacks transactions from 0000000000000004 on" in (
        caplog.text
    )
    assert world.report() == [
        (
            *(0, None, "behind"),
            "S1 lacks at least 3 transactions from 0000000000000004 on: replicated from S2",
        )
    ]


def test_a_gap_before_the_last_transaction_is_found(world: Compared) -> None:
    world.start(1, 2)
    world.tails(1, row(ALL))
    world.tails(2, row([1, 2, 6]))
    for nid, found in ((1, ALL), (2, [1, 2, 6])):
        world.tails(nid, row(found))
    assert world.states() == {1: UP, 2: OUT}


def test_a_feeding_cell_that_is_behind_goes() -> None:
    """Specification 5.17."""
    world = Compared([[(1, UP), (2, FEEDING)]])
    world.start(1, 2)
    world.tails(1, row(ALL))
    world.tails(2, row([1]))
    for nid in (1, 2):
        world.tails(nid, row([1]))
    assert world.states() == {1: UP}


def conflict(world: Compared) -> None:
    world.start(1, 2)
    world.tails(1, row([1, 2, 3, 5]))
    world.tails(2, row([1, 2, 3, 4]))
    assert world.master.cluster.state is RECOVERING
    world.recover()


def test_where_nobody_can_be_believed_the_operator_decides(world: Compared) -> None:
    """The operator stops one node, starts the cluster, and starts that node again: it becomes a copy
    (specification 5.19)."""
    conflict(world)
    problem = (
        "the copies of partitions 0 on S1, S2 differ from 0000000000000004 on, and none has all that the"
        " others have (neoctl print check): stop the node that is not to be believed, then neoctl start;"
        " when it is started again it becomes a copy of the others"
    )
    refused = error_of(world.admin().ask(SetClusterState(VERIFYING)))
    assert refused.message == f"the cluster cannot start: {problem}"
    text = (
        "S1 lacks at least 1 transaction from 0000000000000004 on, S2 lacks at least 1 transaction from"
        " 0000000000000005 on: stop the node that is not to be believed, then neoctl start; when it is"
        " started again it becomes a copy of the others"
    )
    assert world.report() == [(0, None, "undecided", text)]
    world.leave(1)
    assert world.master.cluster.state is RECOVERING
    world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verified()
    world.tails(2, row([1, 2, 3, 4]))
    assert world.master.cluster.state is RUNNING
    assert world.states() == {1: OUT, 2: UP}
    assert not world.report()
    world.join_storage(1)
    assert world.states() == {1: OUT, 2: UP}


def test_a_node_that_comes_back_is_compared_again(world: Compared) -> None:
    """The node may have got the right disk meanwhile (specification 5.19)."""
    conflict(world)
    world.leave(2)
    assert world.master.cluster.state is RECOVERING
    world.start(2)
    for nid in (1, 2):
        world.tails(nid, row([1, 2, 3, 5]))
    assert world.master.cluster.state is RUNNING and world.states() == {1: UP, 2: UP}


def test_a_master_that_served_does_not_go_on_with_one_of_them(world: Compared) -> None:
    """Otherwise the node would serve as soon as the other one is lost."""
    world.start(1, 2)
    for nid in (1, 2):
        world.tails(nid, row([1]))
    world.make_ready(*world.nodes.values())
    world.ptid, world.rows = world.master.partitions.ptid or 0, world.master.partitions.row_list()
    world.master.back_to_recovery("a test")
    world.master.flush()
    world.recover()
    world.verified()
    world.tails(1, row([1, 2]))
    world.tails(2, row([1, 3]))
    assert world.master.cluster.state is RECOVERING
    world.recover()
    world.leave(1)
    assert world.master.cluster.state is RECOVERING
    told = world.obstacle()
    assert told.forced == ""
    assert told.reason.endswith("of the others. S1 may also come back")


def test_an_old_copy_may_have_what_the_others_never_had(world: Compared) -> None:
    """The cell is far behind, and its node was alone for a while before that (specification 5.18)."""
    world.start(1, 2)
    world.tails(1, row([*range(1, 50), 60]))
    world.tails(2, row(range(101, 201)))
    assert world.tails(1, row([*range(1, 50), 60])).max_tid == tid(60)
    world.tails(2, row(range(1, 50)))
    assert world.master.cluster.state is RECOVERING
    assert world.report()[0][2] == "undecided"


def test_a_cell_that_was_never_complete_is_replicated(
    world: Compared, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    world.start(1, 2)
    world.tails(1, row(ALL, proven=False))
    world.tails(2, row(ALL))
    assert world.master.cluster.state is RUNNING and world.states() == {1: OUT, 2: UP}
    assert "S1 never had all of partitions 0, as its own database says" in caplog.text


def test_the_only_copy_that_was_never_complete_waits_for_the_operator() -> None:
    """Specification 5.20."""
    world = Compared([[(1, UP)]])
    world.start(1)
    world.tails(1, row(ALL, proven=False))
    assert world.master.cluster.state is RECOVERING
    world.recover()
    ((_, _, finding, text),) = world.report()
    assert (finding, text) == (
        "undecided",
        "S1 never had all of it, and no other copy is here: neoctl start",
    )
    world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verified()
    world.tails(1, row(ALL, proven=False))
    assert world.master.cluster.state is RUNNING and world.states() == {1: UP}


def test_a_node_without_the_feature_is_believed(world: Compared) -> None:
    """Specification 5.13."""
    world.start(1, 2, foreign=1)
    world.tails(2, row([1]))
    assert world.master.cluster.state is RUNNING and world.states() == {1: UP, 2: UP}
    assert not world.nodes[1].has(AskTails)


def test_it_is_a_better_copy_than_one_that_was_never_complete(world: Compared) -> None:
    world.start(1, 2, foreign=1)
    world.tails(2, row([1], proven=False))
    assert world.master.cluster.state is RUNNING and world.states() == {1: UP, 2: OUT}


def test_a_node_that_is_lost_meanwhile_decides_nothing(world: Compared) -> None:
    world.start(1, 2)
    world.tails(2, row([1]))
    world.leave(1)
    assert world.master.cluster.state is RUNNING and world.states() == {1: OUT, 2: UP}


def test_a_node_that_had_more_and_is_lost_meanwhile_is_not_forgotten(world: Compared) -> None:
    """The operator is told before an old copy is read (specification 5.20)."""
    world.start(1, 2)
    world.tails(1, row([1, 2, 3]))
    world.tails(2, row(ALL))
    world.leave(2)
    world.tails(1, row([1, 2, 3]))
    assert world.master.cluster.state is RECOVERING
    world.rows, world.ptid = [[(1, UP), (2, OUT)]], 1006
    world.nodes[1].take(AskRecovery)  # whether it knows that the other one is lost
    world.recover()
    assert world.obstacle().reason == (
        "S2 was lost while copies were compared, and has transactions from 0000000000000004 on that S1"
        " lacks in partitions 0. To keep them: stop S1 and the master, start the master and S2, then"
        " neoctl start. To give them up: neoctl start"
    )
    world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verified()
    world.tails(1, row([1, 2, 3]))
    assert world.master.cluster.state is RUNNING and world.states() == {1: UP, 2: OUT}


def test_partitions_are_asked_in_portions() -> None:
    """Specification 5.13."""
    world = Compared([[(1, UP), (2, UP)]] * 100)
    world.start(1, 2)
    for nid in (1, 2):
        first, second = (world.nodes[nid].take(AskTails) for _ in range(2))
        assert first.partition_list + second.partition_list == list(range(100))
        for question in (first, second):
            rows = [row(ALL, partition=p) for p in question.partition_list]
            world.nodes[nid].answer(question, AnswerTails(tid(0), rows))
    assert world.master.cluster.state is RUNNING


def test_a_node_that_joins_a_cluster_that_serves_has_no_readable_cell(world: Compared) -> None:
    """The node replicates, whatever its disk has, so it need not be compared."""
    world.start(1, 2)
    for nid in (1, 2):
        world.tails(nid, row(ALL))
    world.make_ready(*world.nodes.values())
    world.leave(2)
    back = world.join_storage(2)
    node = world.master.nodes.get(2)
    assert node is not None and node.state is NodeState.RUNNING
    assert world.states() == {1: UP, 2: OUT}
    assert not back.has(AskTails)
