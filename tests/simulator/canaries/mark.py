"""Bugs of the position file, which records the last transaction that a node acknowledged."""

from __future__ import annotations

from typing import Any

from neo.storage.backend.sqlite import position as sqlite_position
from neo.storage.backend.sqlite.engine import SQLite
from neo.storage.backend.sqlite.position import SQLitePosition
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "faults": ("broken-promise", "kill-server"),
    "disk": "sqlite",
    "storages": 2,
    "seconds": 4.0,
}


def _ignored() -> list[Patch]:
    def compare(*args: Any) -> None:
        pass

    return [(sqlite_position, "compare", compare)]


def _generation_stays() -> list[Patch]:
    def next_row(self: SQLitePosition, last: bool) -> str | None:
        return None

    return [(SQLitePosition, "next_row", next_row)]


def _too_early() -> list[Patch]:
    original = SQLite._end_transaction

    def end_transaction(self: SQLite, last: bool = False) -> None:
        original(self, last)
        if self._position._index is not None:
            self._position.synced()

    return [(SQLite, "_end_transaction", end_transaction)]


CANARIES = (
    Canary(
        "mark-ignored",
        "a database is opened though it is behind its position file",
        "disk: one loses what was durable: a database without what was acknowledged is served",
        _ignored,
        10,
        _OPTIONS,
    ),
    Canary(
        "generation-stays",
        "the generation of a database does not grow with its checkpoints",
        "disk: one loses the log: a database without what was acknowledged is served",
        _generation_stays,
        20,
        _OPTIONS,
    ),
    Canary(
        "mark-before-sync",
        "the position is written when a commit is made, not when it is synced",
        "disk: after a power cut a database that lost nothing is refused",
        _too_early,
        30,
        _OPTIONS
        | {
            "faults": ("broken-promise", "slow-disk"),
            "workloads": ("bank",),
            "seconds": 3.0,
        },
        first=4,
    ),
)
