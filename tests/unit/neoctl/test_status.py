"""``neoctl status``: what is judged a problem, and that it says what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from neo.admin import facts
from neo.admin.facts import duration
from neo.admin.problems import Problem, can_lose, find_problems
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, tid_from_time
from neo.protocol.packets import (
    AnswerCheckReport,
    AnswerClusterState,
    AnswerDownNodes,
    AnswerLastTransaction,
    AnswerNodeList,
    AnswerPartitionList,
    AnswerScrub,
    AnswerUpstream,
    AskCheckReport,
    AskClusterState,
    AskDownNodes,
    AskElection,
    AskLastTransaction,
    AskNodeList,
    AskPartitionList,
    AskPrepared,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
    CellRow,
    Message,
    NodeRow,
)
from neoctl import status
from neoctl.status import EXIT_PROBLEM, EXIT_UNHEARD
from tests.unit.neoctl.conftest import ELECTION, M2, NODES, ROWS, Make

UP, OLD = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
NOW = 1_800_000_000.0


UNKNOWN = ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command")


def storage(nid: int, state: NodeState = NodeState.RUNNING) -> NodeRow:
    return (NodeType.STORAGE, ("127.0.0.1", 2100 + nid), nid, state, 1.0)


def judge(
    nodes: list[NodeRow],
    rows: Sequence[Sequence[CellRow]],
    replicas: int = 0,
    state: ClusterState | None = ClusterState.RUNNING,
    ptid: int | None = 1,
) -> list[Problem]:
    table = facts.table_data(ptid, replicas, rows)
    return find_problems(state, facts.node_data(nodes), table)


def test_complete_cluster_has_no_problem() -> None:
    assert judge([storage(1)], [[(1, UP)], [(1, UP)]]) == []
    copies = [(1, UP), (2, UP)]
    assert judge([storage(1), storage(2)], [copies, copies], replicas=1) == []


def test_several_nodes_without_copies_are_a_warning() -> None:
    (warning,) = judge([storage(1), storage(2)], [[(1, UP)], [(2, UP)]])
    assert warning.severity == "warning"
    assert warning.text.startswith("there are 2 storage nodes and no copies")
    assert warning.advice == "neoctl set replicas 1; neoctl tweak"
    backup = judge(
        [storage(1), storage(2)], [[(1, UP)], [(2, UP)]], state=ClusterState.BACKINGUP
    )
    assert backup == []


def test_node_that_is_down_is_a_problem_with_both_ways_out() -> None:
    (problem, missing) = judge(
        [storage(1), storage(2, NodeState.DOWN)], [[(1, UP), (2, OLD)]], replicas=1
    )
    assert problem.severity == "problem"
    assert problem.text == "S2 (127.0.0.1:2102) is down"
    assert "start neostorage" in problem.advice
    assert "neoctl drop S2" in problem.advice
    assert missing.severity == "warning"
    assert "1 of 2" in missing.text


@pytest.mark.parametrize(
    ("node", "told", "advice"),
    [
        pytest.param(
            (NodeType.MASTER, ("::1", 1), M2, NodeState.DOWN, None),
            "problem: M2 ([::1]:1) is down",
            "start neomaster there; if it is lost for ever: neoctl drop M2",
            id="a master that is down can be dropped",
        ),
        pytest.param(
            (NodeType.MASTER, ("::1", 1), M2, NodeState.PENDING, None),
            "warning: M2",
            "neoctl add M2",
            id="a master that waits is to be added",
        ),
        pytest.param(
            (NodeType.MASTER, ("::1", 1), None, NodeState.DOWN, None),
            "problem: ? ([::1]:1) is down",
            "start neomaster there",
            id="a master without id is not to be dropped",
        ),
        pytest.param(
            storage(2, NodeState.PENDING),
            "warning: S2",
            "neoctl add S2",
            id="a storage node that waits is to be added",
        ),
    ],
)
def test_what_to_do_about_a_node_is_told(node: NodeRow, told: str, advice: str) -> None:
    (problem,) = judge([storage(1), node], [[(1, UP)]])
    assert f"{problem.severity}: {problem.text}".startswith(told)
    assert problem.advice == advice


def test_corrupted_cells_are_counted_by_node() -> None:
    bad = CellState.CORRUPTED
    (warning,) = judge([storage(1), storage(2)], [[(1, UP), (2, bad)], [(1, UP), (2, bad)]])
    assert warning.text.startswith("2 partitions of S2 differ")
    assert "neoctl repair" in warning.advice


def test_replication_is_told_of_running_nodes_only() -> None:
    rows = [[(1, UP), (2, OLD), (3, OLD)]]
    texts = [p.text for p in judge([storage(1), storage(2), storage(3, NodeState.DOWN)], rows)]
    assert "S2 is copying 1 partition" in texts
    assert not any("S3 is copying" in text for text in texts)


def test_copies_that_are_on_their_way_need_no_command() -> None:
    nodes = [storage(1), storage(2), storage(3)]
    rows = [[(1, UP), (2, OLD)]]
    assert {p.advice for p in judge(nodes, rows, replicas=1)} == {"nothing, it takes a while"}
    assert any("neoctl tweak" in p.advice for p in judge(nodes, [*rows, [(1, UP)]], replicas=1))


def test_a_backup_that_waits_for_its_upstream_is_a_problem() -> None:
    waiting = judge([storage(1)], [[(1, UP)]], state=ClusterState.STARTING_BACKUP)
    assert "upstream" in waiting[0].text and "log of the master" in waiting[0].advice
    assert judge([storage(1)], [[(1, UP)]], state=ClusterState.BACKINGUP) == []


def test_recovering_cluster_names_the_nodes_it_waits_for() -> None:
    nodes = [storage(1, NodeState.PENDING), storage(2, NodeState.DOWN)]
    problems = judge(nodes, [[(1, UP)], [(2, UP)]], state=ClusterState.RECOVERING)
    assert "the cluster waits for storage nodes: S2" in [problem.text for problem in problems]


@pytest.mark.parametrize("state", [None, ClusterState.STOPPING, ClusterState.VERIFYING])
def test_cluster_that_does_not_serve_is_a_problem(state: ClusterState | None) -> None:
    assert judge([], [], state=state)[0].severity == "problem"


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([[(1, UP), (2, UP)], [(1, UP), (3, UP)]], 1),
        ([[(1, UP), (2, UP), (3, UP)]], 2),
        ([[(1, UP), (2, UP)], [(3, UP)]], 0),
        ([[(1, UP), (2, OLD)]], 0),
        ([[(1, UP), (9, UP)]], 0),
        ([], 0),
    ],
)
def test_how_many_nodes_may_fail(rows: list[list[CellRow]], count: int) -> None:
    nodes = facts.node_data([storage(1), storage(2), storage(3)])
    assert can_lose(nodes, facts.table_data(1, 0, rows)) == count


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.3, "less than a second"),
        (1, "1 second"),
        (59.9, "59 seconds"),
        (3600, "1 hour"),
        (3 * 86400 + 5, "3 days"),
    ],
)
def test_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be NOW."""
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: NOW))


