"""Reads from replicas; many reads are pipelined.

The sizes of answers are not known. So the window of pipelined requests is small at first and adapts to
the answers: at most 16 MiB, or one larger object, are in flight.
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

#: Pipelined requests, at most.
WINDOW = 100
#: Bytes of their answers, at most: enough for a fast network, and buffered in this process.
WINDOW_BYTES = 16 << 20
#: Pipelined requests before the first answer has come. The number doubles with each answer.
FIRST = 4
#: Estimated memory of an answer besides its data.
OTHER_BYTES = 1000
#: Estimated memory of an oid in a list.
OID_BYTES = 50

Question = tuple[Channel, Ticket[A]] | None


def ask(session: Session, partition: int, message: Request[A]) -> Question[A]:
    """Ask a node with a readable cell of a partition. Return None if none can be asked now."""
    nids = session.view().readable[partition]
    if not nids:
        return None
    try:
        channel = session.storage(nids[0] if len(nids) == 1 else session.host.choose(nids))
    except (*LOST, ErrorAnswer):
        return None  # collect() tries again
    try:
        return channel, channel.ask(message)
    except ConnectionLost:
        return None


def collect(session: Session, partition: int, message: Request[A], question: Question[A]) -> A:
    """Return the answer to ``question``. Raise the errors of :meth:`neo.client.session.Session.read`."""
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
            session.barrier()  # learn from the master which cells changed, so as to ask another node
        except BaseException:
            channel.forget(ticket)
            raise
    return session.read_patiently(partition, message)


def forget(question: Question[Any]) -> None:
    """Discard the answer to a question."""
    if question is not None:
        channel, ticket = question
        channel.forget(ticket)


def read_each(
    session: Session, requests: Iterable[tuple[int, Request[A]]]
) -> Generator[A | ErrorAnswer, None, None]:
    """Yield the answers to (partition, message), in this order, with Error packets as ErrorAnswer.

    Requests are pipelined up to an estimated WINDOW_BYTES of answers. Raise the errors of
    :meth:`neo.client.session.Session.read` except ErrorAnswer.
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
            # The estimate decays slowly, because large objects come in groups.
            largest = max(_size(answer), largest * 15 // 16)
            window = max(1, min(2 * window, WINDOW, WINDOW_BYTES // largest))
            yield answer
            del answer
    finally:
        for _, _, question in asked:
            forget(question)


def _size(answer: Answer | ErrorAnswer) -> int:
    """Return the estimated bytes of an answer."""
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
