from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, nid_namespace
from neo.protocol.packets import (
    AnswerCheckReport,
    AnswerClientCaches,
    AnswerClusterState,
    AnswerContents,
    AnswerDownNodes,
    AnswerElection,
    AnswerLastIDs,
    AnswerLastTransaction,
    AnswerMonitorInformation,
    AnswerNodeConditions,
    AnswerNodeDisks,
    AnswerNodeList,
    AnswerOperations,
    AnswerPartitionList,
    AnswerPrepared,
    AnswerPrimary,
    AnswerRecovery,
    AnswerSync,
    AnswerTransactions,
    AskCheckReport,
    AskClientCaches,
    AskClusterState,
    AskContents,
    AskDownNodes,
    AskElection,
    AskLastIDs,
    AskLastTransaction,
    AskMonitorInformation,
    AskNodeConditions,
    AskNodeDisks,
    AskNodeList,
    AskObstacle,
    AskOperations,
    AskPartitionList,
    AskPrepared,
    AskPrimary,
    AskRecovery,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
    Message,
    NodeRow,
)
from neoctl.__main__ import main
from tests.unit.neoctl.scripted import ScriptedAdmin

UP = CellState.UP_TO_DATE
M1 = nid_namespace(NodeType.MASTER) + 1
A1 = nid_namespace(NodeType.ADMIN) + 1
RUNNING = NodeState.RUNNING
# The cluster of the recorded forms: 3 storage nodes, 1 replica, 6 partitions.
ROWS = [[(1, UP), (2, UP)], [(1, UP), (3, UP)], [(2, UP), (3, UP)]] * 2
NODES: list[NodeRow] = [
    (NodeType.STORAGE, ("127.0.0.1", 2103), 3, RUNNING, 1795177991.461422),
    (NodeType.STORAGE, ("127.0.0.1", 2101), 1, RUNNING, 1795177991.445111),
    (NodeType.STORAGE, ("127.0.0.1", 2102), 2, RUNNING, 1795177991.448297),
    (NodeType.MASTER, ("127.0.0.1", 2001), M1, RUNNING, None),
    (NodeType.ADMIN, ("127.0.0.1", 2003), A1, RUNNING, 1795177991.414714),
]
M2 = M1 + 1
#: Of three masters, one of which is away.
ELECTION = AnswerElection(
    3,
    1.8414,
    17,
    4,
    [
        (M1, ("127.0.0.1", 2001), "primary", 17, ""),
        (M2, ("127.0.0.1", 2002), "secondary", 17, ""),
        (M1 + 2, ("127.0.0.1", 2010), "secondary", 12, "is not heard"),
    ],
)
#: Of each storage node.
VERSION, GB = "0.1.0", 10**9
DISKS = [("database", 90 * GB, 100 * GB)]
SUMMARY = "RUNNING; UP_TO_DATE=12; ltid=0000000000000000 (1900-01-01 00:00:00)"


def healthy() -> dict[type[Message], Any]:
    """What the admin node of that cluster answers."""
    return {
        AskClusterState: AnswerClusterState(ClusterState.RUNNING),
        AskPrimary: AnswerPrimary(M1),
        AskCheckReport: AnswerCheckReport(ZERO_TID, ZERO_TID, []),
        AskDownNodes: AnswerDownNodes([]),
        AskUpstream: ErrorAnswer(ErrorCode.DENIED, "this cluster is no standby"),
        AskObstacle: ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command"),
        AskElection: ErrorAnswer(ErrorCode.DENIED, "this cluster has one master"),
        AskScrub: ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command"),
        AskSync: AnswerSync([], None),
        AskContents: AnswerContents([]),
        AskNodeConditions: AnswerNodeConditions([]),
        AskClientCaches: AnswerClientCaches([]),
        AskNodeDisks: AnswerNodeDisks([(nid, VERSION, GB, DISKS) for nid in (1, 2, 3)]),
        AskOperations: AnswerOperations([]),
        AskNodeList: lambda question: AnswerNodeList(
            [row for row in NODES if question.node_type in (None, row[0])]
        ),
        AskPartitionList: AnswerPartitionList(1, 1, ROWS),
        AskRecovery: AnswerRecovery(1, None, None),
        AskTransactions: AnswerTransactions([]),
        AskPrepared: AnswerPrepared([]),
        AskLastIDs: AnswerLastIDs(ZERO_OID, ZERO_TID),
        AskLastTransaction: AnswerLastTransaction(ZERO_TID),
        AskMonitorInformation: AnswerMonitorInformation([], [], SUMMARY),
    }


class Console:
    """Runs neoctl against a scripted admin node, in this process."""

    def __init__(self, admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]) -> None:
        self.admin = admin
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        """The exit code; output in ``out`` and ``err``, what was asked in ``admin.asked``."""
        self.admin.asked.clear()
        code = main(["-a", self.admin.name, *words])
        self.out, self.err = self._capsys.readouterr()
        return code

    def lines(self, *words: str) -> list[str]:
        """Return the lines that a command writes to its standard output. It must not fail."""
        assert self(*words) == 0, self.err
        return self.out.splitlines()

    def data(self, *words: str) -> Any:
        """Return what a command prints with ``--json``. It must not fail."""
        assert self(*words, "--json") == 0, self.err
        return json.loads(self.out)

    def problems(self) -> tuple[int, list[str]]:
        """Return the exit code of ``status``, and its lines about problems."""
        code = self("status")
        begin = ("problem", "warning", "No problem")
        return code, [line for line in self.out.splitlines() if line.startswith(begin)]


Make = Callable[..., Console]


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Iterator[Make]:
    """Takes what differs from the healthy cluster, by type of question."""
    with ExitStack() as stack:

        def make(answers: dict[type[Message], Any] | None = None) -> Console:
            admin = stack.enter_context(ScriptedAdmin({**healthy(), **(answers or {})}))
            return Console(admin, capsys)

        yield make
