"""A core that serves a little, and asks."""

from __future__ import annotations

import pytest

from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.packets import (
    A,
    AnswerLastTransaction,
    AskFinalTID,
    AskLastTransaction,
    AskNewOIDs,
    CloseClient,
    FlushLog,
    Message,
    NotifyReady,
    Request,
)
from tests.support.remote import FakeHost

TID = bytes(8)


class Serving(Handler):
    """Does one of everything that a handler may do."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.lost_peers: list[str] = []
        self.fail_in_lost = False

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, message: Message) -> Message:
        return AnswerLastTransaction(TID)

    @on(AskNewOIDs)
    def refuse(self, peer: Peer, message_id: int, message: Message) -> Message:
        raise ErrorAnswer(ErrorCode.READ_ONLY_ACCESS, "no oids")

    @on(AskFinalTID)
    def later(self, peer: Peer, message_id: int, message: Message) -> None:
        self.open.append(message_id)

    @on(FlushLog, NotifyReady)
    def mistake(self, peer: Peer, message_id: int, message: Message) -> None:
        raise ZeroDivisionError("our mistake")

    @on(CloseClient)
    def drop(self, peer: Peer, message_id: int, message: Message) -> None:
        raise PeerError("we do not want you")

    def lost(self, peer: Peer, reason: str) -> None:
        self.lost_peers.append(reason)
        if self.fail_in_lost:
            raise ZeroDivisionError("in lost()")


class Server(Core):
    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        self.handler = Serving()

    def stranger_handler(self) -> Handler:
        return self.handler


class Asking:
    """The core asks a node that it dialed."""

    def __init__(self, core: Server, host: FakeHost) -> None:
        self.peer = core.dial(("127.0.0.1", 7), core.handler)
        self.remote = host.dialed[-1]
        core.flush()

    def ask(self, message: Request[A]) -> Future[A]:
        future = self.peer.ask(message)
        self.peer.core.flush()
        return future


def lost(future: Future[A]) -> str:
    with pytest.raises(ConnectionLost) as caught:
        future.result()
    return str(caught.value)
