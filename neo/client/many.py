"""Reads: asked of one of the nodes that can answer, then collected; many are asked ahead of each other.

Sizes are not known before. So the window is small at first, and adapts to the answers: 16 MiB of what
the application asked for is on its way, or one object that is larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from neo.client.pause import LOST, NOT_HERE
from neo.client.records import sound
from neo.net.channel import Channel, Ticket
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import A, Answer, AnswerObject, AnswerTransactionInformation, Request

if TYPE_CHECKING:
    from neo.client.session import Session

#: Requests that are asked ahead at most...
WINDOW = 100
#: ...and bytes of their answers: they keep a fast network busy, and wait in this process.
WINDOW_BYTES = 16 << 20
#: Requests that are asked before an answer has told how large they are. It doubles with each answer.
FIRST = 4
#: An answer besides its data.
OTHER_BYTES = 1000
#: Of a list of oids, with Python's object.
OID_BYTES = 50

Question = tuple[Channel, Ticket[A]] | None


def ask(session: Session, partition: int, message: Request[A]) -> Question[A]:
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


def collect(session: Session, partition: int, message: Request[A], question: Question[A]) -> A:
    """The answer. Raises as :meth:`neo.client.session.Session.read`."""
    if question is not None:
        channel, ticket = question
        try:
            answer = channel.wait(ticket)
            if not isinstance(answer, AnswerObject) or sound(answer):
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


def forget(question: Question[Any]) -> None:
    """Nobody wants the answer any more."""
    if question is not None:
        channel, ticket = question
        channel.forget(ticket)


def read_each(
    session: Session, requests: Iterable[tuple[int, Request[A]]]
) -> Generator[A | ErrorAnswer, None, None]:
    """The answers of (partition, message), in this order, as they are wanted; refusals are among them.

    As much is asked ahead as fits in WINDOW_BYTES, by what the last answers had. Raises as
    :meth:`neo.client.session.Session.read`.
    """
    left = iter(requests)
    asked: deque[tuple[int, Request[A], Question[A]]] = deque()
    window, largest = FIRST, 1
    try:
        while True:
            for partition, message in islice(left, max(0, window - len(asked))):
                asked.append((partition, message, ask(session, partition, message)))
            if not asked:
                return
            answer: A | ErrorAnswer
            try:
                answer = collect(session, *asked[0])
            except ErrorAnswer as e:
                answer = e
            asked.popleft()
            # What was large may come again for a while.
            largest = max(_size(answer), largest * 15 // 16)
            window = max(1, min(2 * window, WINDOW, WINDOW_BYTES // largest))
            yield answer
            del answer
    finally:
        for _, _, question in asked:
            forget(question)


def _size(answer: Answer | ErrorAnswer) -> int:
    """About the bytes of an answer."""
    if isinstance(answer, AnswerObject):
        return OTHER_BYTES + len(answer.data)
    if isinstance(answer, AnswerTransactionInformation):
        return OTHER_BYTES + OID_BYTES * len(answer.oid_list)
    return OTHER_BYTES


def read_many(
    session: Session, requests: Sequence[tuple[int, Request[A]]]
) -> list[A | ErrorAnswer]:
    """See :meth:`neo.client.session.Session.read_many`."""
    return list(read_each(session, requests))
