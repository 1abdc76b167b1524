"""Two scripted clusters and a database that is not ZODB's, whose transactions have one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import transaction
from ZODB.Connection import TransactionMetaData

from neo.client import NEOStorage, xa
from neo.protocol.ids import p64, u64
from tests.unit.client.committing import OID
from tests.unit.client.prepared_master import Cluster


class Broken(RuntimeError):
    """What databases and data managers here fail with."""


class Writes:
    """Stands for a connection of ZODB that changed an object."""

    def __init__(self, manager: Any, storage: NEOStorage, oid: bytes = OID) -> None:
        self._oid = oid
        self.transaction_manager = manager
        self.storage = storage
        self.tid: bytes | None = None
        manager.get().join(self)

    def sortKey(self) -> str:
        return f"{self.storage.sortKey()}:1"

    def abort(self, t: Any) -> None: ...

    def tpc_begin(self, t: Any) -> None:
        self.metadata = TransactionMetaData(t.user, t.description, t.extension)
        self.storage.tpc_begin(self.metadata)

    def commit(self, t: Any) -> None:
        self.storage.store(self._oid, None, b"one", "", self.metadata)

    def tpc_vote(self, t: Any) -> None:
        self.storage.tpc_vote(self.metadata)

    def tpc_finish(self, t: Any) -> None:
        self.tid = self.storage.tpc_finish(self.metadata)

    def tpc_abort(self, t: Any) -> None:
        self.storage.tpc_abort(self.metadata)


class Acts:
    """A data manager of the application that does something in one step, after the coordinator's."""

    def __init__(self, manager: Any, step: str, act: Callable[[], object], key: str = "A") -> None:
        self.transaction_manager = manager
        self._step, self._act, self._key = step, act, key
        manager.get().join(self)

    def sortKey(self) -> str:
        return self._key

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        def call(t: Any) -> None:
            if name == self._step:
                self._act()

        return call


class Fails(Acts):
    """A data manager of the application that fails in one step."""

    def __init__(self, manager: Any, step: str, key: str = "A") -> None:
        super().__init__(manager, step, self._fail, key)

    def _fail(self) -> None:
        raise Broken("broken")


class Bank:
    """A database that is not ZODB's. ``fails``: names of methods that raise once, by name: whether what
    they should do happens nevertheless."""

    name = "bank"

    def __init__(self) -> None:
        self.prepared: list[bytes] = []
        self.log: list[str] = []
        self.fails: dict[str, bool] = {}

    def begin(self, xid: bytes) -> Work:
        return Work(self, xid)

    def did(self, what: str) -> None:
        if self.fails.pop(what, None) is not None:
            raise Broken("broken")
        self.log.append(what)

    def recover(self) -> dict[bytes, float | None]:
        self.did("recover")
        return dict.fromkeys(self.prepared)

    def commit(self, xid: bytes) -> None:
        self.prepared.remove(xid)
        self.did("commit by xid")

    def rollback(self, xid: bytes) -> None:
        self.prepared.remove(xid)
        self.did("rollback by xid")

    def forget(self, xid: bytes) -> None: ...


class Work:
    def __init__(self, bank: Bank, xid: bytes) -> None:
        self._bank = bank
        self._xid = xid

    def prepare(self) -> None:
        if self._bank.fails.get("prepare") is not False:
            self._bank.prepared.append(self._xid)
        self._bank.did("prepare")

    def commit(self) -> None:
        if self._xid in self._bank.prepared and self._bank.fails.get("commit") is not False:
            self._bank.prepared.remove(self._xid)
        self._bank.did("commit")

    def leave(self) -> None:
        self._bank.did("leave")

    def rollback(self) -> None:
        if self._xid in self._bank.prepared and "rollback" not in self._bank.fails:
            self._bank.prepared.remove(self._xid)
        self._bank.did("rollback")


class World:
    """Two clusters and a bank, joined. The coordinator is ``first``."""

    def __init__(self, found: list[tuple[Cluster, NEOStorage]]) -> None:
        (self.first, self.storage1), (self.second, self.storage2) = found
        self.bank = Bank()
        #: Whether a transaction manager that was interrupted left a transaction without its end.
        self.interrupted = False
        self.manager: Any = transaction.TransactionManager()
        participants = [self.storage1, self.storage2, self.bank]
        self.joined = xa.join(self.manager, participants, self.storage1)

    def change(self, *storages: NEOStorage, manager: Any = None) -> list[Writes]:
        used = manager or self.manager
        wanted = storages or (self.storage2, self.storage1)
        # Two connections to a database change two objects.
        oids = [p64(u64(OID) + wanted[:n].count(s)) for n, s in enumerate(wanted)]
        return [Writes(used, s, oid) for s, oid in zip(wanted, oids, strict=True)]

    def change_all(self) -> list[Writes]:
        """Change all three databases."""
        writes = self.change()
        self.joined.session(self.bank)
        return writes

    def fails(self, error: type[BaseException], match: str | None = None) -> None:
        """Commit, which raises this error, and abort as applications do."""
        with pytest.raises(error, match=match):
            self.manager.commit()
        self.manager.abort()

    def check_nothing_is_left(self) -> None:
        """Raise AssertionError if the coordination remembers a transaction that ended."""
        assert self.interrupted or not self.joined._units

    def states(self) -> list[list[str]]:
        return [list(c.states().values()) for c in (self.first, self.second)]

    def forgotten(self) -> bool:
        return self.states() == [[], []]
