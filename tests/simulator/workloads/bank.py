"""Transfers between accounts in different partitions: the sum of all balances never changes.

In one bank conflicts end in an abort. In the other one balances resolve them: two concurrent transfers
from one account both succeed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from BTrees.Length import Length
from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

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
            if self.name not in root:
                root[self.name] = bank = PersistentMapping()
                for number in range(self.accounts):
                    bank[number] = self.account()
                manager.commit()

    def step(self, context: Context, thread: int) -> None:
        random = context.random
        with context.connection() as (connection, manager):
            bank = connection.root()[self.name]
            if random.random() < 0.2:
                self._check_sum(bank)
                return
            source, target = random.sample(range(self.accounts), 2)
            amount = random.randrange(1, 20)
            self.add(bank[source], -amount)
            self.add(bank[target], amount)
            if random.random() < 0.1:
                return  # abort without a transfer
            manager.commit()

    def account(self) -> Any:
        return PersistentMapping(balance=BALANCE)

    def add(self, account: Any, amount: int) -> None:
        account["balance"] += amount

    def balance(self, account: Any) -> int:
        balance: int = account["balance"]
        return balance

    def _check_sum(self, bank: PersistentMapping) -> None:
        balances = [self.balance(bank[number]) for number in range(self.accounts)]
        if sum(balances) != BALANCE * self.accounts:
            raise Violation(f"{self.name}: money appeared or vanished: {balances}")

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            self._check_sum(connection.root()[self.name])


class ResolvingBank(Bank):
    name = "resolving-bank"

    def account(self) -> Any:
        return Length(BALANCE)

    def add(self, account: Any, amount: int) -> None:
        account.change(amount)

    def balance(self, account: Any) -> int:
        balance: int = account()
        return balance
