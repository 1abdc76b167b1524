"""How many objects the clients of this process ask storage nodes for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from neo.client.read.replicas import Replicas
from neo.protocol.packets import AskObject


@contextmanager
def counted_loads() -> Iterator[list[int]]:
    """Yield a list with the number of loads since the block began."""
    count = [0]

    def counting(name: str) -> Any:
        method = getattr(Replicas, name)

        def counted(self: Replicas, where: Any, message: Any, *others: Any) -> Any:
            count[0] += isinstance(message, AskObject)
            return method(self, where, message, *others)

        return counted

    with patch.multiple(Replicas, read=counting("read"), ask=counting("ask")):
        yield count
