"""Locks on objects while transactions commit (specification 7, 8).

PURE: no IO, no randomness; the clock decides nothing. Each method runs on the thread of the event loop
and takes effect at once. It may call ``answer``, ``discard`` and ``deadlock`` before it returns; these
queue messages or write to the database, and never change anything here. A vote that waited is attempted
at the end of a method, and calls :meth:`Locks.vote`, or :meth:`Locks.abort`.

Theory of operation
-------------------
A transaction *holds* an object (its write lock) from a successful store or check until it ends. A
request of another transaction for it is *delayed*, unless the wait could close a circle:

* Each transaction has a **locking tid**, at first its ttid. It may wait only for holders with a smaller
  locking tid, or that have voted (these wait for nothing). So waits point from greater to smaller
  locking tids, and no circle exists, on any number of nodes.
* A transaction that would wait for a greater locking tid is in a possible **deadlock**. It releases all
  that it holds here, the master is told, and its requests wait until the client *rebases* it, that is,
  brings a new, greater locking tid. Then it takes again what is free. For the other objects it keeps
  its place in the queues, else two large transactions could take objects from each other forever; the
  client asks for these one by one (``rebase_object``).
* When objects become free, delayed requests are executed in the order of locking tids; a transaction
  that is being rebased takes its turn among them. So all nodes agree on the next holder, which ends
  cascades of deadlocks.
* A store on top of an old serial is answered with the conflict, and holds the object: the client
  stores again or aborts. Else all transactions that waited for the object would resolve the same
  conflict at once, all but one in vain (specification 8.8).
* When the holder is locked, its tid is known, and that it commits before the object is free. The next
  store is **told** its conflict then, so that its client resolves it meanwhile, and stores again
  (specification 8.32). A vote behind delayed stores waits for them (7.63).

A cell that is out of date cannot detect conflicts: it accepts stores **lockless**, without a lock. When
the cell is complete, all transactions with lockless stores of an object hold it together (**shared**),
until one remains.

From ``lock`` to ``unlock``, the stored objects are also locked for reading.

Bounds: a delayed request keeps no data, which is in the database. Clients limit the bytes of stores
that wait for an answer; there are no more delayed requests than answers that clients wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from neo.protocol.ids import INVALID_OID, MAX_TID, ZERO_TID
from neo.storage.backend.api import Check, Stored
from neo.storage.commit.read_locks import Readers
from neo.storage.commit.transactions import (
    NOBODY,
    Blocked,
    Blocking,
    Change,
    Client,
    HeldByPrepared,
    LockCounts,
    LockKeeper,
    RebaseAnswer,
    Request,
    StoreAnswer,
    Transaction,
    TransactionRefused,
)
from neo.storage.commit.write_locks import WriteLocks

#: Late stores come between the master's AbortTransaction and the client's own, or the end of the client's
#: connection. No node has clients with so many aborts under way. A late store of a transaction that is
#: forgotten would hold its object until the client's process ends, or the operator ends the transaction.
ABORTED_MAX = 10_000
#: Shortest time until the waits for prepared transactions are looked at again.
AGAIN_SECONDS = 0.1


class Locks:
    """The transactions in progress on a storage node, and the objects that they hold."""

    def __init__(self, keeper: LockKeeper) -> None:
        self._writes = WriteLocks(keeper)
        self._clock = keeper.clock
        self._requests = 0
        self._start()

    def _start(self) -> None:
        self._transactions: dict[bytes, Transaction] = {}
        self._readers = Readers()
        #: Transactions that the master has aborted and their client not yet. None if nothing of the
        #: transaction had arrived.
        self._aborted: dict[bytes, Client | None] = {}
        #: See :meth:`received`.
        self._received: dict[bytes, tuple[frozenset[bytes], bool]] = {}

    # -- first phase ------------------------------------------------------------------------------

    def store(
        self,
        ttid: bytes,
        client: Client,
        oid: bytes,
        serial: bytes,
        stored: Stored | None,
        answer: StoreAnswer,
        tell: bool = False,
    ) -> None:
        """Handle AskStoreObject, or AskCheckCurrentSerial if ``stored`` is None; maybe answer later.

        ``tell``: a conflict may be answered before the transaction that it is with is unlocked. Raises
        TransactionRefused and changes nothing then.
        """
        if ttid in self._aborted:
            self._writes.discard(Change(serial, stored))
            answer(ZERO_TID)
            return
        transaction = self._begin(ttid, client)
        number, change = self._number(), Change(serial, stored)
        request = Request(transaction, oid, number, change, answer_store=answer, tell=tell)
        self._writes.attempt(request)
        self._execute()

    def rebase(self, ttid: bytes, client: Client, locking_tid: bytes) -> list[bytes]:
        """Handle AskRebaseTransaction; return the objects that the client must rebase one by one.

        These conflict, or other transactions hold them. After a new deadlock, return only the objects
        that keep the client from voting; none if a request of the client waits for the next rebase.
        Raises TransactionRefused, or Unverifiable: then the transaction neither holds nor waits for
        anything.
        """
        if ttid in self._aborted:
            return []
        transaction = self._begin(ttid, client)
        if locking_tid < transaction.locking_tid:
            raise TransactionRefused(
                f"transaction {ttid.hex()} has locking tid {transaction.locking_tid.hex()}"
                f" and cannot be rebased back to {locking_tid.hex()}"
            )
        if transaction.unknown:
            # On other nodes it has the new locking tid: nothing may wait for the old one here.
            self._writes.give_up(transaction)
            self._attempt_votes()
            raise transaction.unverifiable()
        self._writes.release(transaction)
        transaction.rebasing = False
        transaction.locking_tid = locking_tid
        self._writes.freed.update(request.oid for request in transaction.delayed)
        self._writes.execute(locking_tid)
        if not transaction.rebasing:
            self._writes.take_again(transaction)
            self._writes.keep_places(transaction, self._number)
        self._execute()
        if transaction.rebasing:
            return [request.oid for request in transaction.delayed if request.keeps_place]
        return transaction.to_rebase()

    def rebase_object(self, ttid: bytes, client: Client, oid: bytes, answer: RebaseAnswer) -> None:
        """Handle AskRebaseObject: store again what the transaction has for this object.

        Answer at once if it has nothing: an earlier rebase answered a conflict. Raises
        TransactionRefused, also if the partition was dropped meanwhile.
        """
        if ttid in self._aborted:
            answer(None)
            return
        transaction = self._begin(ttid, client)
        self._writes.attempt(Request(transaction, oid, self._number(), None, answer_rebase=answer))
        self._execute()

    # -- second phase -----------------------------------------------------------------------------

    def vote(self, ttid: bytes, client: Client, metadata: bool) -> list[Stored]:
        """Return the changes to make durable before the vote is answered.

        ``metadata``: the vote is AskStoreTransaction, which may be the only request of a transaction to
        this node. Raises TransactionRefused if the transaction is not complete here.
        """
        if ttid in self._aborted or (ttid not in self._transactions and not metadata):
            raise TransactionRefused(
                f"transaction {ttid.hex()} is unknown here: aborted, or this node was restarted"
            )
        transaction = self._begin(ttid, client)
        if transaction.unknown:
            raise transaction.unverifiable()
        missing = len(transaction.to_rebase())
        if not missing:
            self._writes.leave_places(transaction)
        if transaction.delayed or transaction.rebasing or missing:
            raise TransactionRefused(
                f"transaction {ttid.hex()} cannot vote: {len(transaction.delayed)} requests wait"
                f" for an answer, {missing} objects must be rebased"
            )
        transaction.voted = True
        transaction.metadata = metadata
        return list(transaction.stored())

    def has_all(self, ttid: bytes, stored: Collection[bytes], checked: Collection[bytes]) -> bool:
        """Return whether the transaction may vote with exactly these objects: each of its stores and
        checks before has its lock, and none is delayed (specification 7.52)."""
        transaction = self._transactions.get(ttid)
        if transaction is None:
            return not stored and not checked
        changes = transaction.changes
        if transaction.delayed or transaction.rebasing or len(changes) != len(stored) + len(checked):
            return False
        return (
            all(oid in changes and changes[oid].stored is not None for oid in stored)
            and all(oid in changes and changes[oid].stored is None for oid in checked)
            and not transaction.to_rebase()
        )

    def hold_vote(self, ttid: bytes, client: Client, vote: Callable[[], None]) -> bool:
        """Keep a vote that came before locks for which its transaction waits (specification 7.63).

        ``vote`` attempts it: it is called when nothing is delayed any more, or when it is certain that
        the vote must be refused. Return False if it can be attempted now.
        """
        transaction = self._transactions.get(ttid)
        if transaction is None or transaction.client != client or transaction.voted:
            return False
        if transaction.vote is not None:
            self._refuse_vote(transaction)
        if not transaction.delayed or transaction.rebasing:
            return False
        transaction.vote = vote
        return True

    @staticmethod
    def _refuse_vote(transaction: Transaction) -> None:
        """Have a waiting vote refused, because a later request of the transaction came."""
        vote, transaction.vote = transaction.vote, None
        if vote is not None:
            vote()  # requests are delayed

    def _execute(self) -> None:
        """Execute the requests for freed objects, then the votes that waited for them."""
        self._writes.execute()
        if self._writes.settled:
            self._attempt_votes()

    def _attempt_votes(self) -> None:
        settled = self._writes.settled
        while settled:
            transaction = next(iter(settled))
            del settled[transaction]
            vote, transaction.vote = transaction.vote, None
            if vote is not None:
                vote()

    def vote_stored(self, ttid: bytes) -> None:
        """Note that the vote is durable, unless the transaction was dropped meanwhile."""
        transaction = self._transactions.get(ttid)
        if transaction is not None:
            transaction.stored_vote = True

    def locks_at_once(self, ttid: bytes) -> bool:
        """Return whether AskLockInformation can be answered without waiting for the disk.

        Only a node that keeps the metadata writes the final tid. The vote must be durable too; a client
        need not have waited for that.
        """
        transaction = self._transactions.get(ttid)
        return transaction is None or (transaction.stored_vote and not transaction.metadata)

    def lock(self, ttid: bytes, tid: bytes) -> bool:
        """Handle AskLockInformation: from now on reads of the stored objects wait.

        Return False if this node has no part in the transaction: its cells are newer. Raises
        TransactionRefused if the transaction has not voted here.
        """
        transaction = self._transactions.get(ttid)
        if transaction is None:
            return False
        if not transaction.voted:
            raise TransactionRefused(f"transaction {ttid.hex()} is locked before it voted here")
        transaction.tid = tid
        self._readers.locked.add(transaction)
        if transaction.xid is not None:
            self.prepared.pop(ttid, None)
        if self._writes.queue:
            self._writes.tell_next(transaction, tid)
            self._attempt_votes()
        return True

    def locked_store(self, oid: bytes, tid: bytes) -> Stored | None:
        """Return what the locked transaction of this tid stored for an object; None if there is none."""
        for holder in self._writes.holders.get(oid, ()):
            if holder.tid == tid and oid in holder.changes:
                return holder.changes[oid].stored
        return None

    def final_tid(self, ttid: bytes) -> bytes | None:
        """Return the tid of a locked transaction; None if it is not locked, or unknown."""
        transaction = self._transactions.get(ttid)
        return transaction.tid if transaction is not None else None

    def stored(self, ttid: bytes, oid: bytes) -> Stored | None:
        """Return what a transaction in progress stored for an object; None if nothing."""
        transaction = self._transactions.get(ttid)
        change = None if transaction is None else transaction.changes.get(oid)
        return None if change is None else change.stored

    def unlock(self, ttid: bytes) -> None:
        """Handle NotifyUnlockInformation when the new records can be read: release all locks.

        The transaction must be locked (see ``final_tid``). Call back the reads that wait for this unlock.
        """
        transaction = self._transactions[ttid]
        assert transaction.tid is not None, ttid
        del self._transactions[ttid]
        reads = self._readers.unlocked(transaction)
        self._writes.release(transaction)
        self._execute()
        for read in reads:
            read()

    # -- prepared transactions (specification 24) -------------------------------------------------

    @property
    def prepared(self) -> dict[bytes, Transaction]:
        """The transactions that are prepared and not locked, by ttid."""
        return self._writes.prepared

    def checks(self, ttid: bytes) -> list[Check]:
        """Return what a voted transaction checks and does not store, for its mark. Raises
        TransactionRefused if it has not voted here, or is locked."""
        transaction = self._transactions.get(ttid)
        if transaction is None or not transaction.voted or transaction.tid is not None:
            raise TransactionRefused(
                f"transaction {ttid.hex()} cannot be prepared: this node does not have its vote"
            )
        return transaction.checks()

    def prepare(self, ttid: bytes, xid: bytes) -> None:
        """Handle AskPrepareInformation: the voted transaction outlives its client from now on."""
        transaction = self.prepared[ttid] = self._transactions[ttid]
        transaction.xid = xid

    def restore(self, ttid: bytes, xid: bytes, metadata: bool) -> bool:
        """Take up a prepared transaction from the tables, or from another node; :meth:`restore_change`
        follows. If a transaction of this ttid has voted here, it becomes prepared; if it has not voted,
        it is dropped. If it is locked, the decision came first: change nothing and return False."""
        transaction = self._transactions.get(ttid)
        if transaction is not None and transaction.tid is not None:
            return False
        if transaction is not None and not transaction.voted:
            self._drop(transaction)
            self._attempt_votes()
            transaction = None
        if transaction is None:
            transaction = Transaction(ttid, NOBODY, ttid, self._clock(), voted=True)
            self._transactions[ttid] = transaction
        transaction.stored_vote = True
        transaction.metadata |= metadata
        self.prepare(ttid, xid)
        return True

    def restore_change(self, ttid: bytes, oid: bytes, change: Change) -> None:
        """Add a change to a prepared transaction. The object is locked in a readable or complete cell,
        lockless in one that is out of date, and ignored elsewhere; its serial is not compared."""
        transaction = self.prepared[ttid]
        self._writes.leave(transaction, [oid])
        self._writes.hold_prepared(transaction, oid, change)
        self._execute()

    def leave(self, ttid: bytes, gone: Callable[[bytes], bool]) -> None:
        """Forget changes of a prepared transaction, whose rows are replaced."""
        transaction = self.prepared[ttid]
        self._writes.leave(transaction, list(filter(gone, transaction.changes)))
        self._execute()

    def unlink(self, revisions: Collection[tuple[bytes, bytes]]) -> None:
        """Note that undos of prepared transactions lost their data with these revisions (tid, oid)."""
        for transaction in self.prepared.values():
            for oid, (serial, stored) in list(transaction.changes.items()):
                if stored is not None and (stored.value_serial, oid) in revisions:
                    transaction.changes[oid] = Change(serial, stored._replace(data_id=None))

    def blind(self, concerned: Callable[[bytes], bool]) -> set[bytes]:
        """Return the prepared transactions that undo changes of concerned objects, where the revision to
        go back to is not here."""
        return {ttid for ttid, t in self.prepared.items() if t.undoes(concerned, blindly=True)}

    def refuse_overdue(
        self, limit: float, why: Callable[[Transaction, bytes], HeldByPrepared]
    ) -> float | None:
        """Refuse requests that have waited ``limit`` seconds for an object that a prepared transaction
        holds; ``why(holder, oid)`` is the refusal. Return the seconds after which to call again, None if
        nothing is prepared or delayed."""
        now, oldest = self._clock(), None
        if not self.prepared:
            return None
        for oid, queue in list(self._writes.queue.items()):
            holders = self._writes.holders.get(oid, ())
            holder = next((h for h in holders if h.ttid in self.prepared), None)
            for request in [request for request in queue if not request.keeps_place]:
                if holder is not None and now - request.since >= limit:
                    self._writes.refuse(request, why(holder, oid))
                else:
                    oldest = request.since if oldest is None else min(oldest, request.since)
        self._attempt_votes()
        # A request that has waited longer may get a prepared holder at any time.
        return None if oldest is None else max(oldest + limit - now, AGAIN_SECONDS)

    # -- ends without a commit --------------------------------------------------------------------

    def abort(self, ttid: bytes, by: Client | None) -> bool:
        """Handle AbortTransaction from the client, or from the master (``by`` is None).

        Ignore unknown and locked transactions, transactions of other clients, and a client's abort of a
        prepared transaction (specification 24.6). Return True if the transaction had voted: the backend
        has rows. Answer delayed requests as lockless; the client ignores these answers.
        """
        if by is not None:
            self._aborted.pop(ttid, None)
        transaction = self._transactions.get(ttid)
        if transaction is not None and transaction.tid is not None:
            return False
        if by is None:
            self._aborted[ttid] = None if transaction is None else transaction.client
            if len(self._aborted) > ABORTED_MAX:
                del self._aborted[next(iter(self._aborted))]
        if transaction is None:
            return False
        if by is not None and (by.nid != transaction.client.nid or transaction.xid is not None):
            return False
        self._drop(transaction)
        self._attempt_votes()
        return transaction.voted

    def may_begin_again(self, ttid: bytes) -> None:
        """Forget a transaction that the master aborted before anything of it came: its tid was imposed,
        and may be again (NotifyPresetEnded, specification 7.71)."""
        if self._aborted.get(ttid, self) is None:
            del self._aborted[ttid]

    def forget_aborted(self) -> None:
        """Forget all transactions that the master aborted before anything of them arrived, because the
        ttids of some may begin again, and this master does not tell of which (AskRecovery, specification
        7.6)."""
        self._forget_aborted(lambda owner: owner is None)

    def connection_lost(self, client: Client) -> None:
        """Drop the transactions of a connection that ended and have not voted."""
        self._forget_aborted(lambda owner: owner == client)
        for transaction in list(self._transactions.values()):
            if transaction.client == client and not transaction.voted:
                self._drop(transaction)
        self._attempt_votes()

    def client_down(self, nid: int) -> list[bytes]:
        """Drop the transactions of a client that the master lost, except locked and prepared ones. Return
        the dropped transactions that had voted."""
        self._forget_aborted(lambda owner: owner is not None and owner.nid == nid)
        voted = []
        for transaction in list(self._transactions.values()):
            if transaction.client.nid != nid or transaction.xid is not None:
                continue
            if transaction.tid is None:
                self._drop(transaction)
                if transaction.voted:
                    voted.append(transaction.ttid)
        self._attempt_votes()
        return voted

    def clear(self) -> None:
        """Forget everything and answer nothing: the operation stops.

        Discard what has not voted. What has voted is in the backend, for verification.
        """
        for transaction in self._transactions.values():
            if not transaction.voted:
                self._writes.discard_all(transaction)
        self._writes.clear()
        self._start()

    # -- reads ------------------------------------------------------------------------------------

    def when_readable(self, oid: bytes, read: Callable[[], None]) -> None:
        """Call ``read`` now, or when the locked transaction that stored this object is unlocked."""
        if self.read_locked(oid):
            self._readers.wait(oid, read)
        else:
            read()

    def when_unlocked(self, read: Callable[[], object], last: bytes = MAX_TID) -> None:
        """Call ``read`` now, or when all transactions up to ``last`` that are locked now are unlocked."""
        if not self._readers.scan(read, last):
            read()

    # -- waits ------------------------------------------------------------------------------------

    def counts(self) -> LockCounts:
        """Return how many transactions, locks and waits there are now."""
        delayed = [r.since for queue in self._writes.queue.values() for r in queue if not r.keeps_place]
        longest = self._clock() - min(delayed) if delayed else 0.0
        waiting = len(delayed) + self._readers.count()
        return LockCounts(len(self._transactions), len(self._writes.holders), waiting, longest)

    def delaying(self, oid: bytes) -> list[Transaction]:
        """Return the locked transactions for which a read of this object waits, or, with INVALID_OID,
        reads that may concern any object."""
        if oid == INVALID_OID:
            return self._readers.scanned()
        return [t for t in self._writes.holders.get(oid, ()) if t.delays_reads(oid)]

    def blocked(self, ttid: bytes, oid: bytes) -> Blocked | None:
        """Return what a store, check or rebase of this transaction waits for; None if none is delayed."""
        transaction = self._transactions.get(ttid)
        if transaction is None:
            return None
        if not any(r.oid == oid and not r.keeps_place for r in transaction.delayed):
            return None
        waited = self._clock() - transaction.delayed_since
        return Blocked(
            waited, [t for t in self._writes.holders.get(oid, ()) if t is not transaction]
        )

    def phase(self, ttid: bytes) -> str | None:
        """Return the phase of a transaction; None if it is unknown here."""
        transaction = self._transactions.get(ttid)
        return None if transaction is None else transaction.phase

    def age(self, transaction: Transaction) -> float:
        """Return the seconds since a transaction began on this node."""
        return self._clock() - transaction.since

    def waiting(self) -> list[Blocking]:
        """Return all transactions in progress, each with the transactions that wait for its locks."""
        now = self._clock()
        found = {
            transaction: Blocking(transaction, {}) for transaction in self._transactions.values()
        }
        for oid, queue in self._writes.queue.items():
            for holder in self._writes.holders.get(oid, ()):
                for request in queue:
                    waiter = request.transaction
                    if waiter is not holder:
                        found[holder].waiters[waiter.ttid] = now - waiter.delayed_since
        return list(found.values())

    # -- changes of the partition table -----------------------------------------------------------

    def replicated(self, complete: Callable[[bytes], bool]) -> None:
        """Hold the lockless stores of cells that became complete; several transactions share objects.

        ``complete(oid)``: whether an object is in these cells, whose mode is NORMAL already.
        """
        for transaction in self._transactions.values():
            for oid in [oid for oid in transaction.lockless if complete(oid)]:
                transaction.lockless.remove(oid)
                if not transaction.rebasing:  # else when it is rebased
                    self._writes.share(oid, transaction)

    def undoing(self, concerned: Callable[[bytes], bool], blindly: bool = False) -> bool:
        """Return whether a transaction that is not prepared, or is locked, undoes changes of concerned
        objects; ``blindly``: only where the revision to go back to is not here. A prepared one may stay
        for days: a pack leaves it the data, and replication fetches it again (:meth:`unlink`,
        :meth:`blind`)."""
        if not blindly and any(any(map(concerned, oids)) for oids, _ in self._received.values()):
            return True
        return any(
            t.undoes(concerned, blindly)
            for t in self._transactions.values()
            if t.ttid not in self.prepared
        )

    def undone(self, concerned: Callable[[bytes], bool]) -> bool:
        """Return whether a locked transaction undoes changes of concerned objects."""
        return any(t.undoes(concerned, False) for t in self._readers.locked) or any(
            locked and any(map(concerned, oids)) for oids, locked in self._received.values()
        )

    def received(self, ttid: bytes, undone: Collection[bytes], locked: bool) -> None:
        """Note the objects that a transaction of the upstream cluster undoes. It takes no locks here, but
        requests that wait for undos wait for it, too. Call with no objects when the transaction has ended
        or is prepared."""
        if undone:
            self._received[ttid] = frozenset(undone), locked
        else:
            self._received.pop(ttid, None)

    def __len__(self) -> int:
        """Return the number of transactions in progress, without prepared ones."""
        return len(self._transactions) - len(self._writes.prepared)

    def shared(self) -> frozenset[bytes]:
        """Return the objects with several holders; a complete cell with some is not yet readable."""
        return frozenset(self._writes.shared)

    def lose(self, gone: Callable[[bytes], bool]) -> None:
        """Forget the objects for which ``gone`` is true: their partitions were taken from this node. The
        remaining cells may have accepted the stores lockless, and rely on this node to detect conflicts.
        So a transaction with such objects that were not checked yet must not commit.
        """
        for transaction in self._transactions.values():
            if transaction.xid is not None and transaction.tid is None:
                self._writes.leave(transaction, list(filter(gone, transaction.changes)))
            elif not transaction.voted:
                unknown = transaction.to_rebase()
                if transaction.rebasing:  # the client may vote before it learns of the deadlock
                    unknown += [request.oid for request in transaction.delayed]
                transaction.unknown.update(filter(gone, unknown))
                for oid in [oid for oid in transaction.changes if gone(oid)]:
                    self._writes.forget(transaction, oid)
        self._writes.freed.update(oid for oid in self._writes.queue if gone(oid))
        self._execute()

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken. Tests call it after each step."""
        transactions = self._transactions.values()
        self._writes.validate(transactions)
        self._readers.validate(self.read_locked)
        for transaction in transactions:
            assert not transaction.held & transaction.lockless
            assert transaction.lockless <= transaction.changes.keys()
            if transaction.vote is not None:
                assert transaction.delayed and not (transaction.rebasing or transaction.voted)
            if transaction.rebasing:
                assert not transaction.held and not transaction.voted
            if transaction.voted:
                assert not transaction.delayed and not transaction.to_rebase()
            else:
                assert transaction.tid is None and transaction.xid is None
        assert self.prepared == {
            t.ttid: t for t in transactions if t.xid is not None and t.tid is None
        }

    # -- internals --------------------------------------------------------------------------------

    def _number(self) -> int:
        self._requests += 1
        return self._requests

    def _begin(self, ttid: bytes, client: Client) -> Transaction:
        """Return the transaction, which must be in its first phase; create it if it is unknown."""
        transaction = self._transactions.get(ttid)
        if transaction is None:
            transaction = self._transactions[ttid] = Transaction(ttid, client, ttid, self._clock())
        elif transaction.client != client:
            raise TransactionRefused(
                f"transaction {ttid.hex()} belongs to another connection: start it again"
            )
        elif transaction.voted:
            raise TransactionRefused(f"transaction {ttid.hex()} has already voted")
        if transaction.vote is not None:
            self._refuse_vote(transaction)
        return transaction

    @property
    def any_locked(self) -> bool:
        """Return whether reads of any object may have to wait."""
        return bool(self._readers.locked)

    def read_locked(self, oid: bytes) -> bool:
        """Whether a read of this object must wait for a locked transaction that stored it."""
        for holder in self._writes.holders.get(oid, ()):
            if holder.delays_reads(oid):
                return True
        return False

    def _forget_aborted(self, gone: Callable[[Client | None], bool]) -> None:
        """Forget aborted transactions of connections that can send no late store."""
        for ttid in [ttid for ttid, owner in self._aborted.items() if gone(owner)]:
            del self._aborted[ttid]

    def _drop(self, transaction: Transaction) -> None:
        del self._transactions[transaction.ttid]
        self.prepared.pop(transaction.ttid, None)
        self._writes.give_up(transaction)
        if not transaction.voted:  # else the backend has its changes
            self._writes.discard_all(transaction)
