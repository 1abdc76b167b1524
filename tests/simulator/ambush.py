"""Wait for messages of servers, to strike at a moment that chance would not find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from neo.node.peer import Peer
from neo.protocol.packets import (
    AddVotedObject,
    AnswerJoinSync,
    AnswerLockBackup,
    AnswerPrepareBackup,
    AnswerSyncLease,
    AnswerVoted,
    AskFetchVoted,
    AskJoinSync,
    AskLockBackup,
    AskLockInformation,
    AskPrepareBackup,
    AskStoreVoted,
    AskSyncLease,
    AskVoted,
    Message,
    NotifySynced,
    NotifyUnlockInformation,
    Replicate,
)
from tests.simulator.planting import plant

#: Messages of the commit, the join and the lease of a synchronous backup.
WATCHED: tuple[type[Message], ...] = (
    *(AddVotedObject, AskStoreVoted, AskFetchVoted, AskVoted, AnswerVoted),
    *(AskLockInformation, AskLockBackup, NotifyUnlockInformation, Replicate, AnswerLockBackup),
    *(AskPrepareBackup, AnswerPrepareBackup),
    *(NotifySynced, AskJoinSync, AnswerJoinSync, AskSyncLease, AnswerSyncLease),
)


class Ambush:
    """Wait for a message that any server sends."""

    def __init__(self) -> None:
        self._awaited: dict[type, Callable[[], None]] = {}

    def lay(self, message: type[Message], strike: Callable[[], None]) -> None:
        """Call ``strike`` once, when the next message of this type is sent."""
        self._awaited[message] = strike

    def sent(self, message: Message) -> None:
        if (strike := self._awaited.pop(type(message), None)) is not None:
            strike()

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Inside the block, watch all messages between servers."""
        send, ask, answer = Peer.send, Peer.ask, Peer.answer

        def watched_send(peer: Peer, message: Message, message_id: int | None = None) -> None:
            send(peer, message, message_id)
            if self._awaited:
                self.sent(message)

        def watched_ask(peer: Peer, message: Any) -> Any:
            future = ask(peer, message)
            if self._awaited:
                self.sent(message)
            return future

        def watched_answer(peer: Peer, message_id: int, message: Message) -> None:
            answer(peer, message_id, message)
            if self._awaited:
                self.sent(message)

        patches = [(Peer, "send", watched_send), (Peer, "ask", watched_ask)]
        with plant([*patches, (Peer, "answer", watched_answer)]):
            yield
