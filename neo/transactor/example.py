"""A worked example: a replicated table.

    python -m neo.transactor.example 127.0.0.1:7001

Each process is an application server with its own copy of the table, beside its own transactor. A
change is a transaction. All processes apply all changes in the same order, and a change depends only on
the table and itself. So all copies are equal, and a change may have a condition.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid

from neo.transactor.client import Transactor
from neo.transactor.config import parse_address
from neo.transactor.members import Address


class Table:
    """A mapping of texts. Reads are local, and may be stale; writes go through the log."""

    def __init__(self, address: Address, secret: str = "") -> None:
        self.rows: dict[str, str] = {}
        self.changes = 0
        self._log: Transactor[str | None] = Transactor(address, self._apply, secret=secret)

    def get(self, key: str) -> str | None:
        return self.rows.get(key)

    def set(self, key: str, value: str, timeout: float | None = None) -> str | None:
        """Set a value, and return the one before."""
        return self._execute({"set": key, "to": value}, timeout)

    def replace(self, key: str, old: str | None, new: str, timeout: float | None = None) -> bool:
        """Set a value only if the present one is ``old``. Return whether it was."""
        return self._execute({"set": key, "to": new, "if": old}, timeout) == old

    def digest(self) -> str:
        """Return a digest of the content: equal tables have equal digests."""
        return hashlib.sha256(json.dumps(self.rows, sort_keys=True).encode()).hexdigest()

    @property
    def tid(self) -> int:
        """The next transaction for this copy."""
        return self._log.tid

    def close(self) -> None:
        self._log.close()

    def _execute(self, change: dict[str, str | None], timeout: float | None) -> str | None:
        # The random id makes each change unique, so that it is applied once.
        data = json.dumps({"id": uuid.uuid4().hex, **change}).encode()
        return self._log.execute(data, timeout)

    def _apply(self, tid: int, data: bytes) -> str | None:
        if not data:
            return None
        change = json.loads(data)
        before = self.rows.get(change["set"])
        if "if" not in change or change["if"] == before:
            self.rows[change["set"]] = change["to"]
        self.changes += 1
        return before


def main() -> int:
    """Execute commands from standard input: ``get KEY``, ``set KEY VALUE``, ``digest``."""
    table = Table(parse_address(sys.argv[1], "address"))
    for line in sys.stdin:
        match line.split():
            case ["get", key]:
                print(table.get(key))
            case ["set", key, value]:
                print(table.set(key, value))
            case ["digest"]:
                print(table.tid, table.digest())
            case _:
                print("get KEY, set KEY VALUE, or digest")
    table.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
