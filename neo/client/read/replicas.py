"""Reads from replicas; many reads are pipelined.

The sizes of answers are not known. So the window of pipelined requests is small at first and adapts to
the answers: at most 16 MiB, or one larger object, are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain, islice
from typing import Any

from neo.client.connect.connections import LOST, NOT_HERE, Backoff, Connections
from neo.client.connect.master import MasterConnection, Partition, View
from neo.client.connect.storages import StorageConnections
from neo.client.errors import CorruptedError
from neo.client.read.invalidations import Invalidations
from neo.client.read.read_wait import wait_longer
from neo.client.read.records import sound
from neo.net.channel import Channel, DeadlinePassed, Ticket
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    Answer,
    AnswerObject,
    AnswerTransactionInformation,
    Request,
)

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

#: Where a read is answered: at the nodes of the partition of this id, or of this partition.
Where = bytes | Partition
#: The node that was asked, and the request; ``regrouped`` of the view at that time.
Question = tuple[int, Channel, Ticket[A], int] | None


class Replicas:
    """Reads of this client, each from one of the nodes with a readable cell. Thread-safe."""

    def __init__(
        self,
        connections: Connections,
        master: MasterConnection,
        storages: StorageConnections,
        invalidations: Invalidations,
    ) -> None:
        self._connections = connections
        self._timeout = connections.settings.wait_timeout
        self._direct = connections.host.direct
        self._master = master
        self._storages = storages
        self._invalidations = invalidations

    def view(self) -> View:
        """Return the last known location of objects."""
        return self._master.view()

    def barrier(self, backoff: Backoff | None = None) -> None:
        """Wait until all transactions that were committed before this call can be read."""
        self._master.barrier(backoff)

    @property
    def last_tid(self) -> bytes:
        """The last transaction whose effects are complete."""
        return self._invalidations.last_tid

    def feature(self, name: str) -> Feature:
        """Return a cache of the answers to which nodes know a feature."""
        return Feature(self._master, self._storages, name)

    # -- one read --------------------------------------------------------------------------------

    def read(self, where: Where, message: Request[A], shared: Backoff | None = None) -> A:
        """Ask a node with a readable cell. ``shared``: pauses of a longer operation. Raise ErrorAnswer if
        it answers with an Error; UnavailableError after ``wait_timeout``; CorruptedError if no node has
        sound data; RegroupedError for a partition."""
        if self._direct is not None:
            found = self._direct.answer(self._master.view().nodes(where), message)
            if found is not None:
                return found
        if shared is not None:
            return self._read_patiently(where, message, shared)
        view, begin = self._master.view(), self._connections.host.now()
        nids = view.nodes(where)
        if nids:
            nid = nids[0] if len(nids) == 1 else self._storages.choose(nids)
            try:
                channel = self._storages.channel(nid)
            except (*LOST, ErrorAnswer):
                return self._read_patiently(where, message, self._connections.backoff(begin))
            try:
                ticket: Ticket[A] = Ticket()
                try:
                    answer = channel.call(message, ticket, self._timeout)
                except DeadlinePassed:
                    answer = self._wait_longer(nid, channel, message, ticket)
                if self._stands(answer, where, view.regrouped):
                    return answer
            except (ConnectionLost, ErrorAnswer) as e:
                backoff = self._connections.backoff(begin)
                self._refused(e, where, view.regrouped, backoff)
                return self._read_patiently(where, message, backoff)
        return self._read_patiently(where, message, self._connections.backoff(begin))

    def _stands(self, answer: Answer, where: Where, regrouped: int) -> bool:
        """Return whether an answer is sound, and of the partition that was meant: a node that has another
        number of partitions by then reads another one."""
        if isinstance(answer, AnswerObject):
            return sound(answer)
        return not self._changed(where, regrouped)

    def _changed(self, where: Where, regrouped: int) -> bool:
        """Return whether the partition that was asked for may have been another one."""
        return not isinstance(where, bytes) and self._master.view().regrouped != regrouped

    def ask(
        self, where: Where, message: Request[A], backoff: Backoff | None = None
    ) -> Question[A]:
        """Ask a node with a readable cell. Return None if none can be asked now. Raise
        RegroupedError."""
        view = self._master.view()
        nids = view.nodes(where)
        if not nids:
            return None
        nid = nids[0] if len(nids) == 1 else self._storages.choose(nids)
        try:
            channel = self._storages.channel(nid, backoff)
        except (*LOST, ErrorAnswer):
            return None  # collect() tries again
        try:
            return nid, channel, channel.ask(message), view.regrouped
        except ConnectionLost:
            return None

    def _ask_many(
        self, wanted: Sequence[tuple[Where, Request[A]]], backoff: Backoff
    ) -> list[Question[A]]:
        """Ask nodes with a readable cell, each with one write. Return the questions in this order, None
        for what cannot be asked now. Raise RegroupedError."""
        view = self._master.view()
        by_node: dict[int, list[int]] = {}
        for index, (where, _) in enumerate(wanted):
            nids = view.nodes(where)
            if nids:
                nid = nids[0] if len(nids) == 1 else self._storages.choose(nids)
                by_node.setdefault(nid, []).append(index)
        questions: list[Question[A]] = [None] * len(wanted)
        for nid, indexes in by_node.items():
            try:
                channel = self._storages.channel(nid, backoff)
                tickets = channel.ask_many([wanted[index][1] for index in indexes])
            except (*LOST, ErrorAnswer):
                continue  # collect() tries again
            for index, ticket in zip(indexes, tickets, strict=True):
                questions[index] = nid, channel, ticket, view.regrouped
        return questions

    def collect(
        self,
        where: Where,
        message: Request[A],
        question: Question[A],
        backoff: Backoff | None = None,
    ) -> A:
        """Return the answer to a question of ask(). Raise the errors of read()."""
        backoff = backoff or self._connections.backoff()
        if question is not None:
            nid, channel, ticket, regrouped = question
            try:
                answer = self._wait(nid, channel, message, ticket, backoff)
                if self._stands(answer, where, regrouped):
                    return answer
            except (ConnectionLost, ErrorAnswer) as e:
                self._refused(e, where, regrouped, backoff)
            except BaseException:
                channel.forget(ticket)
                raise
        return self._read_patiently(where, message, backoff)

    def _wait(
        self, nid: int, channel: Channel, message: Request[A], ticket: Ticket[A], backoff: Backoff
    ) -> A:
        """Return the answer to a read. Raise the errors of wait_longer()."""
        try:
            return channel.wait(ticket, backoff.deadline)
        except DeadlinePassed:
            return self._wait_longer(nid, channel, message, ticket)

    def _wait_longer(
        self, nid: int, channel: Channel, message: Request[A], ticket: Ticket[A]
    ) -> A:
        return wait_longer(self._connections, self._storages, nid, channel, message, ticket)

    def _refused(
        self,
        error: ConnectionLost | ErrorAnswer,
        where: Where,
        regrouped: int,
        backoff: Backoff,
    ) -> None:
        """Prepare to ask another node after a refusal. Raise the error if other nodes would give the same
        answer."""
        if isinstance(error, ErrorAnswer):
            if error.code not in NOT_HERE and not self._changed(where, regrouped):
                raise error
            # Learn from the master which cells changed, so as to ask another node.
            self._master.barrier(backoff)

    def _read_patiently(self, where: Where, message: Request[A], backoff: Backoff) -> A:
        """Ask the nodes of a partition until one answers. Ask each node once per round; before a new
        round, wait for the master's messages."""
        failed: set[int] = set()
        damaged: set[int] = set()
        reason = "no running node has a readable cell"
        while True:
            view = self._master.view()
            nids = [nid for nid in view.nodes(where) if nid not in failed | damaged]
            partition = view.partition(where) if isinstance(where, bytes) else where.number
            if nids:
                nid = self._storages.choose(nids)
                try:
                    channel = self._storages.channel(nid, backoff)
                    answer = self._wait(nid, channel, message, channel.ask(message), backoff)
                    if self._stands(answer, where, view.regrouped):
                        return answer
                    if not isinstance(answer, AnswerObject):
                        continue
                    reason = f"the answer of {format_nid(nid)} does not match its checksum"
                    damaged.add(nid)
                    continue
                except LOST as e:
                    reason = f"{format_nid(nid)}: {e}"
                except ErrorAnswer as e:
                    reason = f"{format_nid(nid)}: {e}"
                    if e.code is ErrorCode.CHECKING_ERROR:
                        damaged.add(nid)
                        continue
                    if e.code not in NOT_HERE and not self._changed(where, view.regrouped):
                        raise
                failed.add(nid)
                self._master.barrier(backoff)
                if self._master.view() is not view:
                    # The node answered correctly: this client's tables were outdated.
                    failed.discard(nid)
                    backoff.check(f"partition {partition}: {reason}")
            elif damaged and not failed:
                raise CorruptedError(
                    f"{message}: no storage node has sound data of partition {partition}: {reason}"
                )
            else:
                backoff.wait(f"partition {partition}: {reason}")
                self._master.barrier(backoff)
                failed.clear()

    # -- all partitions --------------------------------------------------------------------------

    def ask_all(self, request: Callable[[int, list[int]], Request[A]]) -> list[A] | None:
        """Ask each partition once, all partitions of a node together: ``request(count, partitions)``,
        where the count is that of all. The request is one of our own.

        Return None if that is not possible at once: a node is lost, or refuses, or is of another program.
        Then the partitions have to be asked one by one. Raise UnavailableError.
        """
        view, backoff = self._master.view(), self._connections.backoff()
        by_node: dict[int, list[int]] = {}
        for partition, nids in enumerate(view.readable):
            if not nids:
                return None
            shared = [nid for nid in nids if nid in by_node]
            by_node.setdefault(self._storages.choose(shared or nids), []).append(partition)
        asked: list[tuple[int, Channel, Request[A], Ticket[A]]] = []
        try:
            for nid, partitions in by_node.items():
                channel = self._storages.channel(nid, backoff)
                if FEATURE_OURS not in self._storages.announced(nid):
                    return None
                message = request(len(view.readable), partitions)
                asked.append((nid, channel, message, channel.ask(message)))
            return [self._wait(*question, backoff) for question in asked]
        except (*LOST, ErrorAnswer):
            return None
        finally:
            for _, channel, _, ticket in asked:
                if not ticket.done:
                    channel.forget(ticket)

    # -- many reads ------------------------------------------------------------------------------

    def read_each(
        self, requests: Iterable[tuple[Where, Request[A]]]
    ) -> Generator[A | ErrorAnswer, None, None]:
        """Yield the answers to (where, message), in this order, with Error packets as ErrorAnswer.

        Requests are pipelined up to an estimated WINDOW_BYTES of answers. Raise the errors of read()
        except ErrorAnswer.
        """
        direct = self._direct
        if direct is None:
            yield from self._ask_each(requests)
            return
        left = iter(requests)
        for where, message in left:
            found = direct.answer(self._master.view().nodes(where), message)
            if found is not None:
                yield found
            else:
                # A portion of its own: what follows may be read directly.
                portion = islice(left, WINDOW - 1)
                yield from self._ask_each(chain([(where, message)], portion))

    def _ask_each(
        self, requests: Iterable[tuple[Where, Request[A]]]
    ) -> Generator[A | ErrorAnswer, None, None]:
        """Yield what read_each() yields, always with messages."""
        left = iter(requests)
        asked: deque[tuple[Where, Request[A], Question[A]]] = deque()
        window, largest = FIRST, 1
        # In one interpreter a node and this thread would hand its lock to and fro for each object.
        parallel = self._direct is None
        try:
            while True:
                # The requests that are asked now, and the next answer, take ``wait_timeout`` together.
                backoff = self._connections.backoff()
                if len(asked) <= (window // 2 if parallel else 0):
                    # Many at a time: each write wakes up a node, and each of its answers this thread.
                    wanted = list(islice(left, window - len(asked)))
                    questions = self._ask_many(wanted, backoff)
                    asked.extend((*each, q) for each, q in zip(wanted, questions, strict=True))
                if not asked:
                    return
                answer: A | ErrorAnswer
                try:
                    answer = self.collect(*asked[0], backoff)
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

    def read_many(self, requests: Sequence[tuple[Where, Request[A]]]) -> list[A | ErrorAnswer]:
        """Return the answers of read_each() in a list."""
        return list(self.read_each(requests))


def forget(question: Question[Any]) -> None:
    """Discard the answer to a question."""
    if question is not None:
        _, channel, ticket, _ = question
        channel.forget(ticket)


class Feature:
    """Which storage nodes know an extension of the protocol."""

    def __init__(self, master: MasterConnection, storages: StorageConnections, name: str) -> None:
        self._master = master
        self._storages = storages
        self._name = name
        self._known: dict[int, bool] = {}

    def known(self, partition: Partition) -> bool:
        """Return whether all nodes that may be asked for a partition know the feature. Raise
        RegroupedError; UnavailableError if none of them answers for ``wait_timeout``."""
        nids = self._master.view().nodes(partition)
        if all(map(self._known.get, nids)):
            return True
        backoff = self._storages.backoff()
        while True:
            found = [self._node_knows(nid, backoff) for nid in nids]
            if not found or any(known is not None for known in found):
                return False not in found
            backoff.wait(f"no running node of partition {partition.number} tells its features")
            self._master.barrier(backoff)
            nids = self._master.view().nodes(partition)

    def _node_knows(self, nid: int, backoff: Backoff) -> bool | None:
        """Return None for a node that cannot be asked now."""
        known = self._known.get(nid)
        if known is None:
            try:
                known = self._name in self._storages.features(nid, backoff)
            except (*LOST, ErrorAnswer):
                return None
            self._known[nid] = known
        return known


def _size(answer: Answer | ErrorAnswer) -> int:
    """Return the estimated bytes of an answer."""
    if isinstance(answer, AnswerObject):
        return OTHER_BYTES + len(answer.data)
    if isinstance(answer, AnswerTransactionInformation):
        return OTHER_BYTES + OID_BYTES * len(answer.oid_list)
    return OTHER_BYTES
