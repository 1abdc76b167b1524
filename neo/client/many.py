"""Reads: asked of one of the nodes that can answer, then collected; many are all asked first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neo.client.pause import LOST, NOT_HERE
from neo.client.records import sound
from neo.net.channel import Channel, Ticket
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AnswerObject, Message

if TYPE_CHECKING:
    from neo.client.session import Session

#: Requests that one node gets at once: its answers must fit in its buffers.
WINDOW = 100


Question = tuple[Channel, Ticket] | None


def ask(session: Session, partition: int, message: Message) -> Question:
    """Ask one of the nodes that can answer for a partition. None if that was not possible now."""
    nids = session.view().readable[partition]
    if not nids:
        return None
    try:
        channel = session.storage(nids[0] if len(nids) == 1 else session.host.choose(nids))
    except (*LOST, ErrorAnswer):
        return None  # collect() tries patiently
    try:
        return channel, channel.ask(message)
    except ConnectionLost:
        return None


def collect(session: Session, partition: int, message: Message, question: Question) -> Message:
    """The answer. Raises as :meth:`neo.client.session.Session.read`."""
    if question is not None:
        channel, ticket = question
        try:
            answer = channel.wait(ticket)
            if type(answer) is not AnswerObject or sound(answer):
                return answer
        except ConnectionLost:
            pass  # tried again below
        except ErrorAnswer as e:
            if e.code not in NOT_HERE:
                raise
            session.barrier()  # the master has told why: do not ask the same node again
        except BaseException:
            channel.forget(ticket)
            raise
    return session.read_patiently(partition, message)


def forget(question: Question) -> None:
    """Nobody wants the answer any more."""
    if question is not None:
        channel, ticket = question
        channel.forget(ticket)


def read_many(
    session: Session, requests: Sequence[tuple[int, Message]]
) -> list[Message | ErrorAnswer]:
    """See :meth:`neo.client.session.Session.read_many`."""
    answers: list[Message | ErrorAnswer] = []
    for start in range(0, len(requests), WINDOW):
        window = requests[start : start + WINDOW]
        asked: list[Question] = []
        try:
            for partition, message in window:
                asked += (ask(session, partition, message),)
            for (partition, message), question in zip(window, asked, strict=True):
                try:
                    answers.append(collect(session, partition, message, question))
                except ErrorAnswer as e:
                    answers.append(e)
        except BaseException:
            for question in asked:
                forget(question)
            raise
    return answers
