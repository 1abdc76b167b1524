"""What storage nodes of ours answer besides while nothing happens in VERIFYING."""

from __future__ import annotations

from collections.abc import Iterable

from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AnswerPreparedTransactions,
    AnswerTails,
    AskPreparedTransactions,
    AskTails,
    TailRow,
)
from tests.support.remote import Remote


def nothing_prepared(storages: Iterable[Remote]) -> None:
    """Answer each AskPreparedTransactions: no marks, no outcomes."""
    for storage in storages:
        if storage.has(AskPreparedTransactions):
            question = storage.take(AskPreparedTransactions)
            storage.answer(question, AnswerPreparedTransactions([], []))


def equal_tails(storages: Iterable[Remote]) -> None:
    """Answer each AskTails: the copies are empty."""
    for storage in storages:
        for question in [m for m in storage.received if isinstance(m, AskTails)]:
            storage.received.remove(question)
            rows: list[TailRow] = [(partition, True, [], []) for partition in question.partition_list]
            storage.answer(question, AnswerTails(ZERO_TID, rows))
