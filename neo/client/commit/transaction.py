"""A transaction of this client (specification 7).

First phase: stores are sent to every writable cell without waiting. The thread that reads an answer
puts it in a queue (``sink`` of the tickets). The committing thread handles the queue when too many bytes
wait for answers, and before the vote. Data is kept until every cell has answered, because a conflict
needs it; then it is dropped, or kept for the cache, within a bound. So a transaction may be larger than
memory. Second phase: vote, and finish or abort.

If the connection to the master is lost, the transaction is lost, too, unless it was being finished.

Only :meth:`~ClientTransaction.rebase`, :meth:`~ClientTransaction.stop` and
:meth:`~ClientTransaction.ended_by_operator` are called by another thread, the one that leads on the
master's channel. It must not wait for the committing thread, which may wait for a lock that only the
rebase releases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ZODB.POSException import ConflictError, POSError, ReadConflictError

from neo.client.blobs.upload import upload
from neo.client.commit import votes
from neo.client.commit.abilities import check_blobs, check_size
from neo.client.commit.conflicts import await_commit, sent_data
from neo.client.commit.finish import Finish, Voted
from neo.client.commit.lock_wait import LockWait
from neo.client.commit.participants import Asked, Change, Kind, Participants, PendingBlob
from neo.client.commit.registry import TransactionRegistry
from neo.client.commit.requests import request_of
from neo.client.connect.connections import Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.client.errors import TransactionLostError, UnavailableError, refusal
from neo.client.read.invalidations import Invalidations
from neo.client.read.records import FOREIGN_LARGEST_BYTES, unpack_data
from neo.client.read.replicas import Replicas
from neo.net.channel import Channel, Ticket
from neo.net.fault_sites import FaultSite
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerCheckCurrentSerial,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskBeginTransaction,
    AskFinishTransaction,
    AskPrepareTransaction,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    AskVoteTransaction,
    Conflict,
    Error,
    FailedVote,
    Message,
    Ping,
    Request,
)

#: Votes that a transaction asks of its only storage node: behind its stores, and behind resolving ones.
SINGLE_MAX = 2

Resolve = Callable[[bytes, bytes, bytes, bytes, bytes], bytes]
"""Conflict resolution: (oid, committed serial, base serial, new data, committed data, loaded if empty)
→ data; raises ConflictError."""


class ClientTransaction:
    """``metadata``: ZODB's transaction. ``tid``: the preset one of IStorageRestoreable, or None."""

    def __init__(
        self,
        connections: Connections,
        master: MasterConnection,
        storages: StorageConnections,
        replicas: Replicas,
        invalidations: Invalidations,
        registry: TransactionRegistry[ClientTransaction],
        metadata: Any,
        tid: bytes | None,
        resolve: Resolve,
    ) -> None:
        self.changes: dict[bytes, Change] = {}
        #: Oids whose conflicts were resolved.
        self.resolved: set[bytes] = set()
        self.voted = False
        #: How often the storage nodes were asked to vote.
        self._votes_asked = 0
        self._durable = False
        self._connections = connections
        self._primary = master
        self._storages = storages
        self._replicas = replicas
        self._invalidations = invalidations
        self._registry = registry
        self._settings = connections.settings
        self.metadata = metadata
        self.imposed = tid
        self._resolve = resolve
        held = self._settings.held
        self._participants = Participants(connections.host.lock(), storages, self._check_master, held)
        self._conflicts: dict[bytes, bytes] = {}
        self._unanswered_bytes = 0
        self._cached: dict[bytes, bytes] = {}
        self._cached_bytes = 0
        self._locked_sets: dict[frozenset[int], frozenset[int]] = {}
        self._lockless = False
        # Requests and their records agree. False after an exception from outside.
        self._whole = True
        self._ended = self._aborted = False
        # When it has voted: the nodes that were asked to keep its metadata; the number of partitions.
        self._keepers: Sequence[int] = ()
        self._partitions = 0
        self._stopped = False  # aborted because the cluster stops
        self._ended_by_operator = False
        self._ttid: bytes | None = None
        self._master: Channel
        self._begin: Ticket[AnswerBeginTransaction] | None = None
        self._finish = Finish(connections, master, replicas, invalidations)
        # Marks that AbortTransaction was sent to the master, which refuses a second one.
        self._farewell: Ticket[Any] = Ticket()

    # -- begin -----------------------------------------------------------------------------------

    def begin(self, backoff: Backoff | None = None) -> None:
        """Ask the master for a ttid, without waiting. Raise the errors of MasterConnection.channel()."""
        self._begin = None
        self._master = self._primary.channel(backoff)
        ticket: Ticket[AnswerBeginTransaction] = Ticket(orphan=self._begun_in_vain)
        self._begin = ticket
        try:
            self._master.ask(AskBeginTransaction(self.imposed), ticket)
        except ConnectionLost:
            self._begin = None  # the master was lost again

    def _begun_in_vain(self, answer: Message) -> None:
        """Abort a transaction whose ttid comes after its abort. Called by the leading thread."""
        if isinstance(answer, AnswerBeginTransaction):
            self._master.send(AbortTransaction(answer.ttid, []), self._farewell)

    def _began(self, backoff: Backoff) -> bool:
        """Wait for the ttid; return False if it will not come. Raise UnavailableError."""
        if self._ttid is not None:
            return True
        if self._begin is None:
            return False
        try:
            answer = backoff.answer(self._master, self._begin)
        except ErrorAnswer as e:
            raise refusal("tpc_begin", e) from None
        except ConnectionLost:
            return False
        self._ttid = answer.ttid
        self._registry.add(answer.ttid, self)
        return True

    @property
    def ttid(self) -> bytes:
        """The temporary tid. The first access waits for the master's answer, and asks again if the
        master is lost, since nothing was stored yet."""
        if self._ttid is None:
            whole, self._whole = self._whole, False
            try:
                self._wait_for_ttid()
            except POSError:
                self._whole = whole
                raise
            self._whole = whole
            assert self._ttid is not None
        return self._ttid

    def _wait_for_ttid(self) -> None:
        backoff = Backoff(self._connections)
        while not self._began(backoff):
            backoff.wait("connection to the master lost in tpc_begin")
            self.begin(backoff)

    @property
    def master(self) -> Channel:
        """The channel to the master that began the transaction. Waits for :attr:`ttid`."""
        assert self.ttid
        return self._master

    # -- changes ---------------------------------------------------------------------------------

    def store(
        self,
        oid: bytes,
        base: bytes,
        data: bytes,
        kind: Kind = Kind.STORE,
        blob: PendingBlob | None = None,
    ) -> None:
        """Store an object. ``blob``: its content is sent first. Raise the errors of settle(), OSError."""
        if blob is not None and oid in self.changes:
            self.settle()  # the nodes drop the content that they were sent before
        self._change(oid, Change(kind, base, data, None, blob))

    def copy(self, oid: bytes, base: bytes, data_serial: bytes, kind: Kind = Kind.COPY) -> None:
        """Make the data of revision ``data_serial`` current again."""
        self._change(oid, Change(kind, base, None, data_serial))

    def delete(self, oid: bytes, base: bytes, kind: Kind = Kind.NOTHING) -> None:
        self._change(oid, Change(kind, base, None, None))

    def check(self, oid: bytes, serial: bytes) -> None:
        """Require that the object stays at this serial until the end of the transaction."""
        if oid not in self.changes:
            self._change(oid, Change(Kind.CHECK, serial, None, None))

    def _change(self, oid: bytes, change: Change) -> None:
        self._check_whole()
        self._check_ended()
        self._whole, self._participants.backoff = False, None
        try:
            if self.imposed is None and len(self._registry.begun) > 1:
                self._registry.check_alone(self.metadata, oid)
            self._put(oid, change)
            self.settle(self._settings.unanswered_max)
        except POSError:
            self._whole = True  # raised by this code, in a consistent state
            raise
        self._whole = True

    def _check_whole(self) -> None:
        """Raise TransactionLostError after an exception from outside: some of an object's cells may
        have been sent the request and others not."""
        if not self._whole:
            raise TransactionLostError("an exception interrupted an earlier step: abort the transaction")

    def _put(self, oid: bytes, change: Change) -> None:
        previous = self.changes.get(oid)
        if previous is not None and previous.data is not None:
            self._unanswered_bytes -= len(previous.data)
        self._conflicts.pop(oid, None)
        self._drop_cached(oid)
        self.changes[oid] = change
        if change.data is not None:
            self._unanswered_bytes += len(change.data)
        self._send(oid, change)

    def _drop_cached(self, oid: bytes) -> None:
        data = self._cached.pop(oid, None)
        if data is not None:
            self._cached_bytes -= len(data)

    def _request(self, oid: bytes, change: Change, base: bytes) -> Request[Any]:
        return request_of(self.ttid, oid, change, base, self._settings.compress)

    def _send(self, oid: bytes, change: Change) -> None:
        """Send a change to every writable cell. Raise UnavailableError if there is none, NEOStorageError
        if the object is too large for a node."""
        if change.blob is not None:
            self._upload(oid, change.blob)
        message = self._request(oid, change, change.base)
        if type(message) is AskStoreObject and len(message.data) > FOREIGN_LARGEST_BYTES:
            backoff, view = self._participants.shared(), self._primary.view()
            check_size(self._storages, view, oid, backoff, len(message.data))
        size = None if change.blob is not None else len(change.data or b"")
        while not change.unanswered:
            view = self._primary.view()
            if change.blob is not None:
                self._upload(oid, change.blob)  # to other nodes than before
            for nid in view.writable[view.partition(oid)]:
                channel = self._participants.join(nid)
                asked = None if channel is None else Asked(nid, channel, oid, change)
                if asked is not None and self._participants.ask(message, asked, size):
                    change.unanswered += 1
            if not change.unanswered:
                self._check_master()
                if self._participants.lost():
                    raise UnavailableError(
                        "the storage nodes with the object's partition failed during the "
                        f"transaction: {'; '.join(self._participants.reasons())}"
                    )
                backoff = self._participants.shared()
                backoff.wait("no running node has a writable cell")
                self._primary.barrier(backoff)

    def _upload(self, oid: bytes, blob: PendingBlob) -> None:
        """Send the content of a blob to the nodes that will be sent its record."""
        ttid, view = self.ttid, self._primary.view()
        check_blobs(self._storages, view, oid, self._participants.shared())
        upload(self._participants, view.writable[view.partition(oid)], ttid, oid, blob)

    # -- answers ---------------------------------------------------------------------------------

    def settle(self, unanswered_max: int = 0) -> None:
        """Wait until so many bytes of data have no answer, and resolve conflicts.

        Raise ConflictError, also if a lock is not granted within ``wait-timeout``, ReadConflictError,
        UndoError, UnavailableError, NEOStorageError.
        """
        wait, participants, again = None, self._participants, False
        while True:
            while participants.ready:
                self._answered(participants.ready.popleft())
            if self._conflicts:
                self._solve(*self._conflicts.popitem())
                again = self._votes_asked > 0 and not self.voted
            elif again:
                again = False
                self._vote_behind()
            elif unanswered_max and self._unanswered_bytes <= unanswered_max:
                return
            else:
                with participants.lock:
                    ticket = next(iter(participants.asked), None)
                if ticket is None:
                    return
                participants.flush()
                if wait is None:
                    assert self._ttid is not None  # the requests contain it
                    wait = LockWait(self._connections, self._storages, self._ttid, self._registry.own)
                wait.wait(ticket)
                self._check_ended()

    def _answered(self, ticket: Ticket[Any]) -> None:
        participants = self._participants
        with participants.lock:
            if participants.asked.pop(ticket, ticket) is ticket:
                return  # the ticket was in the queue twice
        asked = ticket.context
        assert isinstance(asked, Asked)
        try:
            answer = ticket.result()
        except ConnectionLost as e:
            answer = None
            participants.fail(asked.nid, str(e))
        except ErrorAnswer as e:
            if e.code is ErrorCode.PROTOCOL_ERROR:  # the node may have forgotten the transaction
                self._explain_refusal()
            raise asked.refusal(e) from None
        if isinstance(answer, AnswerRebaseTransaction):
            for oid in answer.oid_list:
                question = AskRebaseObject(self.ttid, oid)
                participants.ask(question, Asked(asked.nid, asked.channel, oid))
        elif isinstance(answer, AnswerRebaseObject):
            if answer.conflict is not None and asked.oid is not None:
                self._rebase_failed(asked, asked.oid, answer.conflict)
        elif isinstance(answer, AnswerVoteSingle):
            with participants.lock:
                self.voted = answer.voted
        elif asked.oid is not None and asked.change is self.changes.get(asked.oid):
            # Otherwise the answer is outdated: the object was stored again.
            self._stored(asked, asked.oid, self.changes[asked.oid], answer)

    def _stored(self, asked: Asked, oid: bytes, change: Change, answer: Message) -> None:
        change.unanswered -= 1
        if isinstance(answer, (AnswerStoreObject, AnswerCheckCurrentSerial)):
            if answer.locked is None:
                self._set_locked(change, change.locked | {asked.nid})
            elif answer.locked == ZERO_TID:
                self._lockless = True
            elif change.kind is Kind.RESTORE:
                self._restore_upon(answer.locked, asked, oid, change)
            else:
                self._conflicts[oid] = answer.locked
                return
        if (
            not change.unanswered
            and change.data is not None
            and change.kind is not Kind.MERGED
            and oid not in self._conflicts
        ):
            self._unanswered_bytes -= len(change.data)
            if self._cached_bytes + len(change.data) <= self._settings.cached_max:
                self._cached[oid] = change.data
                self._cached_bytes += len(change.data)
            change.data = None

    def _set_locked(self, change: Change, locked: frozenset[int]) -> None:
        change.locked = self._locked_sets.setdefault(locked, locked)

    def _restore_upon(self, serial: bytes, asked: Asked, oid: bytes, change: Change) -> None:
        """Send the object again, based on the current serial of this node. Replicas are packed at
        different moments, and so an object may exist on only some of them."""
        base = ZERO_TID if serial == MAX_TID else serial
        self._set_locked(change, change.locked - {asked.nid})
        request = self._request(oid, change, base)
        if self._participants.ask(request, asked._replace(change=change)):
            change.unanswered += 1

    def _solve(self, oid: bytes, serial: bytes) -> None:
        """Resolve a conflict with ``serial``, committed by another transaction, or raise it. MAX_TID: the
        object does not exist any more."""
        change = self.changes[oid]
        if serial == MAX_TID:
            error = ReadConflictError if change.kind is Kind.CHECK else ConflictError
            raise error("the object is gone: deleted and packed away, or truncated", oid=oid)
        elif change.kind is Kind.CHECK:
            raise ReadConflictError(oid=oid, serials=(serial, change.base))
        elif change.kind in (Kind.STORE, Kind.MERGED) and change.data is not None:
            sent = sent_data(self._storages, self.ttid, oid, serial)
            try:
                data = self._resolve(oid, serial, change.base, change.data, sent)
            except ConflictError:
                self._await_commit(oid, serial)
                raise
            self.resolved.add(oid)
            again = Change(change.kind, serial, data, None, change.blob)
        else:
            self._await_commit(oid, serial)
            raise ConflictError(oid=oid, serials=(serial, change.base))
        self._put(oid, again)

    def _await_commit(self, oid: bytes, serial: bytes) -> None:
        await_commit(self._storages, self._replicas, self._participants.nids(), oid, serial)

    def _check_ended(self) -> None:
        if self._ended_by_operator:
            raise TransactionLostError(
                f"transaction 0x{self.ttid.hex()} was ended by the operator (neoctl end), since it made"
                " others wait: begin it again"
            )

    def _explain_refusal(self) -> None:
        """Raise TransactionLostError if a storage node refused a step because the master ended the
        transaction, or is lost. The master tells that on another connection."""
        try:
            self._master.call(Ping())
        except (ConnectionLost, ErrorAnswer):
            self._check_master()
        self._check_ended()

    def _check_master(self) -> None:
        if self._stopped:
            raise TransactionLostError("the cluster stops: the transaction is aborted")
        if (lost := self._master.lost) is not None:
            # The master's reason may quote those of the nodes.
            reasons = [lost, *(why for why in self._participants.reasons() if why not in lost)]
            raise TransactionLostError(
                f"connection to the master lost during the transaction: {'; '.join(reasons)}"
            )

    # -- called by the thread that leads on the master's channel -----------------------------------

    def stop(self) -> bool:
        """Abort the transaction if it is in its first phase, because the cluster waits for it to stop.

        Return whether it was. The master tells the storage nodes. The committing thread may call it, too.
        """
        with self._participants.lock:
            ttid = self._given_ttid()
            if self.voted or self._over or ttid is None:
                return False
            self._stopped = True
            self._master.send(AbortTransaction(ttid, self._participants.nids()), self._farewell)
            return True

    def _given_ttid(self) -> bytes | None:
        """Return the ttid if the master has answered. A master that stops gives none."""
        answer = None if self._begin is None else self._begin.answer
        return answer.ttid if isinstance(answer, AnswerBeginTransaction) else self._ttid

    @property
    def _over(self) -> bool:
        return self._ended or self._stopped

    def ended_by_operator(self) -> None:
        """Refuse all later steps but abort."""
        self._ended_by_operator = True

    def rebase(self, locking_tid: bytes) -> None:
        """Handle NotifyDeadlock: release all locks and queue for them again.

        The committing thread handles the answers.
        """
        assert self._ttid is not None
        with self._participants.lock:
            if not (self.voted or self._over or locking_tid < self._participants.locking_tid):
                self._participants.rebase(AskRebaseTransaction(self._ttid, locking_tid))

    def _rebase_failed(self, asked: Asked, oid: bytes, conflict: Conflict) -> None:
        """Handle a conflict that a storage node found when it locked an object again."""
        serial, conflict_serial, stored = conflict
        change = self.changes[oid]
        if change.base != serial and change.kind is not Kind.RESTORE:
            return  # the object was stored again
        if change.data is None and stored is not None:
            # The data was dropped here, because all cells had answered.
            change.data = unpack_data(stored[0], stored[2])
            self._unanswered_bytes += len(change.data)
            self._drop_cached(oid)
        if change.kind is Kind.RESTORE:
            self._restore_upon(conflict_serial, asked, oid, change)
        else:
            self._conflicts[oid] = conflict_serial

    # -- vote ------------------------------------------------------------------------------------

    def vote(self, durable: bool = False) -> None:
        """Vote, or wait for what :meth:`ask_votes` has asked. ``durable``: also if one storage node takes
        part, whose lock alone would do. Raise the errors of settle(), and TransactionLostError."""
        self._durable = durable
        self._step(self._vote)

    def ask_votes(self) -> None:
        """Ask the storage nodes to vote, without waiting: :meth:`vote` must follow. Raise the errors of
        settle(), and TransactionLostError."""
        self._step(self._ask_votes)

    def _step(self, step: Callable[[], None]) -> None:
        self._check_whole()
        self._check_ended()
        self._whole, self._participants.backoff = False, None
        try:
            step()
        except POSError:
            self._whole = True  # raised by this code, in a consistent state
            raise
        self._whole = True

    def _vote(self) -> None:
        if not self._votes_asked:
            self._ask_votes()
        self.settle(0)
        while not self.voted:
            # The vote came before a store or check had its lock; they are all answered now.
            self._ask_votes()
            self.settle(0)
        self._check_master()
        self._check_nodes()
        self._lose_storage(FaultSite.STORAGE_LOST_AFTER_VOTE)

    def _ask_votes(self) -> None:
        self._votes_asked += 1
        if self._ask_single():
            return
        self.settle(0)
        self._lose_storage(FaultSite.STORAGE_LOST_BEFORE_VOTE)
        ttid = self.ttid  # first, since it may wait, and the master's answer may follow new tables
        view = self._primary.view()
        keepers = self._keepers = view.writable[view.partition(ttid)]
        self._partitions = len(view.writable)
        for nid in keepers:
            self._participants.join(nid)
        with self._participants.lock:
            self._check_master()
            self.voted = True
            nodes = self._participants.alive()
        for nid, channel in nodes.items():
            if nid in keepers:
                oids = self._oids(stored=True)
                message: Request[Any] = votes.with_metadata(ttid, self.metadata, oids)
            else:
                message = AskVoteTransaction(ttid)
            self._participants.ask(message, Asked(nid, channel))

    def _vote_behind(self) -> None:
        """Send the vote of a transaction with one storage node behind what was stored again: the node has
        kept the locks for it, and others wait for their end."""
        self._votes_asked += 1
        self._ask_single()

    def _ask_single(self) -> bool:
        """Send the vote behind the stores and checks if only one storage node takes part (specification
        7.51). Return False if others do, or if that is of no use."""
        if self._lockless or self._votes_asked > SINGLE_MAX:
            return False
        ttid = self.ttid
        view = self._primary.view()
        keepers = view.writable[view.partition(ttid)]
        if (nid := votes.only_node(self._participants, keepers)) is None:
            return False
        self._lose_storage(FaultSite.STORAGE_LOST_BEFORE_VOTE)
        channel = self._participants.join(nid)
        if channel is None or FEATURE_OURS not in self._storages.announced(nid):
            return False
        self._keepers, self._partitions = keepers, len(view.writable)
        durable = self._settings.durable_vote or self._durable
        vote = votes.single(ttid, self.metadata, self._oids(True), self._oids(False), durable)
        return self._participants.ask(vote, Asked(nid, channel))

    def _lose_storage(self, site: FaultSite) -> None:
        """Close a connection if the fault site fires."""
        if self._connections.host.fault(site):
            for channel in list(self._participants.alive().values())[:1]:
                channel.close("disconnected on purpose")

    def _oids(self, stored: bool) -> list[bytes]:
        return [
            oid for oid, change in self.changes.items() if (change.kind is not Kind.CHECK) is stored
        ]

    def _check_nodes(self) -> None:
        """Check that the remaining nodes suffice if some were lost, or stored without locks."""
        running = votes.failed_nodes(
            self._participants, self._primary.view(), self.changes, self._keepers, self._lockless
        )
        if running:
            try:
                self._master.call(FailedVote(self.ttid, running))
            except ErrorAnswer as e:
                raise refusal("vote", e) from None
            except ConnectionLost:
                self._check_master()

    # -- the end ---------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the transaction was aborted, or AskFinishTransaction was sent."""
        return self._ended or self._finish.ticket.sent or self._finish.lost

    @property
    def place(self) -> tuple[Channel, int | None]:
        """The channel to its master, and the storage node that alone takes part; None if several do."""
        return self._master, votes.only_node(self._participants, self._keepers)

    def stored(self) -> dict[bytes, bytes | None]:
        """Return the oids that were stored, with the data that is kept for the cache."""
        return {oid: self._cached.get(oid) for oid in self._oids(stored=True)}

    def _voted(self) -> Voted:
        self._check_whole()
        assert self._ttid is not None  # it has voted
        stored, ttid = self.stored(), self._ttid
        request = AskFinishTransaction(ttid, list(stored), self._oids(stored=False))
        return Voted(self._master, ttid, self._partitions, stored, request)

    def ask_finish(self) -> None:
        """Ask the master to commit, without waiting: :meth:`finish` must follow."""
        self._finish.ask(self._voted())

    def finish(self, callback: Callable[[bytes], object]) -> bytes:
        """Commit. Return the tid; ``callback`` is called with it before a newer transaction is applied.

        After an exception from outside, :attr:`ended` tells whether the transaction may be committed.
        If it is, it is applied here before any newer transaction.
        """
        try:
            if self._finish.early:
                return self._finish.wait(callback)
            return self._finish.commit(self._voted(), callback)
        except POSError:
            raise  # in a consistent state
        except BaseException:
            self._whole = False
            raise
        finally:
            if self.ended and self._ttid is not None:
                self._registry.remove(self._ttid, self)

    def final_tid(self, backoff: Backoff) -> bytes | None:
        """Return the tid; None if it was not committed. Raise ErrorAnswer, NEOStorageError."""
        return self._finish.final_tid(self.ttid, self._partitions, backoff)

    def prepare(self, xid: bytes, text: bytes) -> None:
        """Ask the master to keep the voted transaction (specification 24.1), which ends here. Raise
        ConnectionLost; ErrorAnswer: then it must be aborted if DENIED, else the master has done so."""
        self._check_whole()
        self._check_ended()
        self._check_master()
        ttid = self.ttid
        message = AskPrepareTransaction(ttid, xid, self._oids(True), self._oids(False), text)
        ticket, denied = Ticket(orphan=self._denied_in_vain), False
        try:
            self._master.wait(self._master.ask(message, ticket))
        except ErrorAnswer as e:
            denied = e.code is ErrorCode.DENIED
            raise
        finally:
            self._ended = ticket.sent and not denied
            if self._ended:
                self._registry.remove(ttid, self)

    def _denied_in_vain(self, answer: Message) -> None:
        """Abort after a refusal for which no thread waits any more. Called by the leading thread."""
        if isinstance(answer, Error) and answer.code == ErrorCode.DENIED.value:
            self._master.send(AbortTransaction(self.ttid, self._participants.nids()), self._farewell)

    def abort(self) -> None:
        """Abort, without waiting. Raise nothing: nodes that cannot be told notice the lost connection.
        Idempotent, so it can be repeated after an exception from outside."""
        self._cached.clear()
        if self.ended and not self._aborted:
            return
        with self._participants.lock:
            self._aborted = self._ended = True
        begin, ttid = self._begin, self._ttid
        if begin is not None and ttid is None:
            # _begun_in_vain() handles an answer that comes later.
            self._master.forget(begin)
            if begin.done and isinstance(begin.answer, AnswerBeginTransaction):
                ttid = begin.answer.ttid
        if ttid is not None:
            self._registry.remove(ttid, self)
            self._participants.abort(ttid)
            self._master.send(AbortTransaction(ttid, self._participants.nids()), self._farewell)
        self._participants.forget()
