"""Bugs of waits for locks, and of the end of a transaction by the operator."""

from __future__ import annotations

from typing import Any

from neo.client.commit.lock_wait import LockWait
from neo.client.commit.participants import Asked
from neo.client.commit.transaction import ClientTransaction
from neo.master.commit.open_transactions import OpenTransactions
from neo.master.commit.transactions import State
from neo.net.channel import Ticket
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AbortTransaction
from tests.simulator.planting import Canary, Patch

STANDING: dict[str, Any] = {
    "workloads": ("bank", "counters"),
    "faults": ("stand-still",),
    "sites": ("none",),
    "disk": "memory",
    "seconds": 20.0,
}


def _lock_waited_for_for_ever() -> list[Patch]:
    def wait(self: LockWait, ticket: Ticket[Any]) -> None:
        assert isinstance(ticket.context, Asked)
        try:
            ticket.context.channel.wait(ticket)
        except (ConnectionLost, ErrorAnswer):
            pass

    return [(LockWait, "wait", wait)]


def _waiting_store_left_behind() -> list[Patch]:
    original = ClientTransaction.abort

    def abort(self: ClientTransaction) -> None:
        for ticket in list(self._participants.asked):
            assert isinstance(ticket.context, Asked)
            self._participants._nodes.pop(ticket.context.nid, None)
        original(self)

    return [(ClientTransaction, "abort", abort)]


def _ended_is_not_forgotten() -> list[Patch]:
    def end(self: OpenTransactions, ttid: bytes) -> None:
        cluster = self._cluster
        transaction = self._transactions.get(ttid)
        if transaction is not None and transaction.state is State.BEGUN:
            for nid in cluster.ready:
                cluster.connected[nid].send(AbortTransaction(ttid, []))

    return [(OpenTransactions, "end", end)]


CANARIES = (
    Canary(
        "lock-waited-for-for-ever",
        "a store waits for a lock without a time limit",
        "locks: a store has waited for longer than wait-timeout",
        _lock_waited_for_for_ever,
        30,
        STANDING,
        first=6,
    ),
    Canary(
        "waiting-store-left-behind",
        "an abort leaves out the nodes that owe an answer, as if they were lost",
        "locks: the store that waited gets its lock and keeps it",
        _waiting_store_left_behind,
        60,
        STANDING,
    ),
    Canary(
        "ended-is-not-forgotten",
        "the operator ends a transaction on the storage nodes only: the master finishes it",
        "history: what was acknowledged is lost",
        _ended_is_not_forgotten,
        30,
        STANDING,
    ),
)