def test_screen_of_a_healthy_cluster(console: Make, now: None) -> None:
    tid = tid_from_time(NOW - 7200.5)
    ctl = console({AskLastTransaction: AnswerLastTransaction(tid)})
    lines = ctl.lines("status")
    assert lines[0] == "NEO cluster RUNNING   primary master M1"
    assert lines[1].startswith(
        "last transaction 2027-01-15 05:59:59.499999 UTC, 2 hours ago   tid 0x"
    )
    assert lines[2] == ("6 partitions, 1 replica, partition table 1; any 1 storage node may fail")
    (row,) = (line.split() for line in lines if line.endswith("U.UU.U"))
    assert row[3:] == ["RUNNING", "1.0", "GB", "90.0", "GB", "(90%)", "U.UU.U"]
    assert lines[-1] == "No problem."


@pytest.mark.parametrize(
    ("scrub", "line"),
    [
        (
            AnswerScrub(7 * 86400.0, NOW - 7200, None, 2),
            "all in 7 days: 2 of 6 partitions since the master began 2 hours ago",
        ),
        (
            AnswerScrub(86400.0, NOW - 7200, NOW - 60, 0),
            "all in 1 day: the last round ended 1 minute ago",
        ),
    ],
)
def test_screen_tells_how_far_the_scrub_is(
    console: Make, now: None, scrub: AnswerScrub, line: str
) -> None:
    ctl = console({AskScrub: scrub})
    assert ctl.lines("status")[3] == f"copies are compared in the background, {line}"
    assert ctl.data("status")["scrub"] == {
        "period_seconds": scrub.period,
        "begun": scrub.begun,
        "round_end": scrub.round_end,
        "compared": scrub.compared,
    }


