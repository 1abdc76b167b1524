"""Withdrawals that read two accounts and change one: only readCurrent keeps their sum positive."""

from __future__ import annotations

from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation


class Skew(Workload):
    name = "skew"
    threads = 3
    rewindable = True

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for number in range(2):
                root.setdefault(f"skew{number}", PersistentMapping(balance=1))
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        with context.connection() as (connection, manager):
            accounts = [connection.root()[f"skew{number}"] for number in range(2)]
            total = sum(account["balance"] for account in accounts)
            if total < 0:
                raise Violation(f"skew: the accounts hold {total} together")
            context.random.shuffle(accounts)
            changed, seen = accounts
            changed["balance"] += -1 if total else context.random.randrange(1, 4)
            # Before or after: the order of locks must not matter.
            connection.readCurrent(seen)
            manager.commit()

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            total = sum(connection.root()[f"skew{number}"]["balance"] for number in range(2))
            if total < 0:
                raise Violation(f"skew: at the end the accounts hold {total} together")
