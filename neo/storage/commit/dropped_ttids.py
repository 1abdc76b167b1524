"""Voted transactions that were dropped: their ttids must not be given again.

A client that sent AskFinishTransaction and lost the master asks for the end of its ttid, however late. If
the vote is forgotten, and the clock of the next master is behind, that master may give the same ttid to
somebody else, whose commit the first client would take for its own. So the greatest ttid that was
dropped is kept, in the database transaction that drops the rows, and is named among the voted ones
when a master asks: it finds no tid for it, and goes on after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from neo.storage.backend.api import Backend

#: A row of ``config``, of our own: hexadecimal.
DROPPED_TTID = "_dropped_ttid"


def remember(backend: Backend, ttids: Iterable[bytes]) -> None:
    """Call before the rows are deleted."""
    greatest = max(ttids, default=b"").hex()
    if greatest > (backend.get_config(DROPPED_TTID) or ""):
        backend.set_config(DROPPED_TTID, greatest)


def voted(backend: Backend) -> dict[bytes, bytes | None]:
    """What AskLockedTransactions is answered with: ttid → tid if it is locked."""
    dropped = backend.get_config(DROPPED_TTID)
    earlier: dict[bytes, bytes | None] = {bytes.fromhex(dropped): None} if dropped else {}
    return earlier | backend.locked_transactions()
