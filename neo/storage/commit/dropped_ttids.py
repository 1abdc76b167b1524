"""The greatest ttid of a dropped vote, which no master may allocate again.

A client that sent AskFinishTransaction and lost the master asks later how its ttid ended. If the vote
is forgotten, and the clock of the next master is behind, that master may allocate the same ttid again,
and the first client would take the other's commit for its own. So the greatest dropped ttid is stored in
the database transaction that drops the rows, and is listed among the voted ones when a master asks. The
master finds no tid for it, and allocates later ttids.
"""

from __future__ import annotations

from collections.abc import Iterable

from neo.storage.backend.api import Backend, Tables

#: A row of ``config``, of our own: hexadecimal.
DROPPED_TTID = "_dropped_ttid"


def remember(tables: Tables, ttids: Iterable[bytes]) -> None:
    """Store the greatest of these ttids. Call before the rows are deleted."""
    greatest = max(ttids, default=b"").hex()
    if greatest > (tables.get_config(DROPPED_TTID) or ""):
        tables.set_config(DROPPED_TTID, greatest)


def voted(backend: Backend) -> dict[bytes, bytes | None]:
    """Return the answer to AskLockedTransactions: ttid → tid, None unless it is locked."""
    dropped = backend.tables.get_config(DROPPED_TTID)
    earlier: dict[bytes, bytes | None] = {bytes.fromhex(dropped): None} if dropped else {}
    return earlier | backend.commits.locked_transactions()
