"""Handler of ``neoctl``: answers from the mirror, or forwards to the primary master."""

from __future__ import annotations

import logging

from neo.admin.asking import answer_down
from neo.admin.health import Examiner
from neo.admin.primary import Primary, PrimaryLink
from neo.admin.watching import Watching
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_OURS,
    AbortOperation,
    AddPendingNodes,
    Answer,
    AnswerClusterState,
    AnswerMonitorInformation,
    AnswerNodeList,
    AnswerPartitionList,
    AnswerPrimary,
    AnswerRecovery,
    AskBeginOperation,
    AskCheckReport,
    AskClientCaches,
    AskClusterState,
    AskContents,
    AskDownNodes,
    AskElection,
    AskFinishPrepared,
    AskLastIDs,
    AskLastTransaction,
    AskLostContents,
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
    CheckReplicas,
    EndTransaction,
    Error,
    FlushLog,
    ForgetOperation,
    ForgetPrepared,
    ForgetTable,
    Message,
    Repair,
    RepairCells,
    Request,
    RequestIdentification,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    SetPrimary,
    SetSync,
    Truncate,
    TweakPartitionTable,
)

logger = logging.getLogger("neo.admin")

NOT_CONNECTED = "Not connected to a primary master."

#: Commands and questions of our own, which the primary master must know.
COMMANDS = (
    AbortOperation,
    AskBeginOperation,
    AskCheckReport,
    AskFinishPrepared,
    EndTransaction,
    ForgetOperation,
    ForgetPrepared,
    ForgetTable,
    RepairCells,
    SetPrimary,
    SetSync,
)
QUESTIONS = (
    AskContents,
    AskElection,
    AskLostContents,
    AskNodeConditions,
    AskNodeDisks,
    AskObstacle,
    AskOperations,
    AskPrepared,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
)


