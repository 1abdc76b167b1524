"""Transfers between accounts in different partitions: the sum of all balances never changes."""

from __future__ import annotations

from random import Random

from persistent.mapping import PersistentMapping

from neo.sim.workloads.base import Context, Workload
from neo.sim.world import Violation

BALANCE = 100


class Bank(Workload):
    name = "bank"
    threads = 3
    rewindable = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.accounts = random.randrange(2, 12)

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            if "bank" not in root:
                root["bank"] = bank = PersistentMapping()
                for number in range(self.accounts):
                    bank[number] = PersistentMapping(balance=BALANCE)
                manager.commit()

    def step(self, context: Context, thread: int) -> None:
        random = context.random
        with context.connection() as (connection, manager):
            bank = connection.root()["bank"]
            if random.random() < 0.2:
                self._check_sum(bank)
                return
            source, target = random.sample(range(self.accounts), 2)
            amount = random.randrange(1, 20)
            bank[source]["balance"] -= amount
            bank[target]["balance"] += amount
            if random.random() < 0.1:
                return  # changed its mind
            manager.commit()

    def _check_sum(self, bank: PersistentMapping) -> None:
        balances = [bank[number]["balance"] for number in range(self.accounts)]
        if sum(balances) != BALANCE * self.accounts:
            raise Violation(f"bank: money appeared or vanished: {balances}")

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            self._check_sum(connection.root()["bank"])
