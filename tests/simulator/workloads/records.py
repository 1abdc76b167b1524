"""Transactions of raw records, without persistent objects: creation, changes, deletion, undo of it."""

from __future__ import annotations

from typing import Any

from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import z64

from tests.simulator.workloads.base import Context, Workload

#: Greatest number of objects that the workload uses at a time.
OIDS_MAX = 8


class Records(Workload):
    """Writes records; the oracles of the history check them."""

    name = "records"
    threads = 2
    rewindable = True

    def __init__(self, random: Any) -> None:
        super().__init__(random)
        self.oids: list[bytes] = []

    def step(self, context: Context, thread: int) -> None:
        transaction = TransactionMetaData()
        storage: Any = context.storage
        try:
            storage.tpc_begin(transaction)
            created = []
            for _ in range(context.random.randrange(1, 4)):
                created += self._change(context, transaction)
            storage.tpc_vote(transaction)
            if context.random.random() < 0.1:
                storage.tpc_abort(transaction)
                return
            storage.tpc_finish(transaction)
            # Only now: another master may give an oid again that was not committed.
            self.oids += created
        except BaseException:
            storage.tpc_abort(transaction)
            raise

    def _change(self, context: Context, transaction: Any) -> list[bytes]:
        """Change some records. Return the oids that are created."""
        random = context.random
        storage: Any = context.storage
        data = zodb_pickle(PersistentMapping(data=random.randbytes(random.randrange(200))))
        if len(self.oids) < OIDS_MAX:
            oid = storage.new_oid()
            storage.store(oid, z64, data, "", transaction)
            return [oid]
        oid = random.choice(self.oids)
        try:
            _, serial = storage.load(oid)
        except POSKeyError:
            if oid in self.oids:
                self.oids.remove(oid)
            return []
        if random.random() < 0.3:
            storage.deleteObject(oid, serial, transaction)
        elif random.random() < 0.3:
            storage.checkCurrentSerialInTransaction(oid, serial, transaction)
        else:
            storage.store(oid, serial, data, "", transaction)
        return []