@pytest.mark.parametrize("question", [AskScrub, AskSync, AskPrepared, AskTransactions])
def test_a_master_of_another_implementation_shows_the_rest(
    console: Make, question: type[Message]
) -> None:
    ctl = console({question: UNKNOWN})
    assert ctl.lines("status")[-1] == "No problem."
    data = ctl.data("status")
    assert question is not AskScrub or data["scrub"] is None
    assert question is not AskSync or data["sync"] is None


def test_screen_without_scrub_says_nothing_of_it(console: Make) -> None:
    ctl = console({AskScrub: AnswerScrub(0.0, NOW, None, 0)})
    assert ctl("status") == 0
    assert "compared" not in ctl.out


def test_screen_of_three_masters_without_one(console: Make) -> None:
    ctl = console({AskElection: ELECTION})
    assert ctl("status") == 0
    assert ctl.out.splitlines()[0] == (
        "NEO cluster RUNNING   primary master M1, epoch 3, lease 1.8 s, log 17"
    )
    assert "warning: 2 of 3 masters run and vote: no other may fail" in ctl.out


def test_screen_of_a_broken_cluster_says_what_to_do_and_fails(console: Make) -> None:
    nodes: list[NodeRow] = [*NODES[1:], (*NODES[0][:3], NodeState.DOWN, 1.0)]
    ctl = console(
        {
            AskNodeList: AnswerNodeList(nodes),
            AskPartitionList: AnswerPartitionList(3, 1, ROWS * 20),
        }
    )
    assert ctl("status") == EXIT_PROBLEM
    assert "no transaction yet" in ctl.out
    assert "80 UP_TO_DATE" in ctl.out, "120 letters would not fit"
    assert "problem: S3 (127.0.0.1:2103) is down -> start neostorage there" in ctl.out


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            AnswerUpstream("up", 45.9, True, "connection refused"),
            "problem: this standby gets nothing from its upstream cluster 'up' since 2027-01-15 "
            "07:59:14 UTC, 45 seconds ago: connection refused -> start the upstream cluster",
        ),
        (
            AnswerUpstream("up", 7200.0, False, "master 127.0.0.1:1: no answer"),
            "problem: this standby never reached its upstream cluster 'up', and tries since 2027-01-15 "
            "06:00:00 UTC, 2 hours ago: master 127.0.0.1:1: no answer -> start the upstream cluster",
        ),
        (
            AnswerUpstream("", 7200.0, False, "'upstream_cluster' is not set"),
            "problem: this cluster is a standby, but follows no other: 'upstream_cluster' is not set",
        ),
    ],
)
def test_a_backup_that_gets_nothing_says_since_when(
    console: Make, now: None, answer: AnswerUpstream, text: str
) -> None:
    backup = AnswerClusterState(ClusterState.BACKINGUP)
    ctl = console({AskClusterState: backup, AskUpstream: answer})
    assert ctl("status") == EXIT_UNHEARD == 1
    assert text in ctl.out and "No problem." not in ctl.out
    assert ctl("--json", "status") == EXIT_UNHEARD
    upstream = json.loads(ctl.out)["upstream"]
    assert (upstream["heard"], upstream["reason"]) == (False, answer.reason)


