"""Transfers in two prepared transactions, whose coordinator may stop at any point (specification 24).

A transfer takes money from an account in one transaction and gives it to another account in a second
one, as two databases would. The workload is the coordinator: it survives its client processes, like the
database of a coordinator, and decides about each transfer once. Steps of other threads, in other
processes, are the resolvers: they finish what an interrupted step left, or roll it back.

Accounts are held while their transfers are undecided, so others that want them must get an error.
"""

from __future__ import annotations

from io import BytesIO
from pickle import Unpickler
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageError
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle

from neo.client.commit.prepared import ROLLING_BACK
from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

BALANCE = 100
#: Part of the transfers that the step which made them decides; the others are left to resolvers.
DECIDED_CHANCE = 0.7
COMMIT_CHANCE = 0.7
#: Part of the settled transfers for which the contrary decision is tried, and that are forgotten.
CONTRARY_CHANCE = 0.3
FORGET_CHANCE = 0.5
#: Part of the transactions that check a third account.
CHECKED_CHANCE = 0.8
#: Part of the transfers, and of the transactions that compete with them, that may want accounts of open
#: transfers: each waits there for five seconds.
CONTEND_CHANCE = 0.25
COMPETE_CHANCE = 0.75
#: Undecided transfers at most, so that some accounts are free.
OPEN_MAX = 3


class _Transfer:
    """``decision``: None until the coordinator has decided. ``prepared``: the xids for which prepare was
    acknowledged. ``settled``: those for which the decision was acknowledged."""

    def __init__(self, number: int, oids: list[bytes]) -> None:
        self.oids = oids
        self.xids = b"transfer %d, from" % number, b"transfer %d, to" % number
        self.decision: bool | None = None
        self.prepared: set[bytes] = set()
        self.settled: set[bytes] = set()
        #: Whether its step is over: it prepares nothing any more.
        self.left = False

    @property
    def promised(self) -> bool:
        return len(self.prepared) == len(self.xids)

    def decide(self, commit: bool) -> bool:
        """Decide, unless that was done before; return the decision."""
        if self.decision is None:
            self.decision = commit
        return self.decision


