"""The answers of a simulated client's storage are checked at once."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.ids import ZERO_TID, p64
from tests.simulator.history import History
from tests.simulator.recorded import Recorded
from tests.simulator.world import Violation, World

OID = p64(1)
T1, T2, T3 = (p64(n) for n in (10, 20, 30))


class Storage:
    """A storage that answers one record from before a truncation, and is at ``last_tid``."""

    def __init__(self, last_tid: bytes) -> None:
        self._last_tid = last_tid

    def lastTransaction(self) -> bytes:
        return self._last_tid

    def record_iternext(self, next: bytes | None = None) -> tuple[bytes, bytes, bytes, None]:
        return OID, T2, b"data", None


def recorded(last_tid: bytes) -> tuple[Any, History]:
    history = History(World(0))
    return Recorded(Storage(last_tid), history, lambda: "x"), history


def test_a_current_record_is_of_what_the_storage_says_is_committed() -> None:
    storage, _ = recorded(T2)
    assert storage.record_iternext() == (OID, T2, b"data", None)


def test_a_current_record_from_the_future_is_found_at_once() -> None:
    storage, _ = recorded(T1)
    with pytest.raises(Violation, match="from the future"):
        storage.record_iternext()


def test_a_current_record_that_was_read_before_a_truncation_may_be_answered_after_it() -> None:
    storage, history = recorded(T1)
    history.truncated(T1, T3)
    assert storage.record_iternext()[1] == T2


def test_a_truncation_takes_nothing_away_from_what_is_committed_after_it() -> None:
    storage, history = recorded(ZERO_TID)
    history.truncated(ZERO_TID, T1)
    with pytest.raises(Violation, match="from the future"):
        storage.record_iternext()
