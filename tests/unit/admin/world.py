"""An admin node between a primary master and neoctl, both played by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neo.admin.core import AdminCore, AdminSettings
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    AcceptIdentification,
    Address,
    Answer,
    AnswerClusterState,
    AskClusterState,
    AskLastTransaction,
    AskRecovery,
    Error,
    NodeRow,
    NotifyNodeInformation,
    Request,
    RequestIdentification,
    SendPartitionTable,
)
from neo.topology.masters import MasterCandidates
from tests.support.remote import FakeHost, Remote

MASTER: Address = ("127.0.0.1", 2001)
ADMIN: Address = ("127.0.0.1", 2003)
M1 = nid_namespace(NodeType.MASTER) + 1
A1 = nid_namespace(NodeType.ADMIN) + 1
UP = CellState.UP_TO_DATE
NODES: list[NodeRow] = [
    (NodeType.ADMIN, ADMIN, A1, NodeState.RUNNING, 5.0),
    (NodeType.MASTER, MASTER, M1, NodeState.RUNNING, None),
    (NodeType.STORAGE, ("127.0.0.1", 2101), 1, NodeState.RUNNING, 6.0),
    (NodeType.STORAGE, ("127.0.0.1", 2102), 2, NodeState.RUNNING, 7.0),
]
TABLE = [[(1, UP)]] * 4


class Outbox:
    """What sends mails: keeps them."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []
        #: Why a mail is not sent; None if it is.
        self.failure: str | None = None

    def send(self, subject: str, text: str, sent: Callable[[str | None], None]) -> None:
        self.mails.append((subject, text))
        sent(self.failure)


class World:
    def __init__(self, *settings: Any, mails: Any = None) -> None:
        """``settings``: those after the name and the address; ``mails``: what sends mails."""
        self.host = FakeHost()
        self.remembered: list[list[Address]] = []
        self.core = AdminCore(
            self.host,
            AdminSettings("test", ADMIN, *settings),
            MasterCandidates([MASTER]),
            self.remembered.append,
            mails,
        )
        self.host.core = self.core
        self.core.start()
        self.core.flush()

    @property
    def master(self) -> Remote:
        """Whoever was dialed last."""
        return self.host.dialed[-1]

    def accept(self, state: ClusterState | None = ClusterState.RUNNING) -> Remote:
        """The master lets the admin node in, and tells all it knows."""
        master = self.master
        question = master.take(RequestIdentification)
        master.answer(question, AcceptIdentification(NodeType.MASTER, M1, A1))
        master.send(NotifyNodeInformation(10.0, NODES))
        master.send(SendPartitionTable(1, 0, TABLE))
        master.answer(master.take(AskClusterState), AnswerClusterState(state))
        return master

    def tell(self, *answers: Answer) -> None:
        """Give the master's answers to what only a master of ours is asked about the health of
        its cluster; what has no answer here is refused, as something that does not apply."""
        given = {type(answer).__name__.removeprefix("Answer"): answer for answer in answers}
        refusal = Error(ErrorCode.DENIED.value, "not here")
        for question in [m for m in self.master.received if isinstance(m, Request)]:
            if not isinstance(question, (AskLastTransaction, AskRecovery)):
                self.master.received.remove(question)
                name = type(question).__name__.removeprefix("Ask")
                self.master.answer(question, given.get(name, refusal))

    def ctl(self) -> Remote:
        return Remote.connect(self.core)