class ControlHandler(Handler):
    """Handles questions and commands of ``neoctl``, which does not identify itself."""

    def __init__(
        self, node: Core, link: PrimaryLink, watching: Watching, examiner: Examiner
    ) -> None:
        self._node = node
        self._link = link
        self._watching = watching
        self._examiner = examiner

    def _primary(self, peer: Peer, message_id: int) -> Primary | None:
        """Return the primary master. Without it, refuse the question, disconnect the peer and return
        None."""
        primary = self._link.primary
        if primary is None:
            peer.refuse(message_id, ErrorCode.NOT_READY, NOT_CONNECTED)
            peer.close()
        return primary

    # -- answered by the mirror --------------------------------------------------------------------

    @on(AskPrimary)
    def ask_primary(self, peer: Peer, message_id: int, message: AskPrimary) -> Message | None:
        if (primary := self._primary(peer, message_id)) is None:
            return None
        assert primary.nid is not None
        return AnswerPrimary(primary.nid)

    @on(AskClusterState)
    def ask_state(self, peer: Peer, message_id: int, message: AskClusterState) -> Message | None:
        primary = self._primary(peer, message_id)
        return None if primary is None else AnswerClusterState(primary.state)

    @on(AskNodeList)
    def ask_nodes(self, peer: Peer, message_id: int, message: AskNodeList) -> Message | None:
        if (primary := self._primary(peer, message_id)) is None:
            return None
        return AnswerNodeList(
            [node.row() for node in primary.mirror.nodes if message.node_type in (None, node.type)]
        )

    @on(AskPartitionList)
    def ask_partitions(
        self, peer: Peer, message_id: int, message: AskPartitionList
    ) -> Message | None:
        if (primary := self._primary(peer, message_id)) is None:
            return None
        table = primary.mirror.partitions
        first, last = message.min_offset, message.max_offset or len(table)
        if not 0 <= first <= last <= len(table):
            raise ErrorAnswer(
                ErrorCode.DENIED, f"there are {len(table)} partitions, not [{first}, {last})"
            )
        return AnswerPartitionList(table.ptid, table.replicas, table.row_list(first, last))

    @on(AskMonitorInformation)
    def ask_health(self, peer: Peer, message_id: int, message: AskMonitorInformation) -> None:
        def answer(found: AnswerMonitorInformation | None) -> None:
            if found is not None:
                peer.answer(message_id, found)
            elif self._primary(peer, message_id) is not None:
                peer.refuse(message_id, ErrorCode.NOT_READY, NOT_CONNECTED)
                peer.close()

        self._examiner.examine(answer)

    @on(AskDownNodes)
    def ask_down(self, peer: Peer, message_id: int, message: AskDownNodes) -> None:
        if (primary := self._primary(peer, message_id)) is not None:
            nodes = primary.mirror.nodes
            self._node.spawn(answer_down(self._node, nodes, peer, message_id))

    @on(RequestIdentification)
    def identify(self, peer: Peer, message_id: int, message: RequestIdentification) -> None:
        """Accept the admin of a backup cluster. neoctl does not identify itself."""
        handler = self._watching.accept(peer, message_id, message)
        if handler is None:
            if message.node_type is NodeType.ADMIN:
                text = f"this admin node does not watch over a standby cluster {message.name!r}"
                logger.warning("%r: %s; see setting 'monitor_backup'", peer, text)
            else:
                text = f"an admin node is no place for a {message.node_type.name.lower()}"
                logger.warning("%r: %s", peer, text)
            peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
            peer.close()
        else:
            logger.info("the admin of standby cluster %s reports from %r", message.name, peer)
            peer.handler = handler

    # -- forwarded to the master -------------------------------------------------------------------

    @on(
        AddPendingNodes,
        CheckReplicas,
        Repair,
        SetClusterState,
        SetNodeState,
        SetNumReplicas,
        Truncate,
        TweakPartitionTable,
    )
    def command(self, peer: Peer, message_id: int, message: Request[Answer]) -> None:
        logger.info("%r commands: %s", peer, message)
        self.question(peer, message_id, message)

    @on(*COMMANDS)
    def our_command(self, peer: Peer, message_id: int, message: Request[Answer]) -> None:
        if self._knows(FEATURE_OURS, peer, message_id):
            self.command(peer, message_id, message)

    @on(*QUESTIONS)
    def our_question(self, peer: Peer, message_id: int, message: Request[Answer]) -> None:
        if self._knows(FEATURE_OURS, peer, message_id):
            self.question(peer, message_id, message)

    @on(AskClientCaches)
    def client_caches(self, peer: Peer, message_id: int, message: AskClientCaches) -> None:
        if self._knows(FEATURE_CACHES, peer, message_id):
            self.question(peer, message_id, message)

    def _knows(self, feature: str, peer: Peer, message_id: int) -> bool:
        """Return whether there is a primary master. Raise ErrorAnswer if it did not announce a feature:
        it is of another implementation, or older."""
        if (primary := self._primary(peer, message_id)) is None:
            return False
        if feature not in primary.features:
            raise ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command")
        return True

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, message: AskRecovery) -> Message | None:
        """Forward, except to a master of another implementation in RECOVERING, which would crash if it
        recovers a backup (specification 2.28). Then answer from the mirror."""
        primary = self._link.primary
        if primary is None or primary.features or primary.state is not ClusterState.RECOVERING:
            self.question(peer, message_id, message)
            return None
        return AnswerRecovery(primary.mirror.partitions.ptid, None, None)

    @on(AskLastIDs, AskLastTransaction)
    def question(self, peer: Peer, message_id: int, message: Request[Answer]) -> None:
        primary = self._primary(peer, message_id)
        if primary is not None:
            primary.peer.ask(message).then(lambda answer: self._answer(peer, message_id, answer))

    def _answer(self, peer: Peer, message_id: int, future: Future[Answer]) -> None:
        """Forward the master's answer. If the master is lost, refuse and disconnect the peer."""
        answer: Answer
        try:
            answer = future.result()
        except ErrorAnswer as e:
            answer = Error(e.code.value, e.message)
        except ConnectionLost:
            peer.refuse(message_id, ErrorCode.NOT_READY, NOT_CONNECTED)
            peer.close()
            return
        peer.answer(message_id, answer)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, message: FlushLog) -> None:
        """Reopen the logs of all nodes. Not answered."""
        self._node.host.reopen_logs()
        if self._link.primary is not None:
            self._link.primary.peer.send(message)
