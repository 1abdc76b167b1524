"""Deadlocks of the simulator include cascades: a transaction is rebased while it is being rebased."""

from __future__ import annotations

from neo.client.commit.participants import Asked
from neo.client.commit.transaction import ClientTransaction
from neo.protocol.ids import ZERO_TID
from tests.simulator.planting import plant
from tests.simulator.run import Options, Run

#: Seeds with such cascades, which one in ten has.
SEEDS = range(55, 58)
OPTIONS = Options(
    seconds=2.0, faults=("none",), sites=("none",), workloads=("cascades",),
    storages=2, disk="memory", masters=1, backup=False,
)  # fmt: skip


class Rebases:
    """Count the rebases of all clients. Also count those of a transaction that had been rebased before,
    and of one whose rebase was not complete."""

    def __init__(self) -> None:
        self.all = self.again = self.nested = 0

    def patch(self) -> tuple[type, str, object]:
        rebase = ClientTransaction.rebase

        def counted(transaction: ClientTransaction, locking_tid: bytes) -> None:
            before = transaction._participants.locking_tid
            # Until the vote only the questions of a rebase are about no change.
            asked = [ticket.context for ticket in transaction._participants.asked]
            pending = any(isinstance(a, Asked) and a.change is None for a in asked)
            rebase(transaction, locking_tid)
            if transaction._participants.locking_tid != before:
                self.all += 1
                self.again += before != ZERO_TID
                self.nested += pending

        return ClientTransaction, "rebase", counted


def test_transactions_that_were_rebased_are_rebased_again() -> None:
    rebases = Rebases()
    with plant([rebases.patch()]):
        for seed in SEEDS:
            Run(seed, OPTIONS).execute()
    assert rebases.again and rebases.nested, vars(rebases)
