"""A scripted cluster: a master and storage nodes whose answers a test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from neo.client import NEOStorage
from neo.net.connection import Received
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64, parse_nid
from neo.protocol.packets import (
    ANSWERS,
    FEATURE_CHAINS,
    FEATURE_OURS,
    AcceptIdentification,
    AnswerBeginTransaction,
    AnswerCheckCurrentSerial,
    AnswerLastTransaction,
    AnswerNewOIDs,
    AnswerStoreObject,
    AnswerStoreTransaction,
    AnswerTransactionFinished,
    AnswerVoteSingle,
    AnswerVoteTransaction,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskFinishTransaction,
    AskLastTransaction,
    AskNewOIDs,
    AskStoreObject,
    AskStoreTransaction,
    AskTransactionLog,
    AskVoteSingle,
    AskVoteTransaction,
    Error,
    Message,
    NodeRow,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    Ping,
    Pong,
    RequestIdentification,
    SendPartitionTable,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.peers import Peer, Server

NAME = "scripted"
CLIENT = parse_nid("C1")
UP_TO_DATE = CellState.UP_TO_DATE

Answer = Callable[[Any], Message | None]
"""Takes the request, returns the answer, None for none now. Raises ErrorAnswer."""


class Node:
    """One process. ``answers``: the answer to each type of request; tests change it."""

    def __init__(self, identify: Callable[[Peer, Received], None]) -> None:
        self.answers: dict[type, Answer] = {Ping: lambda m: Pong()}
        self.log: list[Message] = []
        self._identify = identify
        self._changed = threading.Condition()
        self.server = Server(self._take)

    def _take(self, peer: Peer, received: Received) -> None:
        message = received.message
        with self._changed:
            self.log.append(message)
            self._changed.notify_all()
        if isinstance(message, RequestIdentification):
            self._identify(peer, received)
        elif type(message) in ANSWERS:
            try:
                answer = self.answers[type(message)](message)
            except ErrorAnswer as e:
                answer = Error(e.code.value, e.message)
            if answer is not None:
                peer.answer(received.message_id, answer)

    @property
    def peer(self) -> Peer:
        """The last connection."""
        return self.server.peers[-1]

    def asked(self, *types: type) -> list[Any]:
        return [message for message in self.log if isinstance(message, types)]

    def wait_for(self, *types: type, count: int = 1) -> Message:
        """Wait until ``count`` such messages arrived. Return the last one."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked(*types)) >= count, PATIENCE_SECONDS)
        return self.asked(*types)[-1]

    def answer_last(self, question: type, answer: Message) -> None:
        """Answer the last question of a type on the last connection."""
        questions = [i for i, m in enumerate(self.peer.received) if isinstance(m, question)]
        self.peer.answer(questions[-1], answer)


def _not_at_once(m: AskTransactionLog) -> Message:
    """Have the client ask for transactions one by one."""
    raise ErrorAnswer(ErrorCode.NON_READABLE_CELL, "the partitions are played one by one")


class Scripted:
    """A cluster. ``cells``: per partition, the numbers of the storage nodes with an UP_TO_DATE cell."""

    def __init__(self, cells: Sequence[Sequence[int]], name: str = NAME) -> None:
        self.name = name
        self.last_tid = p64(100)
        self.next_ttid = 1000
        self.next_tid = 2000
        self.cells = cells
        self.identified = time.time()
        #: What the master announces to clients that identify from now on.
        self.features = [FEATURE_OURS, FEATURE_CHAINS]
        #: The same of storage nodes.
        self.storage_features: dict[int, list[str]] = {}
        self.storages = {
            nid: Node(self._storage_identifies(nid))
            for nid in sorted({n for row in cells for n in row})
        }
        self.master = Node(self._master_identifies)
        self.master.answers |= {
            AskLastTransaction: lambda m: AnswerLastTransaction(self.last_tid),
            AskNewOIDs: lambda m: AnswerNewOIDs([p64(n) for n in range(1, m.num_oids + 1)]),
            AskBeginTransaction: self._begin,
            AskFinishTransaction: self._finish,
        }
        for node in self.storages.values():
            node.answers |= {
                AskStoreObject: lambda m: AnswerStoreObject(None),
                AskCheckCurrentSerial: lambda m: AnswerCheckCurrentSerial(None),
                AskStoreTransaction: lambda m: AnswerStoreTransaction(),
                AskVoteSingle: lambda m: AnswerVoteSingle(True),
                AskVoteTransaction: lambda m: AnswerVoteTransaction(),
                AskTransactionLog: _not_at_once,
            }

    def _begin(self, m: AskBeginTransaction) -> Message:
        self.next_ttid += 1
        return AnswerBeginTransaction(m.tid or p64(self.next_ttid))

    def _finish(self, m: AskFinishTransaction) -> Message:
        self.next_tid += 1
        self.last_tid = p64(self.next_tid)
        return AnswerTransactionFinished(m.ttid, self.last_tid)

    def rows(self, down: Sequence[int] = ()) -> list[NodeRow]:
        rows: list[NodeRow] = [(NodeType.CLIENT, None, CLIENT, NodeState.RUNNING, self.identified)]
        for nid, node in self.storages.items():
            state = NodeState.DOWN if nid in down else NodeState.RUNNING
            rows.append((NodeType.STORAGE, node.server.address, nid, state, 1.0))
        return rows

    def _master_identifies(self, peer: Peer, received: Received) -> None:
        assert isinstance(received.message, RequestIdentification)
        assert received.message.name == self.name
        connection = peer.connection
        connection.answer(
            received.message_id, AcceptIdentification(NodeType.MASTER, parse_nid("M1"), CLIENT)
        )
        connection.send(NotifyFeatures(self.features))
        connection.send(NotifyNodeInformation(time.time(), self.rows()))
        connection.send(
            SendPartitionTable(1, 0, [[(n, UP_TO_DATE) for n in row] for row in self.cells])
        )
        peer.flush()

    def _storage_identifies(self, nid: int) -> Callable[[Peer, Received], None]:
        def identify(peer: Peer, received: Received) -> None:
            m = received.message
            assert isinstance(m, RequestIdentification)
            assert (m.nid, m.id_timestamp) == (CLIENT, self.identified)
            accept = AcceptIdentification(NodeType.STORAGE, nid, m.nid)
            peer.connection.answer(received.message_id, accept)
            if features := self.storage_features.get(nid):
                peer.connection.send(NotifyFeatures(features))
            peer.flush()

        return identify

    def tell(self, *messages: Message) -> None:
        """Send notifications from the master."""
        self.master.peer.send(*messages)

    def change(self, *cells: tuple[int, int, CellState], ptid: int = 2) -> Message:
        return NotifyPartitionChanges(ptid, 0, list(cells))

    @property
    def masters(self) -> str:
        host, port = self.master.server.address
        return f"{host}:{port}"

    def close(self) -> None:
        self.master.server.close()
        for node in self.storages.values():
            node.server.close()


@contextmanager
def scripted(*cells: Sequence[int], **options: Any) -> Iterator[tuple[Scripted, NEOStorage]]:
    """Yield a cluster with these cells and a storage connected to it."""
    cluster = Scripted(cells)
    try:
        storage = NEOStorage(cluster.masters, NAME, **({"wait_timeout": PATIENCE_SECONDS} | options))
        try:
            yield cluster, storage
        finally:
            storage.close()
    finally:
        cluster.close()
