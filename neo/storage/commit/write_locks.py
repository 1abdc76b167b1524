"""The table of write locks, and the requests that wait for them.

PURE. :mod:`neo.storage.commit.locks` has the rules and the phases of transactions; this module has the
attempts to lock an object. A method may leave objects in :attr:`WriteLocks.freed`: the caller must call
:meth:`WriteLocks.execute` in the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.storage.commit.transactions import (
    CellMode,
    Change,
    Hopeless,
    LockKeeper,
    RebaseConflict,
    Request,
    Transaction,
)

_Holders = tuple[Transaction, ...]


def may_deadlock(transaction: Transaction, holders: _Holders) -> bool:
    """Return whether waiting for these holders may close a circle (:mod:`neo.storage.commit.locks`)."""
    return any(h.locking_tid > transaction.locking_tid and not h.voted for h in holders)


class WriteLocks:
    """The lock table of a storage node."""

    def __init__(self, keeper: LockKeeper) -> None:
        self._cell_mode = keeper.cell_mode
        self._clock = keeper.clock
        self._last_serial = keeper.last_serial
        self._deadlock = keeper.deadlock
        self._discard = keeper.discard
        self._watch = keeper.watch
        self.clear()

    def clear(self) -> None:
        self.holders: dict[bytes, _Holders] = {}
        self.shared: set[bytes] = set()  # objects with several holders
        self.queue: dict[bytes, list[Request]] = {}
        #: The transactions that are prepared and not locked.
        self.prepared: dict[bytes, Transaction] = {}
        self.freed: set[bytes] = set()  # objects whose requests may have to be executed
        #: Transactions whose waiting vote can be attempted: nothing is delayed, or one conflicts.
        self.settled: dict[Transaction, None] = {}

    # -- attempts ---------------------------------------------------------------------------------

    def attempt(self, request: Request) -> None:
        """Answer the request, or delay it."""
        transaction, oid = request.transaction, request.oid
        mode = self._cell_mode(oid)
        holders = self.holders.get(oid, ())
        if mode is not CellMode.NORMAL or (len(holders) > 1 and transaction in holders):
            self._accept_blindly(request, mode)
        elif transaction.rebasing:
            self._delay(request)
        elif holders and transaction not in holders:
            if may_deadlock(transaction, holders):
                transaction.rebasing = True
                self._settle(transaction)
                self.release(transaction)
                self._deadlock(transaction.ttid, transaction.locking_tid)
            self._delay(request)
        else:
            self._check_and_hold(request)

    def execute(self, limit: bytes | None = None) -> None:
        """Attempt the requests for freed objects again, in the order of their locking tids. Leave
        requests above ``limit`` for later."""
        later: set[bytes] = set()
        while self.freed:
            freed, self.freed = self.freed, set()
            requests = [request for oid in freed for request in self.queue.get(oid, ())]
            for request in sorted(requests, key=Request.order):
                if limit is not None and request.transaction.locking_tid > limit:
                    later.add(request.oid)
                else:
                    self.attempt(request)
        self.freed = later

    def take_again(self, transaction: Transaction) -> None:
        """Lock again, for a rebased transaction, its objects that are free and have no conflict."""
        for oid, change in transaction.changes.items():
            if oid not in self.holders and self._cell_mode(oid) is CellMode.NORMAL:
                if self._conflict(oid, change) is None:
                    self._hold(oid, transaction)

    def keep_places(self, transaction: Transaction, number: Callable[[], int]) -> None:
        """Queue a rebased transaction for its objects that other transactions hold."""
        for oid in transaction.to_rebase():
            if oid in self.holders and not transaction.rebasing:
                self.attempt(Request(transaction, oid, number(), None))

    def leave_places(self, transaction: Transaction) -> None:
        """Remove the transaction's places: it is in deadlock, is rebased, has everything, or ends."""
        for request in [request for request in transaction.delayed if request.keeps_place]:
            self.undelay(request)

    def _accept_blindly(self, request: Request, mode: CellMode) -> None:
        transaction, oid = request.transaction, request.oid
        self.undelay(request)
        if request.answer_rebase is not None and self._is_unknown(transaction, oid):
            request.answer_rebase(transaction.unverifiable())
            return
        if request.change is not None:
            if mode is CellMode.ABSENT:
                self.discard(request.change)
            else:
                self._keep(transaction, oid, request.change)
                if oid not in transaction.held:
                    transaction.lockless.add(oid)
        request.succeed(ZERO_TID)

    @staticmethod
    def _is_unknown(transaction: Transaction, oid: bytes) -> bool:
        """Return whether the object is still to be checked, in a cell that cannot detect conflicts."""
        return oid in transaction.unknown or oid in transaction.to_rebase()

    def _check_and_hold(self, request: Request) -> None:
        """Check for a conflict; the object is free, or held by this transaction alone."""
        transaction, oid = request.transaction, request.oid
        self.undelay(request)
        change = request.change or transaction.changes.get(oid)
        if request.told:
            self.forget(transaction, oid)
            self._hold(oid, transaction)
        elif change is None:
            request.succeed(None)
        elif (conflict_serial := self._conflict(oid, change)) is None:
            self._keep(transaction, oid, change)
            self._hold(oid, transaction)
            request.succeed(None)
        elif not request.keeps_place:  # else the client gets the conflict when it asks
            if request.answer_rebase is not None:
                request.answer_rebase(RebaseConflict(change.serial, conflict_serial, change.stored))
            if request.answer_store is not None:
                request.answer_store(conflict_serial)
                self.discard(change)
            self.forget(transaction, oid)
            self._settle(transaction)
            if change.stored is not None:
                # The client stores again with the conflict resolved: no other may be faster.
                self._hold(oid, transaction)

    def tell_next(self, holder: Transaction, serial: bytes) -> None:
        """Answer the next store of each object that ``holder`` stored with its conflict, because the
        holder is committed as ``serial`` before the object is free. The request stays in the queue."""
        for oid in [oid for oid in self.queue if oid in holder.changes]:
            if holder.changes[oid].stored is None or self.holders.get(oid) != holder.alone:
                continue
            waiting = sorted((r for r in self.queue[oid] if not r.told), key=Request.order)
            request = waiting[0] if waiting else None
            if request is None or not request.tell or request.transaction.rebasing:
                continue
            answer, change = request.answer_store, request.change
            if answer and change and change.stored and change.serial != serial:
                request.answer_store = None
                request.told, request.change = True, None
                answer(serial)
                self.discard(change)
                self._settle(request.transaction)

    def _settle(self, transaction: Transaction) -> None:
        if transaction.vote is not None:
            self.settled[transaction] = None

    def _conflict(self, oid: bytes, change: Change) -> bytes | None:
        """Return the last serial if the change is based on another one, else None.

        Return MAX_TID if the object is gone: deleted and packed away, or its creation truncated.
        """
        last = self._last_serial(oid)
        if last is None and change.serial != ZERO_TID:
            return MAX_TID
        return None if last == change.serial else last

    # -- changes of a transaction -----------------------------------------------------------------

    def _keep(self, transaction: Transaction, oid: bytes, change: Change) -> None:
        """Keep a store or check; a check never replaces a store of the same transaction."""
        known = transaction.changes.get(oid)
        if known is not None and known is not change and known.stored is not None:
            if change.stored is None:
                change = Change(change.serial, known.stored)
            else:
                self.discard(known)
        transaction.changes[oid] = change

    def forget(self, transaction: Transaction, oid: bytes) -> None:
        """Remove the object from the transaction."""
        change = transaction.changes.pop(oid, None)
        if oid in transaction.held:
            self._release(transaction, oid)
        transaction.lockless.discard(oid)
        if change is not None:
            self.discard(change)

    def discard(self, change: Change) -> None:
        if change.stored is not None:
            self._discard(change.stored)

    def discard_all(self, transaction: Transaction) -> None:
        """Discard all data of a transaction that ends without a vote."""
        for change in transaction.changes.values():
            self.discard(change)
        for request in transaction.delayed:
            if request.change is not None:
                self.discard(request.change)

    def give_up(self, transaction: Transaction) -> None:
        """Release the locks and requests of a transaction that ends, or cannot commit any more."""
        for request in list(transaction.delayed):
            self.undelay(request)
            if request.change is not None:
                self.discard(request.change)
            request.succeed(ZERO_TID)
        self.release(transaction)
        self.execute()

    # -- the table --------------------------------------------------------------------------------

    def _hold(self, oid: bytes, transaction: Transaction) -> None:
        transaction.held.add(oid)
        self.holders[oid] = transaction.alone

    def share(self, oid: bytes, transaction: Transaction) -> None:
        """Lock an object together with its present holders."""
        transaction.held.add(oid)
        others = self.holders.get(oid)
        if others is None:
            self.holders[oid] = transaction.alone
        else:
            self.holders[oid] = (*others, transaction)
            self.shared.add(oid)

    def release(self, transaction: Transaction) -> None:
        """Release all locks and places of a transaction."""
        self.leave_places(transaction)
        for oid in list(transaction.held):
            self._release(transaction, oid)

    def _release(self, transaction: Transaction, oid: bytes) -> None:
        transaction.held.remove(oid)
        others = tuple([other for other in self.holders[oid] if other is not transaction])
        if not others:
            del self.holders[oid]
            self.freed.add(oid)
        elif len(others) == 1:
            self.holders[oid] = others[0].alone
            self.shared.remove(oid)
        else:
            self.holders[oid] = others

    def _delay(self, request: Request) -> None:
        delayed = request.transaction.delayed
        if request not in delayed:
            request.since = self._clock()
            if not delayed:
                request.transaction.delayed_since = request.since
            delayed[request] = None
            self.queue.setdefault(request.oid, []).append(request)
            if self.prepared:
                self._watch()

    def refuse(self, request: Request, why: Hopeless) -> None:
        """Refuse a delayed request, and drop its data."""
        self.undelay(request)
        if request.change is not None:
            self.discard(request.change)
        request.refuse(why)

    def undelay(self, request: Request) -> None:
        """Remove a request from the queue, if it is there: it is about to be answered."""
        if request in request.transaction.delayed:
            del request.transaction.delayed[request]
            if not request.transaction.delayed:
                self._settle(request.transaction)
            queue = self.queue[request.oid]
            queue.remove(request)
            if not queue:
                del self.queue[request.oid]

    def leave(self, transaction: Transaction, oids: Iterable[bytes]) -> None:
        """Release objects of a prepared transaction, whose changes the backend keeps."""
        for oid in oids:
            transaction.changes.pop(oid, None)
            transaction.lockless.discard(oid)
            if oid in transaction.held:
                self._release(transaction, oid)

    def hold_prepared(self, transaction: Transaction, oid: bytes, change: Change) -> None:
        """Add a change of a prepared transaction, with the lock that the state of the cell demands."""
        mode = self._cell_mode(oid)
        if mode is CellMode.ABSENT:
            return
        transaction.changes[oid] = change
        if mode is CellMode.NORMAL:
            self.share(oid, transaction)
        else:
            transaction.lockless.add(oid)

    def validate(self, transactions: Iterable[Transaction]) -> None:
        """Raise AssertionError unless the table and the transactions agree."""
        held: dict[bytes, set[Transaction]] = {}
        delayed: set[Request] = set()
        for transaction in transactions:
            for oid in transaction.held:
                held.setdefault(oid, set()).add(transaction)
            delayed.update(transaction.delayed)
        assert held == {oid: set(holders) for oid, holders in self.holders.items()}
        assert self.shared == {oid for oid, holders in self.holders.items() if len(holders) > 1}
        assert delayed == {request for queue in self.queue.values() for request in queue}
        assert all(r.oid == oid for oid, queue in self.queue.items() for r in queue)
        assert not self.freed, self.freed
        for request in delayed:
            if not request.transaction.rebasing:
                holders = self.holders[request.oid]
                assert not may_deadlock(request.transaction, holders)
