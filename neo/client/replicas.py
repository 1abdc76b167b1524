"""Reads from replicas; many reads are pipelined.

The sizes of answers are not known. So the window of pipelined requests is small at first and adapts to
the answers: at most 16 MiB, or one larger object, are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any

from neo.client.connections import LOST, NOT_HERE, Connections
from neo.client.errors import CorruptedError
from neo.client.invalidations import Invalidations
from neo.client.master import MasterConnection, View
from neo.client.read_wait import wait_longer
from neo.client.records import sound
from neo.client.storages import StorageConnections
from neo.net.channel import Channel, DeadlinePassed, Ticket
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import A, Answer, AnswerObject, AnswerTransactionInformation, Request

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

#: The node that was asked, and the request.
Question = tuple[int, Channel, Ticket[A]] | None


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
        self._master = master
        self._storages = storages
        self._invalidations = invalidations

    def view(self) -> View:
        """Return the last known location of objects."""
        return self._master.view()

    def barrier(self) -> None:
        """Wait until all transactions that were committed before this call can be read."""
        self._master.barrier()

    @property
    def last_tid(self) -> bytes:
        """The last transaction whose effects are complete."""
        return self._invalidations.last_tid

    def feature(self, name: str) -> Feature:
        """Return a cache of the answers to which nodes know a feature."""
        return Feature(self._master, self._storages, name)

    # -- one read --------------------------------------------------------------------------------

    def read(self, partition: int, message: Request[A]) -> A:
        """Ask a node with a readable cell of a partition. Raise ErrorAnswer if it answers with an Error;
        UnavailableError after ``wait_timeout``; CorruptedError if no node has sound data."""
        nids = self._master.view().readable[partition]
        if nids:
            nid = nids[0] if len(nids) == 1 else self._connections.host.choose(nids)
            try:
                channel = self._storages.channel(nid)
            except (*LOST, ErrorAnswer):
                return self._read_patiently(partition, message)
            try:
                ticket: Ticket[A] = Ticket()
                try:
                    answer = channel.call(message, ticket, self._timeout)
                except DeadlinePassed:
                    answer = self._wait_longer(nid, channel, message, ticket)
                if not isinstance(answer, AnswerObject) or sound(answer):
                    return answer
            except (ConnectionLost, ErrorAnswer) as e:
                self._refused(e)
        return self._read_patiently(partition, message)

    def read_id(self, id_: bytes, message: Request[A]) -> A:
        """Do the same as read() for the partition of an oid or tid."""
        return self.read(self._master.view().partition(id_), message)

    def ask(self, partition: int, message: Request[A]) -> Question[A]:
        """Ask a node with a readable cell of a partition. Return None if none can be asked now."""
        nids = self._master.view().readable[partition]
        if not nids:
            return None
        nid = nids[0] if len(nids) == 1 else self._connections.host.choose(nids)
        try:
            channel = self._storages.channel(nid)
        except (*LOST, ErrorAnswer):
            return None  # collect() tries again
        try:
            return nid, channel, channel.ask(message)
        except ConnectionLost:
            return None

    def collect(self, partition: int, message: Request[A], question: Question[A]) -> A:
        """Return the answer to a question of ask(). Raise the errors of read()."""
        if question is not None:
            nid, channel, ticket = question
            try:
                answer = self._wait(nid, channel, message, ticket)
                if not isinstance(answer, AnswerObject) or sound(answer):
                    return answer
            except (ConnectionLost, ErrorAnswer) as e:
                self._refused(e)
            except BaseException:
                channel.forget(ticket)
                raise
        return self._read_patiently(partition, message)

    def _call(self, nid: int, channel: Channel, message: Request[A]) -> A:
        """Return the answer to a read. Raise the errors of ask() and wait_longer()."""
        ticket: Ticket[A] = Ticket()
        try:
            return channel.call(message, ticket, self._timeout)
        except DeadlinePassed:
            return self._wait_longer(nid, channel, message, ticket)

    def _wait(self, nid: int, channel: Channel, message: Request[A], ticket: Ticket[A]) -> A:
        """Return the answer to a read. Raise the errors of wait_longer()."""
        try:
            return channel.wait(ticket, self._connections.host.now() + self._timeout)
        except DeadlinePassed:
            return self._wait_longer(nid, channel, message, ticket)

    def _wait_longer(
        self, nid: int, channel: Channel, message: Request[A], ticket: Ticket[A]
    ) -> A:
        return wait_longer(self._connections, self._storages, nid, channel, message, ticket)

    def _refused(self, error: ConnectionLost | ErrorAnswer) -> None:
        """Prepare to ask another node. Raise the error if no other node would answer otherwise."""
        if isinstance(error, ErrorAnswer):
            if error.code not in NOT_HERE:
                raise error
            # Learn from the master which cells changed, so as to ask another node.
            self._master.barrier()

    def _read_patiently(self, partition: int, message: Request[A]) -> A:
        """Ask the nodes of a partition until one answers. Ask each node once per round; before a new
        round, wait for the master's messages."""
        backoff = self._connections.backoff()
        failed: set[int] = set()
        damaged: set[int] = set()
        reason = "no running node has a readable cell"
        while True:
            view = self._master.view()
            nids = [nid for nid in view.readable[partition] if nid not in failed | damaged]
            if nids:
                nid = self._connections.host.choose(nids)
                try:
                    answer = self._call(nid, self._storages.channel(nid), message)
                    if not isinstance(answer, AnswerObject) or sound(answer):
                        return answer
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
                    if e.code not in NOT_HERE:
                        raise
                failed.add(nid)
                self._master.barrier()
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
                self._master.barrier()
                failed.clear()

    # -- many reads ------------------------------------------------------------------------------

    def read_each(
        self, requests: Iterable[tuple[int, Request[A]]]
    ) -> Generator[A | ErrorAnswer, None, None]:
        """Yield the answers to (partition, message), in this order, with Error packets as ErrorAnswer.

        Requests are pipelined up to an estimated WINDOW_BYTES of answers. Raise the errors of read()
        except ErrorAnswer.
        """
        left = iter(requests)
        asked: deque[tuple[int, Request[A], Question[A]]] = deque()
        window, largest = FIRST, 1
        try:
            while True:
                for partition, message in islice(left, max(0, window - len(asked))):
                    asked.append((partition, message, self.ask(partition, message)))
                if not asked:
                    return
                answer: A | ErrorAnswer
                try:
                    answer = self.collect(*asked[0])
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

    def read_many(self, requests: Sequence[tuple[int, Request[A]]]) -> list[A | ErrorAnswer]:
        """Return the answers of read_each() in a list."""
        return list(self.read_each(requests))


def forget(question: Question[Any]) -> None:
    """Discard the answer to a question."""
    if question is not None:
        _, channel, ticket = question
        channel.forget(ticket)


class Feature:
    """Which storage nodes know an extension of the protocol."""

    def __init__(self, master: MasterConnection, storages: StorageConnections, name: str) -> None:
        self._master = master
        self._storages = storages
        self._name = name
        self._known: dict[int, bool] = {}

    def known(self, partition: int) -> bool:
        """Return whether all nodes that may be asked for a partition know the feature."""
        return all(map(self._node_knows, self._master.view().readable[partition]))

    def _node_knows(self, nid: int) -> bool:
        known = self._known.get(nid)
        if known is None:
            try:
                known = self._name in self._storages.features(nid)
            except (*LOST, ErrorAnswer):
                return True  # this node will not be asked
            self._known[nid] = known
        return known


def _size(answer: Answer | ErrorAnswer) -> int:
    """Return the estimated bytes of an answer."""
    if isinstance(answer, AnswerObject):
        return OTHER_BYTES + len(answer.data)
    if isinstance(answer, AnswerTransactionInformation):
        return OTHER_BYTES + OID_BYTES * len(answer.oid_list)
    return OTHER_BYTES
