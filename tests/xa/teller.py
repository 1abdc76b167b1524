"""An application that moves money between two databases: ``python -m tests.xa.teller``.

With ``--crash STEP`` it ends at this step of a commit like a process that is killed. With ``--rounds N``,
it tries N transfers, and prints a line before and after each: ``try``, then ``done``, ``unknown``, or
``failed`` if it is certain that nothing was moved.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import psycopg
import transaction
from transaction.interfaces import TransientError
from ZODB.DB import DB

from neo.client import NEOStorage, xa
from neo.client.errors import OutcomeUnknownError
from neo.client.uri import resolve as resolve_uri
from neo.client.xa.branches import DBAPISession

#: Exit code of a crash.
CRASH = 9
#: The first database is the coordinator. The steps of a commit in both, in their order.
FIRST, SECOND = "first", "second"
STEPS = [
    f"{when} {what} {name}"
    for what in ("prepare", "commit")
    for name in (FIRST, SECOND)
    for when in ("before", "after")
]
#: From this step on the transaction is committed.
DECIDED = STEPS.index("after commit first")

Step = Callable[[str], None]


class Account(Protocol):
    """The money in one database."""

    def read(self) -> int: ...

    def add(self, amount: int) -> None: ...


class ZODBAccount:
    def __init__(self, connection: Any) -> None:
        self._root = connection.root()

    def read(self) -> int:
        money: int = self._root["money"]
        return money

    def add(self, amount: int) -> None:
        self._root["money"] += amount


class SQLAccount:
    """``connection``: returns that of the current transaction."""

    def __init__(self, connection: Callable[[], Any]) -> None:
        self._connection = connection

    def read(self) -> int:
        row = self._connection().execute("SELECT money FROM account").fetchone()
        money: int = row[0]
        return money

    def add(self, amount: int) -> None:
        self._connection().execute("UPDATE account SET money = money + %s", (amount,))


class WatchedStorage(NEOStorage):
    """A storage that tells each step of a commit. ``place``: first or second."""

    def __init__(self, place: str, step: Step, options: dict[str, Any]) -> None:
        self._place = place
        self._step = step
        super().__init__(**options)

    def tpc_prepare(self, transaction: Any, xid: bytes) -> None:
        self._step(f"before prepare {self._place}")
        super().tpc_prepare(transaction, xid)
        self._step(f"after prepare {self._place}")

    def tpc_finish(
        self, transaction: Any, func: Callable[[bytes], object] = lambda tid: None
    ) -> bytes:
        self._step(f"before commit {self._place}")
        tid = super().tpc_finish(transaction, func)
        self._step(f"after commit {self._place}")
        return tid


class WatchedSession(DBAPISession):
    step: Step

    def prepare(self) -> None:
        self.step("before prepare second")
        super().prepare()
        self.step("after prepare second")

    def commit(self) -> None:
        self.step("before commit second")
        super().commit()
        self.step("after commit second")


class WatchedBranch(xa.DBAPIBranch):
    def __init__(self, connect: Callable[[], Any], step: Step) -> None:
        super().__init__(SECOND, connect)
        self._step = step

    def begin(self, xid: bytes) -> WatchedSession:
        session = super().begin(xid)
        watched = WatchedSession(session.connection, self._idle, session.began)
        watched.step = self._step
        return watched


class Teller:
    """Both databases, joined. ``second``: a URI of NEO, or a DSN of PostgreSQL."""

    def __init__(self, first: str, second: str, step: Step, stack: ExitStack) -> None:
        self.manager = transaction.TransactionManager()
        self._stack = stack
        self._step = step
        storage1 = self._storage(first, FIRST)
        branch: Any
        if second.startswith("neo:"):
            branch = self._storage(second, SECOND)
        else:
            branch = WatchedBranch(lambda: psycopg.connect(second), step)
            stack.callback(branch.close)
        joined = xa.join(self.manager, [storage1, branch], storage1)
        self.joined, self.branch = joined, branch
        self.accounts: list[Account] = [self._zodb(storage1)]
        if isinstance(branch, NEOStorage):
            self.accounts.append(self._zodb(branch))
        else:
            self.accounts.append(SQLAccount(lambda: joined.session(branch).connection))

    def _storage(self, uri: str, place: str) -> WatchedStorage:
        factory, _ = resolve_uri(uri)
        options = dict(factory.args[0])  # type: ignore[attr-defined]
        return WatchedStorage(place, self._step, options)

    def _zodb(self, storage: NEOStorage) -> Account:
        db = DB(storage)
        self._stack.callback(db.close)
        return ZODBAccount(db.open(self.manager))

    def transfer(self, amount: int) -> None:
        self.manager.begin()
        try:
            first, second = self.accounts
            first.add(-amount)
            second.add(amount)
            self.manager.commit()
        except BaseException:
            self.manager.abort()
            raise


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--crash", choices=STEPS)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(argv)

    def step(name: str) -> None:
        if name == options.crash:
            os._exit(CRASH)

    with ExitStack() as stack:
        teller = Teller(options.first, options.second, step, stack)
        for _ in range(options.rounds):
            print("try", flush=True)
            try:
                teller.transfer(1)
                print("done", flush=True)
            except TransientError as e:
                print(f"failed: {e}", flush=True)
            except OutcomeUnknownError as e:
                print(f"unknown: {e}", flush=True)


if __name__ == "__main__":
    main()