class Prepared(Workload):
    name = "prepared"
    threads = 3

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.accounts = random.randrange(4, 9)
        self.oids: list[bytes] = []
        self._numbers = 0
        #: Transfers that are not settled. Of those that are, whether each xid was committed.
        self._open: list[_Transfer] = []
        self._settled: dict[bytes, bool] = {}

    def setup(self, context: Context) -> None:
        """Make the accounts. The root refers to them, lest a pack of another workload collect them."""
        with context.connection() as (connection, manager):
            root = connection.root()
            if self.name not in root:
                root[self.name] = [MinPO(BALANCE) for _ in range(self.accounts)]
                manager.commit()
            self.oids = [account._p_oid for account in root[self.name]]

    def step(self, context: Context, thread: int) -> None:
        choice = context.random.random()
        if choice < 0.15:
            self._list(context)
        elif choice < 0.4:
            self._compete(context)
        elif choice < 0.65 or len(self._open) >= OPEN_MAX:
            self._resolve(context)
        elif oids := self._choose(context, 3, CONTEND_CHANCE):
            self._transfer(context, oids)
        else:
            self._resolve(context)

    def _choose(self, context: Context, count: int, contend: float) -> list[bytes]:
        """Return accounts: free ones, or, with probability ``contend``, any. Return none if too few are
        free."""
        oids = self.oids
        if context.random.random() >= contend:
            held = {oid for transfer in self._open for oid in transfer.oids}
            oids = [oid for oid in oids if oid not in held]
        return context.random.sample(oids, count) if len(oids) >= count else []

    # -- the application ---------------------------------------------------------------------------

    def _transfer(self, context: Context, oids: list[bytes]) -> None:
        random = context.random
        self._numbers += 1
        transfer = _Transfer(self._numbers, oids)
        self._open.append(transfer)
        source, target, other = oids
        amount = random.randrange(1, 20)
        try:
            for xid, oid, change in zip(
                transfer.xids, (source, target), (-amount, amount), strict=True
            ):
                checked = other if random.random() < CHECKED_CHANCE else None
                self._prepare(context, xid, oid, change, checked)
                transfer.prepared.add(xid)
                if transfer.decision is not None:
                    break  # a resolver gave it up
        finally:
            transfer.left = True
        if random.random() < DECIDED_CHANCE:
            transfer.decide(transfer.promised and random.random() < COMMIT_CHANCE)
            self._settle(context, transfer)

    def _prepare(
        self, context: Context, xid: bytes, oid: bytes, change: int, checked: bytes | None
    ) -> None:
        storage: Any = context.storage
        storage.sync()
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            data, serial = storage.load(oid)
            balance = _balance(data) + change
            storage.store(oid, serial, zodb_pickle(MinPO(balance)), "", transaction)
            if checked is not None:
                _, serial = storage.load(checked)
                storage.checkCurrentSerialInTransaction(checked, serial, transaction)
            storage.tpc_vote(transaction)
            storage.tpc_prepare(transaction, xid)
        except BaseException:
            storage.tpc_abort(transaction)
            raise

    def _compete(self, context: Context) -> None:
        """Move money in an ordinary transaction, which may want accounts that are held. Its connection
        has objects in its cache that prepared transactions have changed."""
        with context.connection() as (connection, manager):
            accounts = connection.root()[self.name]
            chosen = set(self._choose(context, 2, COMPETE_CHANCE))
            changes = iter((-1, 1))
            for account in accounts:
                if account._p_oid in chosen:
                    account.value += next(changes)
            manager.commit()

    # -- the coordinator ---------------------------------------------------------------------------

    def _resolve(self, context: Context) -> None:
        """Settle a transfer, whatever became of the step that made it."""
        if not self._open:
            return
        transfer = context.random.choice(self._open)
        if transfer.left or context.random.random() < 0.2:
            transfer.decide(transfer.promised and context.random.random() < COMMIT_CHANCE)
        if transfer.decision is not None:
            self._settle(context, transfer)

    def _settle(self, context: Context, transfer: _Transfer) -> None:
        storage: Any = context.storage
        assert transfer.decision is not None
        for xid in transfer.xids:
            if transfer.decision:
                storage.commit_prepared(xid)
            else:
                storage.rollback_prepared(xid)
            transfer.settled.add(xid)
        if transfer in self._open:
            self._open.remove(transfer)
            self._settled.update(dict.fromkeys(transfer.xids, transfer.decision))
        if context.random.random() < CONTRARY_CHANCE:
            self._contradict(context, transfer)
        elif transfer.decision and context.random.random() < FORGET_CHANCE:
            # The outcome of a rollback is kept: the step may still be about to prepare.
            for xid in transfer.xids:
                storage.forget_prepared(xid)

    def _contradict(self, context: Context, transfer: _Transfer) -> None:
        """Try the contrary decision, which must be refused as long as the outcome is remembered."""
        if transfer.decision:
            return  # another step may have had it forgotten
        try:
            context.storage.commit_prepared(transfer.xids[0])
        except StorageError:
            return
        raise Violation(f"{transfer.xids[0]!r} was rolled back, then committed")

    def _list(self, context: Context) -> None:
        """Check that what is prepared and undecided is listed, and what is settled is not. A rollback is
        listed again while nodes are told of it whose disks forgot it (specification 24.23)."""
        undecided = {
            xid for transfer in self._open if transfer.decision is None for xid in transfer.prepared
        }
        settled = dict(self._settled)
        listed = {outcome.xid: outcome.state for outcome in context.storage.outcomes(0)}
        decided = {xid for t in self._open if t.decision is not None for xid in t.xids}
        if missing := undecided - listed.keys() - decided - self._settled.keys():
            raise Violation(f"prepared: {sorted(missing)} are not listed: they were lost")
        told = {xid for xid in listed if listed[xid] == ROLLING_BACK and settled.get(xid) is False}
        if risen := listed.keys() & settled.keys() - told:
            raise Violation(f"prepared: {sorted(risen)} are listed, and were settled before")

    def check(self, context: Context) -> None:
        for transfer in list(self._open):
            transfer.decide(transfer.promised)
            self._settle(context, transfer)
        if left := context.storage.recover():
            raise Violation(f"prepared: {left} is left")
        balances = [_balance(context.storage.load(oid)[0]) for oid in self.oids]
        if sum(balances) != BALANCE * len(self.oids):
            raise Violation(f"prepared: money appeared or vanished: {balances}")


def _balance(record: bytes) -> int:
    """Return the balance in a record, which ZODB or this workload wrote: its class, then its state."""
    unpickler = Unpickler(BytesIO(record))
    unpickler.load()
    balance: int = unpickler.load()["value"]
    return balance
