"""The outbox of an engine: see its obligations in :mod:`neo.transactor.engine`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neo.transactor.messages import Message, Record


class Batch(NamedTuple):
    #: For the disk.
    records: list[Record]
    #: For peers, once all records so far are on disk.
    sends: list[tuple[int, Message]]
    #: For peers, at once.
    asides: list[tuple[int, Message]]


class Outbox:
    def __init__(self) -> None:
        self._batch = Batch([], [], [])

    def record(self, record: Record) -> None:
        self._batch.records.append(record)

    def send(self, to: int, message: Message) -> None:
        """Send a promise, or a message that makes one possible."""
        self._batch.sends.append((to, message))

    def aside(self, to: int, message: Message) -> None:
        """Send a fact or a question, without waiting for the disk."""
        self._batch.asides.append((to, message))

    def aside_all(self, group: Iterable[int], message: Message) -> None:
        self._batch.asides.extend((q, message) for q in group)

    def take(self) -> Batch:
        batch, self._batch = self._batch, Batch([], [], [])
        return batch
