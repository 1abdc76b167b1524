"""The handler of the primary master after it has accepted this node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from neo.node.handler import Method, routes
from neo.node.peer import Peer
from neo.protocol.packets import Message
from neo.storage.database import Database
from neo.storage.serving.handler import StorageHandler


class NodeControl(Protocol):
    """This node as a whole."""

    def master_lost(self, reason: str) -> None: ...


class ServeMaster(StorageHandler):
    """``parts``: have the methods that take messages, one for each type."""

    may_refuse = False

    def __init__(self, database: Database, node: NodeControl, parts: Sequence[object]) -> None:
        super().__init__(database)
        self._node = node
        self._parts = parts

    @cached_property
    def table(self) -> Mapping[type[Message], Method]:
        table = dict(super().table)
        for part in self._parts:
            table |= routes(part)
        return table

    def lost(self, peer: Peer, reason: str) -> None:
        self._node.master_lost(reason)
