"""What a source sends reaches the fetches that wait for it."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from neo.protocol.ids import p64
from neo.protocol.packets import AddTransaction
from neo.storage.replication.fetch import Receiver


def test_a_fetch_that_ends_with_what_it_is_given_does_not_keep_it_from_others() -> None:
    given: list[str] = []

    class Fetch:
        def __init__(self, name: str, ends: bool) -> None:
            self.source, self.name, self.ends = source, name, ends

        def add(self, message: AddTransaction) -> None:
            given.append(self.name)
            if self.ends:
                del receiver.fetches[self]

    source: Any = object()
    receiver: Any = Receiver(*[Mock()] * 5)
    receiver.fetches |= dict.fromkeys([Fetch("failing", True), Fetch("other", False)])
    receiver.add(source, AddTransaction(p64(1), b"", b"", b"", False, p64(1), []))
    assert given == ["failing", "other"]
