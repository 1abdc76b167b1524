"""AdminCore: messages in, messages out. The master and neoctl are played by the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from neo.admin.asking import ANSWER_SECONDS
from neo.admin.control import NOT_CONNECTED
from neo.node.core import STRANGER_SECONDS
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AcceptIdentification,
    AddPendingNodes,
    Address,
    AnswerCheckReport,
    AnswerClusterState,
    AnswerFinishPrepared,
    AnswerLastIDs,
    AnswerLastTransaction,
    AnswerMonitorInformation,
    AnswerObstacle,
    AnswerPartitionList,
    AnswerPrepared,
    AnswerPrimary,
    AnswerRecovery,
    AnswerScrub,
    AnswerSync,
    AnswerTransactions,
    AnswerTweakPartitionTable,
    AnswerUpstream,
    AskCheckReport,
    AskClusterState,
    AskFinishPrepared,
    AskLastIDs,
    AskLastTransaction,
    AskMonitorInformation,
    AskNodeList,
    AskObstacle,
    AskPartitionList,
    AskPrepared,
    AskPrimary,
    AskRecovery,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
    CheckReplicas,
    EndTransaction,
    Error,
    FlushLog,
    ForgetPrepared,
    Message,
    NodeRow,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotPrimaryMaster,
    Ping,
    Repair,
    RepairCells,
    Request,
    RequestIdentification,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    SetSync,
    Truncate,
    TweakPartitionTable,
)
from neo.topology.masters import RETRY_SECONDS
from tests.support.remote import error_of
from tests.unit.admin.world import A1, ADMIN, M1, MASTER, NODES, TABLE, UP, World

SECOND: Address = ("127.0.0.1", 2002)
DONE = Error(ErrorCode.ACK.value, "as you wish")
#: What the master is asked, and its answers.
RELAYED: list[tuple[Request[Any], Message]] = [
    (AddPendingNodes([2]), DONE),
    (CheckReplicas({0: None}, ZERO_TID, None), DONE),
    (Repair([1], True), DONE),
    (SetClusterState(ClusterState.VERIFYING), DONE),
    (SetNodeState(1, NodeState.DOWN), DONE),
    (SetNumReplicas(1), DONE),
    (Truncate(ZERO_TID), DONE),
    (AskRecovery(), AnswerRecovery(3, None, ZERO_TID)),
    (AskLastIDs(), AnswerLastIDs(ZERO_TID, ZERO_TID)),
    (AskLastTransaction(), AnswerLastTransaction(ZERO_TID)),
    (TweakPartitionTable(True, [1]), AnswerTweakPartitionTable(True, TABLE)),
]
#: The same for a master that announced a feature.
OURS: list[tuple[Request[Any], Message]] = [
    (RepairCells([(0, 1)]), Error(0, "1 cell is copied anew")),
    (
        AskCheckReport(),
        AnswerCheckReport(ZERO_TID, ZERO_TID, [(0, 1, "equal", "")]),
    ),
    (AskUpstream(), AnswerUpstream("up", 4.5, True, "connection refused")),
    (AskObstacle(), AnswerObstacle("S2 must be connected first", "")),
    (
        AskTransactions(),
        AnswerTransactions([(p64(7), 1, None, 1.0, "voted", 0, 0.0)]),
    ),
    (EndTransaction(p64(7)), Error(0, "ended")),
    (
        AskPrepared(9, None),
        AnswerPrepared([(b"x", p64(7), None, 5.0, 1, b"", "prepared")]),
    ),
    (AskFinishPrepared(b"x", True), AnswerFinishPrepared(p64(8))),
    (ForgetPrepared(b"x"), Error(0, "")),
    (AskSync(), AnswerSync([("bak", "sync", 5.0, p64(7), 0.0, "")], None)),
    (SetSync("bak", False), Error(0, "off")),
    (AskScrub(), AnswerScrub(86400.0, 1.0, None, 3)),
]


def name_of(value: object) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    assert world.host.exit_code is None, "the admin node gave up"


def test_introduces_itself_with_its_address_and_the_backups_it_watches(world: World) -> None:
    """Specification 3.3, 3.5."""
    assert world.master.peer.address == MASTER
    assert world.master.take(RequestIdentification) == RequestIdentification(
        *(NodeType.ADMIN, None, ADMIN, "test", None),
        {"backup": [], "features": [FEATURE_OURS]},
    )


def test_mirror_answers_without_asking_the_master(world: World) -> None:
    """Specification 17.3, 17.6."""
    master = world.accept()
    ctl = world.ctl()
    assert ctl.ask(AskPrimary()).result() == AnswerPrimary(M1)
    assert ctl.ask(AskClusterState()).result() == AnswerClusterState(ClusterState.RUNNING)
    assert ctl.ask(AskNodeList(None)).result().node_list == NODES
    assert ctl.ask(AskNodeList(NodeType.STORAGE)).result().node_list == NODES[2:]
    assert ctl.ask(AskPartitionList(0, 0, None)).result() == AnswerPartitionList(1, 0, TABLE)
    assert master.names() == []


def test_partition_list_is_cut_to_the_range(world: World) -> None:
    """Specification 17.5."""
    world.accept()
    ctl = world.ctl()
    assert ctl.ask(AskPartitionList(1, 3, None)).result().row_list == TABLE[1:3]
    assert ctl.ask(AskPartitionList(2, 0, None)).result().row_list == TABLE[2:]


@pytest.mark.parametrize(("first", "last"), [(0, 5), (3, 2), (-1, 2), (5, 0)])
def test_partition_range_outside_the_table_is_denied(world: World, first: int, last: int) -> None:
    """Specification 17.5."""
    world.accept()
    ctl = world.ctl()
    error = error_of(ctl.ask(AskPartitionList(first, last, None)))
    assert error.code is ErrorCode.DENIED
    assert "4 partitions" in error.message
    assert not ctl.closed


def test_mirror_follows_the_notifications(world: World) -> None:
    """Specification 17.1."""
    master = world.accept()
    master.send(NotifyPartitionChanges(2, 1, [(0, 2, CellState.OUT_OF_DATE)]))
    master.send(NotifyClusterInformation(ClusterState.STOPPING))
    down = (NodeType.STORAGE, ("127.0.0.1", 2102), 2, NodeState.DOWN, 7.0)
    master.send(NotifyNodeInformation(11.0, [down]))
    ctl = world.ctl()
    table = ctl.ask(AskPartitionList(0, 1, None)).result()
    assert table == AnswerPartitionList(2, 1, [[(1, UP), (2, CellState.OUT_OF_DATE)]])
    assert ctl.ask(AskClusterState()).result().state is ClusterState.STOPPING
    assert down in ctl.ask(AskNodeList(None)).result().node_list


def test_notified_state_wins_over_an_answer_that_was_under_way(world: World) -> None:
    """Specification 17.1."""
    master = world.master
    master.answer(master.take(RequestIdentification), AcceptIdentification(NodeType.MASTER, M1, A1))
    master.send(NotifyClusterInformation(ClusterState.RUNNING))
    master.answer(master.take(AskClusterState), AnswerClusterState(ClusterState.VERIFYING))
    assert world.ctl().ask(AskClusterState()).result().state is ClusterState.RUNNING


@pytest.mark.parametrize(("question", "answer"), RELAYED, ids=name_of)
def test_what_the_master_is_asked_and_its_answers_are_relayed(
    world: World, question: Request[Any], answer: Message
) -> None:
    """Specification 17.3."""
    master = world.accept()
    # Ids of the two connections must not be the same by chance.
    ctl = world.ctl()
    for _ in range(3):
        ctl.ask(AskPrimary())
    future = ctl.ask(question)
    assert not future.done
    relayed = master.take(type(question))
    assert relayed == question
    master.answer(relayed, answer)
    assert future.result() == answer


@pytest.mark.parametrize(("question", "answer"), OURS, ids=name_of)
def test_a_master_is_asked_only_what_it_announced_to_know(
    world: World, question: Request[Any], answer: Message
) -> None:
    """Specification 17.7, 24.10, 24.15, 24.16, 25.28."""
    master = world.accept()
    master.send(NotifyFeatures(["unheard of"]))
    error = error_of(world.ctl().ask(question))
    assert error.code is ErrorCode.DENIED
    assert error.message == "the primary master does not know this command"
    assert not master.has(type(question))
    master.send(NotifyFeatures([FEATURE_OURS]))
    future = world.ctl().ask(question)
    relayed = master.take(type(question))
    assert relayed == question
    master.answer(relayed, answer)
    assert future.result() == answer


@pytest.mark.parametrize("ours", [False, True])
def test_a_master_of_another_implementation_is_not_asked_what_it_recovers(
    world: World, ours: bool
) -> None:
    """While it recovers a backup, it does not survive the question (specification 2.28, 17.8)."""
    master = world.accept(ClusterState.RECOVERING)
    if ours:
        master.send(NotifyFeatures([FEATURE_OURS]))
    future = world.ctl().ask(AskRecovery())
    assert master.has(AskRecovery) is ours
    if not ours:
        assert future.result() == AnswerRecovery(1, None, None)


def test_refusal_of_the_master_is_copied_and_keeps_the_connection(world: World) -> None:
    """Specification 17.3."""
    master = world.accept()
    ctl = world.ctl()
    future = ctl.ask(SetNodeState(9, NodeState.DOWN))
    master.answer(master.take(SetNodeState), Error(ErrorCode.DENIED.value, "unknown node"))
    error = error_of(future)
    assert (error.code, error.message) == (ErrorCode.DENIED, "unknown node")
    assert not ctl.closed


def test_answers_find_the_asker_whatever_their_order(world: World) -> None:
    master = world.accept()
    first, second = world.ctl(), world.ctl()
    slow, quick = first.ask(SetNumReplicas(1)), second.ask(Truncate(ZERO_TID))
    master.answer(master.take(Truncate), Error(0, "second"))
    master.answer(master.take(SetNumReplicas), Error(0, "first"))
    assert (slow.result().message, quick.result().message) == ("first", "second")


@pytest.mark.parametrize(
    "question",
    [
        AskPrimary(),
        AskNodeList(None),
        AskPartitionList(0, 0, None),
        AskClusterState(),
        AskMonitorInformation(),
        AskLastIDs(),
        SetNumReplicas(1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_without_primary_every_question_is_refused_and_the_asker_sent_away(
    world: World, question: Request[Any]
) -> None:
    """Specification 17.4."""
    ctl = world.ctl()
    error = error_of(ctl.ask(question))
    assert (error.code, error.message) == (ErrorCode.NOT_READY, NOT_CONNECTED)
    assert ctl.closed


def test_master_lost_while_it_was_asked_refuses_and_closes(world: World) -> None:
    """Specification 17.4."""
    master = world.accept()
    ctl = world.ctl()
    future = ctl.ask(Truncate(ZERO_TID))
    master.lose()
    error = error_of(future)
    assert (error.code, error.message) == (ErrorCode.NOT_READY, NOT_CONNECTED)
    assert ctl.closed


def test_answer_for_an_asker_that_left_is_dropped(world: World) -> None:
    master = world.accept()
    ctl = world.ctl()
    ctl.ask(SetNumReplicas(1))
    ctl.lose()
    master.answer(master.take(SetNumReplicas), Error(0, ""))
    assert world.ctl().ask(AskPrimary()).result() == AnswerPrimary(M1)


@pytest.mark.parametrize("stopping", [False, True])
def test_a_master_that_ends_because_its_cluster_stops_is_not_lost(
    world: World, caplog: pytest.LogCaptureFixture, stopping: bool
) -> None:
    caplog.set_level("INFO")
    master = world.accept()
    if stopping:
        master.send(NotifyClusterInformation(ClusterState.STOPPING))
    master.lose("closed by the peer")
    assert ("lost the primary master" in caplog.text) is not stopping
    assert ("the cluster stops: M1" in caplog.text) is stopping


def test_reconnects_with_its_id_and_a_fresh_mirror(world: World) -> None:
    """Specification 4.41."""
    world.accept().lose()
    master = world.master
    assert master is not world.host.dialed[0]
    assert master.take(RequestIdentification).nid == A1
    question = AskNodeList(None)
    assert error_of(world.ctl().ask(question)).code is ErrorCode.NOT_READY
    master.received.append(RequestIdentification(NodeType.ADMIN, A1, ADMIN, "test", None, {}))
    master.ids[id(master.received[-1])] = 0
    master.answer(master.take(RequestIdentification), AcceptIdentification(NodeType.MASTER, M1, A1))
    master.send(NotifyNodeInformation(1.0, NODES[:2]))
    assert world.ctl().ask(question).result().node_list == NODES[:2]
    assert world.ctl().ask(AskPartitionList(0, 0, None)).result().ptid is None


def test_keeps_trying_while_no_master_answers(world: World) -> None:
    for attempt in range(1, 6):
        assert len(world.host.dialed) == attempt
        world.master.lose("connection refused")
        world.host.advance(RETRY_SECONDS)
    assert world.accept() is world.master


def test_secondary_master_points_to_the_primary_and_is_remembered(world: World) -> None:
    world.master.send(NotPrimaryMaster(1, [MASTER, SECOND]))
    assert world.master.peer.address == SECOND
    world.accept()
    third = ("127.0.0.1", 2009)
    rows: list[NodeRow] = [(NodeType.MASTER, third, None, NodeState.DOWN, None)]
    world.master.send(NotifyNodeInformation(12.0, rows))
    assert world.remembered == [[MASTER, SECOND, third]]


def test_partition_outside_the_table_is_the_fault_of_the_master(world: World) -> None:
    master = world.accept()
    master.send(NotifyPartitionChanges(2, 0, [(4, 1, UP)]))
    assert master.closed
    assert "4 rows" in master.complaint
    assert world.master is not master


def test_flush_log_reopens_our_log_and_goes_on_to_the_master(world: World) -> None:
    """Specification 17.9."""
    master = world.accept()
    world.ctl().send(FlushLog())
    assert world.host.logs_reopened == 1
    assert master.names() == ["FlushLog"]
    master.send(FlushLog())
    assert world.host.logs_reopened == 2
    assert master.names() == []


def test_neoctl_may_stay_without_identifying_itself(world: World) -> None:
    """Specification 2.32, 17.2."""
    world.accept()
    ctl = world.ctl()
    world.host.advance(STRANGER_SECONDS * 3)
    assert not ctl.closed
    ctl.ask(Ping()).result()


def test_message_that_is_not_for_an_admin_node_closes_that_connection_only(world: World) -> None:
    world.accept()
    good, bad = world.ctl(), world.ctl()
    bad.send(NotifyClusterInformation(ClusterState.RUNNING))
    assert "unexpected NotifyClusterInformation" in bad.complaint
    assert bad.closed
    assert good.ask(AskPrimary()).result() == AnswerPrimary(M1)


def test_health_asks_the_master_for_the_last_transaction(world: World) -> None:
    """Specification 17.19, 17.20."""
    master = world.accept()
    future = world.ctl().ask(AskMonitorInformation())
    tid = bytes.fromhex("040d24252187ba31")
    master.answer(master.take(AskLastTransaction), AnswerLastTransaction(tid))
    text = "RUNNING; UP_TO_DATE=4; ltid=040d24252187ba31 (2026-11-20 10:45:07.858637)"
    assert future.result() == AnswerMonitorInformation([], [], text)


def test_health_names_this_cluster_nil_where_it_is_unwell(world: World) -> None:
    """Specification 17.19, 17.20, 17.21."""
    master = world.accept()
    ctl = world.ctl()

    def health() -> AnswerMonitorInformation:
        future = ctl.ask(AskMonitorInformation())
        master.answer(master.take(AskLastTransaction), AnswerLastTransaction(ZERO_TID))
        world.host.advance(ANSWER_SECONDS)  # nodes that are down are asked why
        return future.result()

    master.send(NotifyPartitionChanges(2, 1, [(0, 2, CellState.CORRUPTED)]))
    answer = health()
    assert (answer.warning_list, answer.problem_list) == ([None], [])
    down = (NodeType.STORAGE, ("127.0.0.1", 2102), 2, NodeState.DOWN, 7.0)
    master.send(NotifyNodeInformation(11.0, [down]))
    answer = health()
    assert (answer.warning_list, answer.problem_list) == ([], [None])
    line, *more = answer.summary.splitlines()
    assert line.startswith("RUNNING; UP_TO_DATE=4, CORRUPTED=1; DOWN=1; ltid=0000")
    assert "problem: S2 (127.0.0.1:2102) is down -> start neostorage there" in "\n".join(more)


@pytest.mark.parametrize("features", [[], [FEATURE_OURS]])
def test_health_of_a_backup_that_does_not_hear_its_upstream(
    world: World, features: list[str]
) -> None:
    """Specification 17.20, 17.21."""
    master = world.accept(ClusterState.BACKINGUP)
    master.send(NotifyFeatures(features))
    future = world.ctl().ask(AskMonitorInformation())
    master.answer(master.take(AskLastTransaction), AnswerLastTransaction(ZERO_TID))
    master.answer(master.take(AskRecovery), AnswerRecovery(1, ZERO_TID, None))
    if not features:  # of another implementation
        assert not master.has(AskUpstream)
        assert future.result().problem_list == []
        return
    world.tell(AnswerUpstream("up", 45.2, True, "reset"))
    assert future.result().problem_list == [None]
    again = world.ctl().ask(AskMonitorInformation())
    master.answer(master.take(AskLastTransaction), AnswerLastTransaction(ZERO_TID))
    master.answer(master.take(AskRecovery), AnswerRecovery(1, None, None))
    world.tell()
    assert again.result().problem_list == [], "backup mode ended meanwhile"
    assert future.result().summary.splitlines()[0].endswith("; lag=?; upstream not heard for 45 s")
