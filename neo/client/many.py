"""Many reads at once: all are sent before the first answer is waited for."""

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


def read_many(
    session: Session, requests: Sequence[tuple[int, Message]]
) -> list[Message | ErrorAnswer]:
    """See :meth:`neo.client.session.Session.read_many`."""
    answers: list[Message | ErrorAnswer] = []
    for start in range(0, len(requests), WINDOW):
        window = requests[start : start + WINDOW]
        asked = [_ask(session, partition, message) for partition, message in window]
        for (partition, message), question in zip(window, asked, strict=True):
            answers.append(_collect(session, partition, message, question))
    return answers


def _ask(session: Session, partition: int, message: Message) -> tuple[Channel, Ticket] | None:
    nids = session.view().readable[partition]
    if not nids:
        return None
    try:
        channel = session.storage(session.host.choose(nids))
        return channel, channel.ask(message)
    except (*LOST, ErrorAnswer):
        return None  # _collect() tries patiently


def _collect(
    session: Session, partition: int, message: Message, question: tuple[Channel, Ticket] | None
) -> Message | ErrorAnswer:
    try:
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
        return session.read_patiently(partition, message)
    except ErrorAnswer as e:
        return e
