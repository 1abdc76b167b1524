"""First phase of a transaction: stores, conflicts, deadlocks (specification, *Commit*).

Stores are sent to every writable cell without waiting. The thread that reads an answer puts it in a
queue (``sink`` of the tickets). The committing thread handles the queue when too many bytes wait for
answers, and before the vote. Data is kept until every cell has answered, because a conflict needs it;
then it is dropped, or kept for the cache, within a bound. So a transaction may be larger than memory.

Only :meth:`Changes.rebase` and :meth:`Changes.stop` are called by another thread, the one that leads
on the master's channel. It must not wait for the committing thread, which may wait for a lock that only
the rebase releases. ``_lock`` protects the table of nodes and the order of requests against it.

A transaction uses one connection per storage node from its first request to its end. A node whose
connection is lost takes no further part in the transaction. If the connection to the master is lost, the
transaction is lost, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ZODB.POSException import ConflictError, POSError, ReadConflictError, UndoError

from neo.client.change import Asked, Change, Kind, Options
from neo.client.errors import NEOStorageError, TransactionLostError, UnavailableError, refusal
from neo.client.lock_wait import LockWait
from neo.client.pause import Pause
from neo.client.records import FOREIGN_LARGEST_BYTES, pack_data, unpack_data
from neo.client.session import Session
from neo.net.channel import Channel, Ticket
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, HandshakeError
from neo.protocol.ids import MAX_TID, ZERO_HASH, ZERO_TID, format_nid
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerCheckCurrentSerial,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    Conflict,
    Error,
    Message,
    Ping,
    Request,
)

Resolve = Callable[[bytes, bytes, bytes, bytes], bytes]
"""Conflict resolution: (oid, committed serial, base serial, new data) → data; raises ConflictError."""


class Changes:
    """``tid``: the preset tid of IStorageRestoreable, None otherwise."""

    def __init__(
        self,
        session: Session,
        transaction: Any,
        tid: bytes | None,
        options: Options,
        resolve: Resolve,
    ) -> None:
        self.transaction = transaction
        self.changes: dict[bytes, Change] = {}
        #: Oids whose conflicts were resolved.
        self.resolved: set[bytes] = set()
        self.voted = False
        self._session = session
        self._tid = tid
        self._options = options
        self._resolve = resolve
        self._lock = session.host.lock()
        self._nodes: dict[int, Channel | None] = {}  # None: its connection was lost
        self._failures: dict[int, str] = {}  # reasons
        self._asked: dict[Ticket[Any], None] = {}
        self._ready: deque[Ticket[Any]] = deque()
        self._conflicts: dict[bytes, bytes] = {}
        self._locking_tid = ZERO_TID
        self._unanswered_bytes = 0
        self._cached: dict[bytes, bytes] = {}
        self._cached_bytes = 0
        self._locked_sets: dict[frozenset[int], frozenset[int]] = {}
        self._lockless = False
        self._rebased: dict[int, bytes] = {}  # the last locking tid that each node was sent
        # Requests and their records agree. False after an exception from outside.
        self._whole = True
        self._ended = False
        self._stopped = False  # aborted because the cluster stops
        #: Set by the thread that leads on the master's channel.
        self._ended_by_operator = False
        self._ttid: bytes | None = None
        self._master: Channel
        self._begin: Ticket[AnswerBeginTransaction] | None = None
        # Marks that AbortTransaction was sent to the master, which refuses a second one.
        self._farewell: Ticket[Any] = Ticket()

    def begin(self) -> None:
        """Ask the master for a ttid, without waiting. Raise the errors of session.master()."""
        self._begin_soon()

    # -- begin -----------------------------------------------------------------------------------

    def _begin_soon(self) -> None:
        """Ask the master for a ttid. Does not wait for the answer."""
        self._begin = None
        self._master = self._session.master()
        ticket: Ticket[AnswerBeginTransaction] = Ticket(orphan=self._begun_in_vain)
        self._begin = ticket
        try:
            self._master.ask(AskBeginTransaction(self._tid), ticket)
        except ConnectionLost:
            self._begin = None  # the master was lost again

    def _begun_in_vain(self, answer: AnswerBeginTransaction | Error) -> None:
        """Abort a transaction whose ttid comes after its abort. Called by the leading thread."""
        if isinstance(answer, AnswerBeginTransaction):
            self._master.send(AbortTransaction(answer.ttid, []), self._farewell)

    def _began(self) -> bool:
        """Wait for the ttid; return False if it will not come."""
        if self._ttid is not None:
            return True
        if self._begin is None:
            return False
        try:
            answer = self._master.wait(self._begin)
        except ErrorAnswer as e:
            raise refusal("tpc_begin", e) from None
        except ConnectionLost:
            return False
        self._ttid = answer.ttid
        self._session.commits[answer.ttid] = self
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
        pause = Pause(self._session)
        while not self._began():
            pause.take("connection to the master lost in tpc_begin")
            self._begin_soon()

    @property
    def master(self) -> Channel:
        """The channel to the master that began the transaction. Waits for :attr:`ttid`."""
        assert self.ttid
        return self._master

    # -- changes ---------------------------------------------------------------------------------

    def store(self, oid: bytes, base: bytes, data: bytes, kind: Kind = Kind.STORE) -> None:
        self._change(oid, Change(kind, base, data, None))

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
        self._whole = False
        try:
            self._put(oid, change)
            self._settle(self._options.unanswered_max)
        except POSError:
            self._whole = True  # raised by this code, in a consistent state
            raise
        self._whole = True

    def _check_whole(self) -> None:
        """Raise TransactionLostError after an exception from outside: some of an object's cells may
        have been sent the request and others not."""
        if not self._whole:
            raise TransactionLostError(
                "an exception interrupted an earlier step of the transaction: abort it"
            )

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
        if change.kind is Kind.CHECK:
            return AskCheckCurrentSerial(self.ttid, oid, base)
        if change.data is None:
            stored = 0, ZERO_HASH, b""
        else:
            stored = pack_data(oid, change.data, self._options.compress)
        return AskStoreObject(oid, base, *stored, change.data_serial, self.ttid)

    def _send(self, oid: bytes, change: Change) -> None:
        """Send a change to every writable cell. Raise UnavailableError if there is none, NEOStorageError
        if the object is too large for a node."""
        message = self._request(oid, change, change.base)
        if type(message) is AskStoreObject and len(message.data) > FOREIGN_LARGEST_BYTES:
            self._check_size(oid, len(message.data))
        pause = Pause(self._session)
        while not change.unanswered:
            view = self._session.view()
            for nid in view.writable[view.partition(oid)]:
                channel = self._node(nid)
                if channel is not None and self._ask(message, Asked(nid, channel, oid, change)):
                    change.unanswered += 1
            if not change.unanswered:
                self._check_master()
                if any(channel is None for channel in self._nodes.values()):
                    raise UnavailableError(
                        "the storage nodes with the object's partition failed during the "
                        f"transaction: {'; '.join(self._reasons())}"
                    )
                pause.take("no running node has a writable cell")
                self._session.barrier()

    def _check_size(self, oid: bytes, size: int) -> None:
        view = self._session.view()
        for nid in view.writable[view.partition(oid)]:
            try:
                foreign = not self._session.features(nid)
            except (ConnectionLost, HandshakeError, OSError, ErrorAnswer):
                continue  # the node will not be sent the object
            if foreign:
                raise NEOStorageError(
                    f"object {oid.hex()} has {size} bytes, more than {FOREIGN_LARGEST_BYTES}, the most"
                    f" that {format_nid(nid)}, of another implementation, can take: divide it"
                )

    def _node(self, nid: int) -> Channel | None:
        """Return the transaction's connection to a node; None if it was lost."""
        if nid in self._nodes:
            channel = self._nodes[nid]
        else:
            self._check_master()  # do not wait for a master that cannot finish this transaction
            try:
                channel = self._session.storage(nid)
                # The channel may belong to a later connection to a master, which has no such transaction.
                self._check_master()
            except (ConnectionLost, HandshakeError, OSError, ErrorAnswer) as e:
                channel = None
                self._fail(nid, str(e))
            with self._lock:
                self._nodes[nid] = channel
                if channel is not None and self._locking_tid > ZERO_TID:
                    self._rebase_node(nid, channel)
        if channel is not None and channel.lost is not None:
            self._fail(nid, channel.lost)
            channel = None
        return channel

    def _fail(self, nid: int, reason: str) -> None:
        self._nodes[nid] = None
        self._failures.setdefault(nid, reason.removeprefix(f"{format_nid(nid)} "))

    def _reasons(self) -> list[str]:
        return [f"{format_nid(nid)} {why}" for nid, why in sorted(self._failures.items())]

    def _ask(self, message: Request[Any], asked: Asked) -> bool:
        with self._lock:
            return self._ask_locked(message, asked)

    def _ask_locked(self, message: Request[Any], asked: Asked) -> bool:
        ticket: Ticket[Any] = Ticket(asked, self._ready)
        try:
            asked.channel.ask(message, ticket)
        except ConnectionLost as e:
            self._fail(asked.nid, str(e))
            return False
        except BaseException:
            if ticket.sent:
                self._asked[ticket] = None
            raise
        self._asked[ticket] = None
        return True

    # -- answers ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for all answers, and resolve conflicts.

        Raise ConflictError, also if a lock is not granted within ``wait-timeout``, ReadConflictError,
        UndoError, UnavailableError, NEOStorageError.
        """
        self._settle(0)

    def _settle(self, unanswered_max: int) -> None:
        wait: LockWait | None = None
        while True:
            while self._ready:
                self._answered(self._ready.popleft())
            if self._conflicts:
                self._solve(*self._conflicts.popitem())
            elif unanswered_max and self._unanswered_bytes <= unanswered_max:
                return
            else:
                with self._lock:
                    ticket = next(iter(self._asked), None)
                if ticket is None:
                    return
                if wait is None:
                    wait = LockWait(self._session, self.ttid)
                wait.wait(ticket)
                self._check_ended()

    def _answered(self, ticket: Ticket[Any]) -> None:
        with self._lock:
            if self._asked.pop(ticket, ticket) is ticket:
                return  # the ticket was in the queue twice
        asked = ticket.context
        assert isinstance(asked, Asked)
        try:
            answer = ticket.result()
        except ConnectionLost as e:
            answer = None
            self._fail(asked.nid, str(e))
        except ErrorAnswer as e:
            if asked.change is not None and asked.change.kind is Kind.COPY:
                if e.code is ErrorCode.OID_NOT_FOUND:  # packed since the undo began
                    raise UndoError("earlier data was packed away", asked.oid) from None
            what = "" if asked.oid is None else f", object {asked.oid.hex()}"
            if e.code is ErrorCode.PROTOCOL_ERROR:  # the node may have forgotten the transaction
                self._explain_refusal()
            raise refusal(f"storage node {format_nid(asked.nid)}{what}", e) from None
        if isinstance(answer, AnswerRebaseTransaction):
            for oid in answer.oid_list:
                self._ask(AskRebaseObject(self.ttid, oid), Asked(asked.nid, asked.channel, oid))
        elif isinstance(answer, AnswerRebaseObject):
            if answer.conflict is not None and asked.oid is not None:
                self._rebase_failed(asked, asked.oid, answer.conflict)
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
            if self._cached_bytes + len(change.data) <= self._options.cached_max:
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
        if self._ask(self._request(oid, change, base), asked._replace(change=change)):
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
            data = self._resolve(oid, serial, change.base, change.data)
            self.resolved.add(oid)
            again = Change(change.kind, serial, data, None)
        else:
            raise ConflictError(oid=oid, serials=(serial, change.base))
        self._put(oid, again)

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
            reasons = [why for why in self._reasons() if why not in lost]
            raise TransactionLostError(
                f"connection to the master lost during the transaction: {'; '.join([lost, *reasons])}"
            )

    # -- stop ------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._ended or self._stopped

    def stop(self) -> bool:
        """Abort the transaction if it is in its first phase, because the cluster waits for it to stop.

        Return whether it was. The master tells the storage nodes. Called by the thread that leads on
        the master's channel, or by the committing thread.
        """
        with self._lock:
            ttid = self._given_ttid()
            if self.voted or self._over or ttid is None:
                return False
            self._stopped = True
            self._master.send(AbortTransaction(ttid, sorted(self._nodes)), self._farewell)
            return True

    def _given_ttid(self) -> bytes | None:
        """Return the ttid if the master has answered. A master that stops gives none."""
        answer = None if self._begin is None else self._begin.answer
        return answer.ttid if isinstance(answer, AnswerBeginTransaction) else self._ttid

    # -- the operator ----------------------------------------------------------------------------

    def ended_by_operator(self) -> None:
        """Refuse all later steps but abort. Called by the thread that leads on the master's channel."""
        self._ended_by_operator = True

    # -- deadlocks -------------------------------------------------------------------------------

    def rebase(self, locking_tid: bytes) -> None:
        """Handle NotifyDeadlock: release all locks and queue for them again.

        Called by the thread that leads on the master's channel. The committing thread handles answers.
        """
        with self._lock:
            if self.voted or self._over or locking_tid < self._locking_tid:
                return
            self._locking_tid = locking_tid
            # A copy, because the committing thread may change the dictionary.
            for nid, channel in list(self._nodes.items()):
                # The call may be repeated, for nodes that were not sent the locking tid the first time.
                if channel is not None and self._rebased.get(nid, ZERO_TID) < locking_tid:
                    self._rebase_node(nid, channel)

    def _rebase_node(self, nid: int, channel: Channel) -> None:
        """Send the locking tid to a node. Call with the lock."""
        assert self._ttid is not None
        self._ask_locked(AskRebaseTransaction(self._ttid, self._locking_tid), Asked(nid, channel))
        self._rebased[nid] = self._locking_tid

    def _rebase_failed(self, asked: Asked, oid: bytes, conflict: Conflict) -> None:
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
