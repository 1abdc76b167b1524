"""Second phase of a transaction: vote, finish, abort (specification, *Commit*, *Abort*)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ZODB.POSException import POSError

from neo.client.change import Asked, Kind, Options
from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    TransactionLostError,
    refusal,
)
from neo.client.session import Session
from neo.client.transaction import Changes, Resolve
from neo.net.channel import Ticket
from neo.net.fault_sites import FaultSite
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import MAX_TID, format_nids
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerTransactionFinished,
    AskFinalTID,
    AskFinishTransaction,
    AskStoreTransaction,
    AskVoteTransaction,
    Error,
    FailedVote,
    Request,
)


class Commit(Changes):
    """A transaction of this client. All methods are called by the committing thread."""

    def __init__(
        self,
        session: Session,
        transaction: Any,
        tid: bytes | None,
        options: Options,
        resolve: Resolve,
    ) -> None:
        super().__init__(session, transaction, tid, options, resolve)
        self._finish: Ticket[AnswerTransactionFinished] = Ticket(
            exclusive=True, orphan=self._finished_alone
        )
        self._aborted = False

    # -- vote ------------------------------------------------------------------------------------

    def vote(self) -> None:
        """Vote. Raise the errors of settle(), and TransactionLostError."""
        self._check_whole()
        self._check_ended()
        self._whole = False
        try:
            self._vote()
        except POSError:
            self._whole = True  # raised by this code, in a consistent state
            raise
        self._whole = True

    def _vote(self) -> None:
        self._settle(0)
        self._lose_storage(FaultSite.STORAGE_LOST_BEFORE_VOTE)
        metadata = self.transaction
        ttid = self.ttid  # first, since it may wait, and the master's answer may follow new tables
        view = self._session.view()
        keepers = view.writable[view.partition(ttid)]
        for nid in keepers:
            self._node(nid)
        with self._lock:
            self._check_master()
            self.voted = True
            nodes = [(nid, channel) for nid, channel in self._nodes.items() if channel is not None]
        for nid, channel in nodes:
            if nid in keepers:
                message: Request[Any] = AskStoreTransaction(
                    self.ttid,
                    metadata.user,
                    metadata.description,
                    metadata.extension_bytes,
                    list(self._oids(stored=True)),
                )
            else:
                message = AskVoteTransaction(self.ttid)
            self._ask(message, Asked(nid, channel))
        self._settle(0)
        self._check_master()
        self._check_nodes(keepers)
        self._lose_storage(FaultSite.STORAGE_LOST_AFTER_VOTE)

    def _lose_storage(self, site: FaultSite) -> None:
        """Close a connection if the fault site fires."""
        channels = [channel for channel in self._nodes.values() if channel is not None]
        if channels and self._session.host.fault(site):
            channels[0].close("disconnected on purpose")

    def _oids(self, stored: bool) -> Iterable[bytes]:
        return (
            oid for oid, change in self.changes.items() if (change.kind is not Kind.CHECK) is stored
        )

    def _check_nodes(self, keepers: Iterable[int]) -> None:
        """Check that the remaining nodes suffice if some were lost, or stored without locks."""
        alive = frozenset(nid for nid, channel in self._nodes.items() if channel is not None)
        if alive.isdisjoint(keepers):
            raise TransactionLostError(
                f"no storage node has the transaction's metadata: {'; '.join(self._reasons())}"
            )
        failed = [nid for nid in self._nodes if nid not in alive]
        if not failed and not self._lockless:
            return
        view = self._session.view()
        complete: dict[int, frozenset[int]] = {}
        for oid, change in self.changes.items():
            partition = view.partition(oid)
            complete[partition] = complete.get(partition, alive) & change.locked
        if not all(complete.values()):
            raise TransactionLostError(
                f"storage nodes {format_nids(failed)} were lost, and no other one "
                f"has locked all objects of a partition: {'; '.join(self._reasons())}"
            )
        running = [nid for nid in failed if nid in view.addresses]
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
        return self._ended or self._finish.sent

    def finish(self, callback: Callable[[bytes], object]) -> bytes:
        """Commit. Return the tid; ``callback`` is called with it before a newer transaction is applied.

        After an exception from outside, :attr:`ended` tells whether the transaction may be committed.
        If it is, it is applied here before any newer transaction.
        """
        self._check_whole()
        stored: dict[bytes, bytes | None] = {
            oid: self._cached.get(oid) for oid in self._oids(stored=True)
        }
        message = AskFinishTransaction(self.ttid, list(stored), list(self._oids(stored=False)))
        master, ticket = self._master, self._finish
        try:
            with master.presence(ticket):
                master.ask(message, ticket)
                if self._session.host.fault(FaultSite.MASTER_LOST_IN_FINISH):
                    master.close("disconnected on purpose")
                return master.hold(ticket, partial(self._finished, stored, callback))
        except ErrorAnswer as e:
            raise refusal("tpc_finish", e) from None
        except ConnectionLost:
            self._ended = True
            return self._recover(stored, callback)
        except BaseException:
            self._whole = False
            master.forget(ticket)
            raise
        finally:
            if self.ended:
                self._session.ended(self.ttid, self)

    def _finished(
        self,
        stored: dict[bytes, bytes | None],
        callback: Callable[[bytes], object],
        answer: AnswerTransactionFinished,
    ) -> bytes:
        self._session.invalidations.committed(answer.tid, stored, callback, self._master)
        return answer.tid

    def _finished_alone(self, answer: AnswerTransactionFinished | Error) -> None:
        """Apply the transaction as one of another client, because its thread was interrupted.

        Called by the leading thread, maybe twice, or after _finished().
        """
        if isinstance(answer, AnswerTransactionFinished):
            self._session.invalidations.invalidate(
                answer.tid, list(self._oids(stored=True)), self._master
            )

    def _recover(
        self, stored: dict[bytes, bytes | None], callback: Callable[[bytes], object]
    ) -> bytes:
        """Find out whether the transaction was committed, after the master was lost in tpc_finish.

        Return its tid. Raise TransactionLostError if it was not committed, OutcomeUnknownError.
        """
        try:
            tid = self._final_tid()
        except (ErrorAnswer, NEOStorageError) as e:
            raise OutcomeUnknownError(
                "the master was lost in tpc_finish, and no node could tell whether transaction "
                f"{self.ttid.hex()} is committed; look at the data before you repeat it: {e}"
            ) from e
        if tid is None:
            raise TransactionLostError(
                f"the master was lost, and the transaction was not committed: {self._master.lost}"
            )
        self._session.invalidations.committed(tid, dict.fromkeys(stored), callback)
        return tid

    def _final_tid(self) -> bytes | None:
        """Return the tid; None if it was not committed. Raise ErrorAnswer, NEOStorageError."""
        question = AskFinalTID(self.ttid)
        answer = self._session.ask_master(question)
        if answer.tid == MAX_TID:
            # Committed before this master was elected or started: ask a storage node.
            answer = self._session.read(self._session.view().partition(self.ttid), question)
        return answer.tid

    def abort(self) -> None:
        """Abort, without waiting. Raise nothing: nodes that cannot be told notice the lost connection.
        Idempotent, so it can be repeated after an exception from outside."""
        if self._finish.sent or (self._ended and not self._aborted):
            return
        with self._lock:
            self._aborted = self._ended = True
        begin, ttid = self._begin, self._ttid
        if begin is not None and ttid is None:
            # _begun_in_vain() handles an answer that comes later.
            self._master.forget(begin)
            if begin.done and isinstance(begin.answer, AnswerBeginTransaction):
                ttid = begin.answer.ttid
        if ttid is not None:
            self._session.ended(ttid, self)
            for channel in self._nodes.values():
                if channel is not None:
                    channel.send(AbortTransaction(ttid, []))
            self._master.send(AbortTransaction(ttid, sorted(self._nodes)), self._farewell)
        for ticket in list(self._asked):
            assert isinstance(ticket.context, Asked)
            ticket.context.channel.forget(ticket)
