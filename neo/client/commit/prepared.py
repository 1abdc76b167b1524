"""Prepared transactions (specification 24): voted, and kept until a coordinator decides by xid.

Theory of operation
-------------------
From AskPrepareTransaction on, a transaction belongs to its xid, no longer to this client's connections.
So a lost connection to the master is no reason to give up: the decision is repeated on the next one, and
has the same answer (rule 24.10). A decision that could not be delivered in ``wait-timeout`` leaves the
transaction to whoever decides later.

The client that prepared a transaction gets no InvalidateObjects for its commit if it asks itself (rule
24.11). So :class:`PreparedTransaction` applies the commit here like that of any own transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ZODB.POSException import POSError, StorageTransactionError

from neo.client.commit.transaction import ClientTransaction
from neo.client.connect.connections import Connections
from neo.client.connect.master import MasterConnection
from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    RefusedError,
    TransactionLostError,
    refusal,
    refused,
)
from neo.client.read.invalidations import Invalidations
from neo.net.channel import Channel, Ticket
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import XID_MAX, format_xid
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AnswerFinishPrepared,
    AskFinishPrepared,
    AskPrepared,
    ForgetPrepared,
    Message,
    PreparedRow,
    Request,
)

logger = logging.getLogger("neo.client")

#: States in answers to AskPrepared.
PREPARED, COMMITTING, ROLLING_BACK = "prepared", "committing", "rolling back"
COMMITTED, ROLLED_BACK = "committed", "rolled back"


class Prepared(NamedTuple):
    """A transaction without an outcome. ``since``: seconds since 1970, by the master's
    clock. ``text``: its user and description, and what coordinations note."""

    xid: bytes
    ttid: bytes
    since: float
    text: str


class Outcome(NamedTuple):
    """The state of an xid: prepared, committing, rolling back, committed or rolled back. ``since``: the
    time of this state. ``tid``: the tid if the transaction is committed."""

    xid: bytes
    state: str
    tid: bytes | None
    since: float


def _outcome(row: PreparedRow) -> Outcome:
    xid, _, tid, since, _, _, state = row
    return Outcome(xid, state, tid, since)


class PreparedTransactions:
    """The prepared transactions of a cluster, by xid. Any client may ask about them, and decide.

    All methods can be repeated. They raise UnavailableError, and RefusedError, also if the master does
    not know prepared transactions.
    """

    def __init__(self, master: MasterConnection) -> None:
        self._master = master

    def check_known(self) -> None:
        """Raise RefusedError if the master does not know prepared transactions."""
        joined = self._master.joined()
        if FEATURE_OURS not in joined.handler.features:
            raise RefusedError(
                f"master {joined.channel.name} does not know prepared transactions: update the nodes of"
                " the cluster"
            )

    def _ask(self, what: str, message: Request[A]) -> A:
        self.check_known()
        try:
            return self._master.ask(message)
        except ErrorAnswer as e:
            raise refused(what, e) from None

    def recover(self) -> list[Prepared]:
        """Return the transactions that have no outcome yet: they wait for their coordinator's decision,
        or are being committed or rolled back."""
        return [
            Prepared(xid, ttid, since, text.decode("utf-8", "replace"))
            for xid, ttid, _, since, _, text, state in self._rows(0)
            if state not in (COMMITTED, ROLLED_BACK)
        ]

    def _rows(self, length: int) -> list[PreparedRow]:
        return self._ask("list of prepared transactions", AskPrepared(length, None)).row_list

    def outcomes(self, length: int) -> list[Outcome]:
        """Return all transactions that have no outcome yet, then ``length`` outcomes, newest first."""
        return [_outcome(row) for row in self._rows(length)]

    def outcome(self, xid: bytes) -> Outcome | None:
        """Return the state of an xid; None if it is unknown, or forgotten."""
        what = f"outcome of transaction {format_xid(xid)}"
        rows = self._ask(what, AskPrepared(0, xid)).row_list
        return _outcome(rows[0]) if rows else None

    def commit(self, xid: bytes) -> bytes:
        """Commit a prepared transaction. Return its tid. Its changes are visible in this process
        afterwards."""
        what = f"commit of prepared transaction {format_xid(xid)}"
        tid = self._ask(what, AskFinishPrepared(xid, True)).tid
        assert tid is not None
        self._master.barrier()
        return tid

    def rollback(self, xid: bytes) -> None:
        """Roll back a prepared transaction. An unknown xid cannot be prepared any more."""
        what = f"rollback of prepared transaction {format_xid(xid)}"
        self._ask(what, AskFinishPrepared(xid, False))

    def forget(self, xid: bytes) -> None:
        """Forget the outcome of a transaction about which no coordinator will ask again."""
        self._ask(f"outcome of transaction {format_xid(xid)}", ForgetPrepared(xid))

    def forget_soon(self, xid: bytes) -> None:
        """Order to forget the outcome, without waiting for an answer. If no master is connected now, the
        outcome is forgotten when it is old."""
        joined = self._master.current
        if joined is not None and joined.channel.lost is None:
            try:
                joined.channel.forget(joined.channel.ask(ForgetPrepared(xid)))
            except ConnectionLost as e:
                logger.info("the outcome of %s is remembered: %s", format_xid(xid), e)


class PreparedTransaction:
    """A transaction of this client that is prepared, or may be. ``voted``: the transaction before it was
    prepared.

    Raise NEOStorageError for an xid that is empty or too long.
    """

    def __init__(
        self,
        connections: Connections,
        primary: MasterConnection,
        decisions: PreparedTransactions,
        invalidations: Invalidations,
        voted: ClientTransaction,
        xid: bytes,
    ) -> None:
        if not 1 <= len(xid) <= XID_MAX:
            raise NEOStorageError(f"an xid has 1 to {XID_MAX} bytes, not {len(xid)}")
        self.xid = xid
        #: Whether the transaction is committed or rolled back, or left to whoever decides later.
        self.ended = False
        #: Whether abort() has let it stay prepared.
        self.left = False
        self._connections = connections
        self._primary = primary
        self._decisions = decisions
        self._invalidations = invalidations
        self._voted = voted
        self._prepared = False
        self._kept = False
        # Whether the master may know the xid.
        self._known = True

    def prepare(self, text: bytes) -> None:
        """Ask the master to keep the transaction. ``text``: for people. Raise OutcomeUnknownError if the
        connection is lost; after any other error nothing is prepared, and the caller aborts."""
        try:
            self._voted.prepare(self.xid, text)
        except ConnectionLost as e:
            raise OutcomeUnknownError(
                f"the master was lost in tpc_prepare: transaction {format_xid(self.xid)} may be prepared;"
                f" look with recover(), or abort it: {e}"
            ) from None
        except ErrorAnswer as e:
            self._known = False
            raise refusal(f"tpc_prepare of {format_xid(self.xid)}", e) from None
        except POSError:
            self._known = False
            raise
        self._prepared = True

    @property
    def ttid(self) -> bytes:
        return self._voted.ttid

    @property
    def oids(self) -> list[bytes]:
        """The objects that the transaction changes."""
        return list(self._voted.stored())

    def finish(self, callback: Callable[[bytes], object]) -> bytes:
        """Commit by xid; return the tid. ``callback`` is called with it, as by tpc_finish.

        Raise TransactionLostError if the transaction was rolled back. Raise OutcomeUnknownError if the
        cluster does not answer for ``wait-timeout``, and leave the transaction to a later decision.
        """
        if not self._prepared:
            raise StorageTransactionError(
                f"transaction {format_xid(self.xid)} is not known to be prepared: abort it"
            )
        backoff = self._connections.backoff()
        while True:
            try:
                channel = self._primary.channel(backoff)
                return self._finish_on(channel, callback)
            except ErrorAnswer as e:
                if e.code is not ErrorCode.DENIED:
                    raise refusal(f"commit of {format_xid(self.xid)}", e) from None
                return self._denied(e, callback)
            except ConnectionLost as e:
                reason = f"master: {e}"
            except NEOStorageError as e:
                raise self._unknown(e) from e
            try:
                backoff.wait(reason)
            except NEOStorageError as e:
                raise self._unknown(e) from e

    def _finish_on(self, channel: Channel, callback: Callable[[bytes], object]) -> bytes:
        stored = self._voted.stored()
        orphan = partial(self._finished_alone, channel)
        ticket: Ticket[AnswerFinishPrepared] = Ticket(exclusive=True, orphan=orphan)
        try:
            with channel.presence(ticket):
                channel.ask(AskFinishPrepared(self.xid, True), ticket)
                return channel.hold(ticket, partial(self._finished, channel, stored, callback))
        except (ErrorAnswer, ConnectionLost):
            raise
        except BaseException:
            self.ended = ticket.sent
            channel.forget(ticket)
            raise

    def _finished(
        self,
        channel: Channel,
        stored: dict[bytes, bytes | None],
        callback: Callable[[bytes], object],
        answer: AnswerFinishPrepared,
    ) -> bytes:
        assert answer.tid is not None
        self.ended = True
        self._invalidations.committed(answer.tid, stored, callback, channel)
        return answer.tid

    def _finished_alone(self, channel: Channel, answer: Message) -> None:
        """Apply the transaction as one of another client, because its thread was interrupted."""
        if isinstance(answer, AnswerFinishPrepared) and answer.tid is not None:
            self._invalidations.invalidate(answer.tid, self.oids, channel)

    def _denied(self, error: ErrorAnswer, callback: Callable[[bytes], object]) -> bytes:
        """Return the tid if the transaction is committed nevertheless: an earlier answer was lost, and
        the outcome was forgotten since. Raise TransactionLostError if it was rolled back."""
        try:
            outcome = self._decisions.outcome(self.xid)
            backoff = self._connections.backoff()
            tid = self._voted.final_tid(backoff) if outcome is None else outcome.tid
        except (ErrorAnswer, NEOStorageError) as e:
            raise self._unknown(e) from e
        if outcome is not None and outcome.state in (PREPARED, COMMITTING):
            raise self._unknown(error)
        self.ended = True
        if tid is None:
            raise TransactionLostError(
                f"transaction {format_xid(self.xid)} was rolled back before this commit: {error}"
            )
        self._invalidations.committed(tid, dict.fromkeys(self.oids), callback)
        return tid

    def _unknown(self, error: Exception) -> OutcomeUnknownError:
        self.ended = True
        return OutcomeUnknownError(
            f"the cluster did not answer the commit of prepared transaction {format_xid(self.xid)}:"
            f" it is committed, or still waits for a decision; look with recover(): {error}"
        )

    def distribute(self, tid: bytes) -> None:
        """Make the connections of ZODB in this process read again what the transaction changed."""
        self._invalidations.distribute(tid, self.oids)

    def hide(self) -> None:
        """Make the connections of ZODB in this process read these objects again, although the changes
        cannot be read yet."""
        self.distribute(self._invalidations.last_transaction())

    def keep(self) -> None:
        """Let abort() end the transaction here, and roll back nothing. Idempotent."""
        self._kept = True

    def abort(self) -> None:
        """Roll back by xid. Log a warning if the cluster does not answer: a resolver must roll it back
        later. Idempotent. Do nothing after a commit, or if its outcome is unknown."""
        if self.ended:
            return
        self._voted.abort()
        self.left = self._kept
        if self._known and not self._kept:
            try:
                self._primary.ask(AskFinishPrepared(self.xid, False))
            except (ErrorAnswer, NEOStorageError) as e:
                logger.warning(
                    "transaction %s may still be prepared, since it was not rolled back: %s",
                    format_xid(self.xid),
                    e,
                )
        self.ended = True