@pytest.mark.parametrize(
    "answer",
    [AnswerUpstream("up", None, True, ""), ErrorAnswer(ErrorCode.DENIED, "it does not know that")],
    ids=["heard", "another implementation"],
)
def test_a_backup_that_follows_has_no_problem(console: Make, answer: object) -> None:
    backup = AnswerClusterState(ClusterState.BACKINGUP)
    ctl = console({AskClusterState: backup, AskUpstream: answer})
    assert ctl("status") == 0
    assert ctl.out.splitlines()[-1] == "No problem."


def test_a_storage_node_that_is_down_says_itself_what_it_waits_for(console: Make) -> None:
    down = [(*row[:3], NodeState.DOWN, 1.0) for row in NODES[:3]]
    said = AnswerDownNodes([(1, "the database failed: its server is away"), (2, "")])
    ctl = console({AskNodeList: AnswerNodeList([*down, *NODES[3:]]), AskDownNodes: said})
    assert ctl("status") == EXIT_PROBLEM
    assert (
        "S1 (127.0.0.1:2101) is down, but its process runs, and says: the database failed: its server "
        "is away -> mend that: the node comes back by itself"
    ) in ctl.out
    assert "S2 (127.0.0.1:2102) is down, but its process runs -> its log says why" in ctl.out
    assert "S3 (127.0.0.1:2103) is down -> start neostorage there" in ctl.out


def test_without_nodes_that_are_down_nobody_is_asked(console: Make) -> None:
    ctl = console()
    ctl("status")
    assert not any(isinstance(message, AskDownNodes) for message in ctl.admin.asked)


def test_advice_of_a_cluster_that_waits_is_what_its_master_would_obey() -> None:
    nodes = [storage(1, NodeState.PENDING), storage(2, NodeState.DOWN)]
    for forced, expected in (("", True), ("some partitions cannot be read without S2", False)):
        obstacle = {"reason": "S2 must be connected first", "forced": forced}
        table = facts.table_data(1, 1, [[(1, UP), (2, UP)]])
        (state, node) = find_problems(
            ClusterState.RECOVERING, facts.node_data(nodes), table, obstacle
        )
        assert "(S2 must be connected first)" in state.text
        assert ("neoctl start" in state.advice) is expected
        assert node.advice == "start neostorage there", "nothing can be dropped or balanced now"


def test_screen_before_the_first_start(console: Make) -> None:
    ctl = console(
        {
            AskClusterState: AnswerClusterState(ClusterState.RECOVERING),
            AskPartitionList: AnswerPartitionList(None, 0, [[], []]),
            AskNodeList: AnswerNodeList([storage(1, NodeState.PENDING)]),
        }
    )
    assert ctl("status") == EXIT_PROBLEM
    assert "no partition table yet" in ctl.out
    assert "no database was created yet; S1 wait for it" in ctl.out
    assert "neoctl start" in ctl.out


def test_clock_behind_the_last_transaction_is_noticed(console: Make, now: None) -> None:
    ctl = console({AskLastTransaction: AnswerLastTransaction(tid_from_time(NOW + 60))})
    ctl("status")
    assert "in the future: check the clocks" in ctl.out


def test_copies_that_lacked_transactions_are_a_warning(console: Make) -> None:
    """They are copied again; the disk may lose more."""
    text = "S2 lacks at least 3 transactions from 0000000000000010 on: replicated from S1"
    rows = [(0, None, "behind", text), (1, None, "behind", text), (2, 1, "equal", "")]
    ctl = console({AskCheckReport: AnswerCheckReport(ZERO_TID, ZERO_TID, rows)})
    assert ctl("status") == 0
    assert (
        "warning: 2 partitions had copies that lacked transactions when the cluster started -> neoctl"
        " print check; suspect the disks of the nodes that it names; wait until all is copied; neoctl"
        " check\n"
    ) in ctl.out
