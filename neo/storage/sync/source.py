"""What a storage node sends to synchronous backups of its cluster (specification 25.6 to 25.11).

A node of a backup subscribes to partitions with the first AskFetchVoted for them. From then on it is sent
the rows of each transaction when that votes here, and the client is answered when the subscribers have
them durably, too. A subscriber that is lost or late is not waited for: the backup fetches what it lacks
before it locks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future, Task
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_HASH
from neo.protocol.packets import (
    FEATURE_OURS,
    AddVoted,
    AddVotedObject,
    AnswerFetchVoted,
    AskFetchVoted,
    AskStoreVoted,
    Message,
    NotifyAborted,
)
from neo.storage.backend.api import RecordDamaged, Stored, TransactionMeta
from neo.storage.blobs.destinations import check_destination
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.events import Part
from neo.storage.maintenance.pack import PackProgress
from neo.storage.serving.handler import refusal

logger = logging.getLogger("neo.storage")

#: A subscriber that has not stored a transaction after this time is disconnected. The time begins again
#: when it has read rows for which others had to wait: it may be long until a large transaction is sent.
STORE_SECONDS = 3.0
#: A timer may expire a little early, because the clock of the loop is rounded.
ROUNDING_SECONDS = 0.001
#: Bytes that are sent before it is looked whether the subscriber reads them, and the pause while it does
#: not. They bound the output to each subscriber for each transaction that is voting.
STEP_BYTES = 64 << 10
FULL_SECONDS = 0.05
#: Bytes of a message besides its data.
OVERHEAD_BYTES = 60


@dataclass(eq=False, slots=True)
class _Subscriber:
    partitions: set[int] = field(default_factory=set)
    #: When it read what others waited for.
    progress: float = 0.0
    #: What is being sent and stored: when each transaction voted, and what waits for it, by ttid.
    #: Bound: the transactions that are voting.
    pending: dict[bytes, tuple[float, _Push]] = field(default_factory=dict)
    #: The transactions that it fetches and that have not ended, by message id. Bound: the jobs of a peer.
    fetching: dict[int, bytes] = field(default_factory=dict)
    watched: bool = False


@dataclass(eq=False, slots=True)
class _Push:
    """``stored``: done when no subscriber is waited for. Fails with ErrorAnswer if one refused."""

    stored: Future[None] = field(default_factory=Future)
    waiting: int = 0

    def done(self) -> None:
        self.waiting -= 1
        if not self.waiting and not self.stored.done:
            self.stored.resolve(None)


class SyncSource(Part):
    def __init__(
        self,
        core: Core,
        database: Database,
        cells: Cells,
        packs: PackProgress,
    ) -> None:
        self._core = core
        self._packs = packs
        self._database = database
        self._backend = database.backend
        self._cells = cells
        #: By connection. Votes look at it: it is empty where there is no synchronous backup.
        self.subscribers: dict[Peer, _Subscriber] = {}
        self._tasks: dict[Task[None], None] = {}

    # -- votes -------------------------------------------------------------------------------------

    def push(
        self, ttid: bytes, metadata: TransactionMeta | None, stored: Sequence[Stored]
    ) -> Future[None]:
        """Send a transaction that has just voted to the subscribers of its partitions. Return a future:
        they have it durably, or are not waited for. It fails with ErrorAnswer if one refused."""
        push, partition = _Push(), self._cells.partitions.partition
        touched = {partition(change.oid) for change in stored}
        if metadata is not None:
            touched.add(partition(ttid))
        touched = {each for each in touched if self._cells.is_readable(each)}
        concerned = [(p, s) for p, s in self.subscribers.items() if s.partitions & touched]
        push.waiting = len(concerned)
        now = self._core.host.monotonic()
        for peer, subscriber in concerned:
            subscriber.pending[ttid] = now, push
            partitions = sorted(subscriber.partitions & touched)
            self._run(self._push(peer, subscriber, push, ttid, partitions, metadata, stored))
            self._watch(peer, subscriber)
        if not concerned:
            push.stored.resolve(None)
        return push.stored

    async def _push(
        self,
        peer: Peer,
        subscriber: _Subscriber,
        push: _Push,
        ttid: bytes,
        partitions: Sequence[int],
        metadata: TransactionMeta | None,
        stored: Sequence[Stored],
    ) -> None:
        def goes_on() -> bool:
            # After its end, another transaction with an imposed tid may have the same ttid.
            return ttid in subscriber.pending and subscriber.pending[ttid][1] is push

        refused = None
        try:
            rows = self._rows(peer, ttid, partitions, metadata, stored)
            if not await self._send(peer, subscriber, rows, goes_on):
                return
            await peer.ask(AskStoreVoted(ttid, list(partitions)))
        except ConnectionLost:
            return  # lost() has ended the wait
        except (ErrorAnswer, RecordDamaged) as e:
            refused = refusal(peer, e)
        if not goes_on():
            return
        del subscriber.pending[ttid]
        if refused is not None and not push.stored.done:
            push.stored.fail(
                ErrorAnswer(
                    ErrorCode.INCOMPLETE_TRANSACTION,
                    f"a synchronous standby cannot store the transaction: {refused.message}",
                )
            )
        push.done()

    def _watch(self, peer: Peer, subscriber: _Subscriber) -> None:
        """Disconnect a subscriber that is late."""
        if subscriber.watched or not subscriber.pending:
            return
        oldest = min(began for began, _ in subscriber.pending.values())
        subscriber.watched = True
        left = max(oldest, subscriber.progress) + STORE_SECONDS - self._core.host.monotonic()
        self._database.call_later(
            max(ROUNDING_SECONDS, left), lambda: self._check(peer, subscriber)
        )

    def _check(self, peer: Peer, subscriber: _Subscriber) -> None:
        subscriber.watched = False
        limit = self._core.host.monotonic() - STORE_SECONDS
        late = any(began <= limit for began, _ in subscriber.pending.values())
        if late and subscriber.progress <= limit:
            logger.warning("%r did not store a transaction in time: it is disconnected", peer)
            peer.lost("it does not store what it was sent")
        else:
            self._watch(peer, subscriber)

    def ended(self, ttid: bytes) -> None:
        """Tell all subscribers that a voted transaction ended here, maybe with a commit (specification
        25.9)."""
        for peer, subscriber in self.subscribers.items():
            _, push = subscriber.pending.pop(ttid, (0.0, None))
            if push is not None:
                push.done()
            for message_id in [id_ for id_, each in subscriber.fetching.items() if each == ttid]:
                del subscriber.fetching[message_id]
            peer.send(NotifyAborted(ttid))

    def reads(self, peer: Peer) -> None:
        """Note that a peer reads contents: a subscriber needs them to store a transaction."""
        if (subscriber := self.subscribers.get(peer)) is not None:
            subscriber.progress = self._core.host.monotonic()

    # -- fetches -----------------------------------------------------------------------------------

    def fetch(self, peer: Peer, message_id: int, m: AskFetchVoted) -> None:
        """Send the rows of a transaction, and subscribe the peer to these partitions. Raises ErrorAnswer
        if they are not here."""
        node = peer.node
        if node is None or FEATURE_OURS not in node.features:
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, "the peer announced no feature")
        count = len(self._cells.partitions)
        for partition in m.partition_list:
            if partition >= count or not self._cells.is_readable(partition):
                raise ErrorAnswer(
                    ErrorCode.NON_READABLE_CELL, f"partition {partition} cannot be read here"
                )
        subscriber = self.subscribers.setdefault(peer, _Subscriber())
        subscriber.partitions.update(m.partition_list)
        peer.both_ways = True  # else what it has stored waits behind what it fetches
        subscriber.fetching[message_id] = m.ttid
        peer.begin_job()
        self._run(self._fetch(peer, message_id, m, subscriber))

    async def _fetch(
        self, peer: Peer, message_id: int, m: AskFetchVoted, subscriber: _Subscriber
    ) -> None:
        def goes_on() -> bool:
            return message_id in subscriber.fetching

        try:
            # Rows of the vote may be under way: they end before they are sent again.
            while m.ttid in subscriber.pending:
                await self._core.sleep(FULL_SECONDS)
            metadata, stored, checks = self._backend.commits.prepared_rows(m.ttid)
            found = metadata is not None or stored or checks
            rows = self._rows(peer, m.ttid, m.partition_list, metadata, stored)
            if found and await self._send(peer, subscriber, rows, goes_on):
                peer.answer(message_id, AnswerFetchVoted(m.ttid))
            else:
                peer.refuse(
                    message_id,
                    ErrorCode.TID_NOT_FOUND,
                    f"transaction {m.ttid.hex()} is not in progress here",
                )
        except (ErrorAnswer, RecordDamaged) as e:
            refused = refusal(peer, e)
            peer.refuse(message_id, refused.code, refused.message)
        finally:
            subscriber.fetching.pop(message_id, None)
            peer.end_job()

    # -- rows --------------------------------------------------------------------------------------

    async def _send(
        self,
        peer: Peer,
        subscriber: _Subscriber,
        rows: Iterator[tuple[Message, int]],
        goes_on: Callable[[], bool],
    ) -> bool:
        """Send rows in their order, no faster than the peer reads them. Return False if the peer is lost
        or ``goes_on`` became false."""
        buffered = 0
        for message, size in rows:
            if buffered > STEP_BYTES or peer.full:
                buffered = 0
                await self._core.sleep(0.0)
                waited = peer.full
                while peer.full and not peer.closed:
                    await self._core.sleep(FULL_SECONDS)
                if waited:
                    subscriber.progress = self._core.host.monotonic()
            if peer.closed or not goes_on():
                return False
            peer.send(message)
            buffered += OVERHEAD_BYTES + size
        return True

    def _rows(
        self,
        peer: Peer,
        ttid: bytes,
        partitions: Collection[int],
        metadata: TransactionMeta | None,
        stored: Sequence[Stored],
    ) -> Iterator[tuple[Message, int]]:
        """Yield the rows in these partitions, and the bytes of each. Raise ErrorAnswer if the peer cannot
        keep one."""
        partition, wanted = self._cells.partitions.partition, set(partitions)
        for each in partitions:
            kept = None
            if metadata is not None and partition(ttid) == each:
                kept = (*metadata[:3], list(metadata.oids))
            yield AddVoted(ttid, each, kept), 0
        for oid, data_id, data_serial in stored:
            if partition(oid) not in wanted:
                continue
            compression, checksum, data = 0, ZERO_HASH, b""
            if data_id is not None:
                compression, checksum, data = self._backend.values.load_data(data_id)
                check_destination(peer, oid, compression, data)
                if data_serial is not None:
                    data_serial = self._packs.undo_as_packed(oid, data_serial)
            yield AddVotedObject(ttid, oid, compression, checksum, data, data_serial), len(data)

    # -- the end -----------------------------------------------------------------------------------

    def _run(self, job: Coroutine[Any, Any, None]) -> None:
        task = self._core.spawn(job)
        self._tasks[task] = None
        task.then(lambda _: self._tasks.pop(task, None))

    def lost(self, peer: Peer) -> None:
        """Forget a connection that ended, if it subscribed."""
        subscriber = self.subscribers.pop(peer, None)
        if subscriber is not None:
            pending, subscriber.pending = subscriber.pending, {}
            for _, push in pending.values():
                push.done()

    def operation_stopped(self) -> None:
        """Forget all: the connections are closed, and clients are not answered any more."""
        for subscriber in self.subscribers.values():
            subscriber.pending.clear()  # no timer is to find it late
        self.subscribers.clear()
        for task in list(self._tasks):
            task.cancel()
