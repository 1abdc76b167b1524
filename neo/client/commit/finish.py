"""The end of a voted transaction: the master is asked to finish it (specification 7.33).

If the connection to the master is lost meanwhile, the nodes are asked what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from neo.client.commit.outcome import final_tid
from neo.client.connect.connections import Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    TransactionLostError,
    refusal,
)
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas
from neo.net.channel import Channel, Ticket
from neo.net.fault_sites import FaultSite
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AnswerTransactionFinished, AskFinishTransaction, Message


class Voted(NamedTuple):
    """A transaction that all of its storage nodes have voted. ``partitions``: how many there were then.
    ``stored``: oid → data for the cache, or None."""

    master: Channel
    ttid: bytes
    partitions: int
    stored: dict[bytes, bytes | None]
    request: AskFinishTransaction


class Finish:
    """Call either :meth:`commit`, or :meth:`ask` and later :meth:`wait`, on the thread that commits."""

    def __init__(
        self,
        connections: Connections,
        primary: MasterConnection,
        replicas: Replicas,
        invalidations: Invalidations,
    ) -> None:
        self._connections = connections
        self._primary = primary
        self._replicas = replicas
        self._invalidations = invalidations
        #: If it was sent, or if the master was lost before that, the transaction may be committed.
        self.ticket: Ticket[AnswerTransactionFinished] = Ticket(
            exclusive=True, orphan=self._finished_alone
        )
        self.lost = False
        #: Whether :meth:`ask` was called.
        self.early = False
        self._voted: Voted | None = None

    def commit(self, voted: Voted, callback: Callable[[bytes], object]) -> bytes:
        """Commit. Return the tid; ``callback`` is called with it before a newer transaction is applied.
        Raise TransactionLostError if it is not committed, OutcomeUnknownError."""
        self._voted = voted
        master, ticket = voted.master, self.ticket
        try:
            with master.presence(ticket):
                master.ask(voted.request, ticket)
                if self._connections.host.fault(FaultSite.MASTER_LOST_IN_FINISH):
                    master.close("disconnected on purpose")
                return master.hold(ticket, partial(self._finished, voted, callback))
        except ErrorAnswer as e:
            raise refusal("tpc_finish", e) from None
        except ConnectionLost:
            self.lost = True
            return self._recover(voted, callback)
        except BaseException:
            master.forget(ticket)
            raise

    def ask(self, voted: Voted) -> None:
        """Ask the master, without waiting. The thread that reads the answer applies the transaction as
        one of another client."""
        self._voted, self.early = voted, True
        self.ticket = Ticket(effect=self._finished_alone)
        try:
            voted.master.ask(voted.request, self.ticket)
            if self._connections.host.fault(FaultSite.MASTER_LOST_IN_FINISH):
                voted.master.close("disconnected on purpose")
        except ConnectionLost:
            self.lost = True

    def wait(self, callback: Callable[[bytes], object]) -> bytes:
        """Wait for what :meth:`ask` has asked. Return the tid; ``callback`` is called with it. Raise the
        errors of :meth:`commit`."""
        voted = self._voted
        assert voted is not None
        try:
            if self.lost:
                raise ConnectionLost("the master was lost before it could be asked")
            tid = voted.master.wait(self.ticket).tid
        except ErrorAnswer as e:
            raise refusal("tpc_finish", e) from None
        except ConnectionLost:
            return self._recover(voted, callback)
        callback(tid)
        return tid

    def _finished(
        self, voted: Voted, callback: Callable[[bytes], object], answer: AnswerTransactionFinished
    ) -> bytes:
        self._invalidations.committed(answer.tid, voted.stored, callback, voted.master)
        return answer.tid

    def _finished_alone(self, answer: Message) -> None:
        """Apply the transaction as one of another client, because no thread waits for the answer.

        Called by the leading thread, maybe twice, or after _finished().
        """
        voted = self._voted
        if isinstance(answer, AnswerTransactionFinished) and voted is not None:
            self._invalidations.invalidate(answer.tid, list(voted.stored), voted.master)

    def _recover(self, voted: Voted, callback: Callable[[bytes], object]) -> bytes:
        """Find out whether the transaction was committed, after the master was lost in tpc_finish.

        Return its tid. Raise TransactionLostError if it was not committed, OutcomeUnknownError.
        """
        # The master may have been slow for long: the time counts from its last sign of life.
        backoff = self._connections.backoff(voted.master.heard)
        try:
            tid = self.final_tid(voted.ttid, voted.partitions, backoff)
        except (ErrorAnswer, NEOStorageError) as e:
            raise OutcomeUnknownError(
                "the master was lost in tpc_finish, and no node could tell whether transaction "
                f"{voted.ttid.hex()} is committed; look at the data before you repeat it: {e}"
            ) from e
        if tid is None:
            raise TransactionLostError(
                f"the master was lost, and the transaction was not committed: {voted.master.lost}"
            )
        self._invalidations.committed(tid, dict.fromkeys(voted.stored), callback)
        return tid

    def final_tid(self, ttid: bytes, partitions: int, backoff: Backoff) -> bytes | None:
        """Return the tid; None if it was not committed. Raise ErrorAnswer, NEOStorageError."""
        return final_tid(self._primary, self._replicas, ttid, partitions, backoff)
