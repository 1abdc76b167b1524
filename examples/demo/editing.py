"""Concurrent editing: simultaneous changes, an undo, and reads of the past.

``review`` is the work of one reviewer, in a thread or a process of its own, without knowledge of the
others. ``take_back`` undoes the newest transaction with a given description.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import transaction
from transaction.interfaces import TransientError

from examples.demo.model import Desk, Note
from examples.demo.opening import open_database

# A transaction is repeated after a conflict. Twenty conflicts in a row for one note mean another error.
ATTEMPTS_MAX = 20
# Seconds for a process to start Python and import ZODB on a busy machine.
START_SECONDS = 60


class Reviewed(NamedTuple):
    """The results of one reviewer.

    ``merged``: transactions that met a concurrent change of the count, which was resolved. ``repeated``:
    transactions that had to be repeated.
    """

    reviewer: str
    notes: int
    merged: int
    repeated: int


def open_desk(db: Any) -> int:
    """Create the desk if there is none; return its number of notes."""
    with db.transaction("demo: the desk") as connection:
        desk: Desk = connection.root().setdefault("desk", Desk())
        return int(desk.count())


def review(db: Any, reviewer: str, topics: Sequence[str]) -> Reviewed:
    """Write one note per topic, each in a transaction of its own.

    Raise the conflict if a transaction does not succeed within ATTEMPTS_MAX.
    """
    # Explicit: objects stay as the commit left them until the next begin(), which shows whether the count
    # was merged.
    manager = transaction.TransactionManager(explicit=True)
    connection = db.open(manager)
    merged = repeated = 0
    try:
        for number, topic in enumerate(topics):
            for attempt in range(ATTEMPTS_MAX):
                current = manager.begin()
                current.user = reviewer
                current.note(f"review of {topic}")
                try:
                    desk: Desk = connection.root()["desk"]
                    desk.notes[(topic, reviewer, number)] = Note(reviewer, topic, "read, and liked")
                    desk.count.change(1)
                    manager.commit()
                except Exception as error:
                    manager.abort()
                    if attempt == ATTEMPTS_MAX - 1 or not isinstance(error, TransientError):
                        raise
                    repeated += 1
                else:
                    # After a merge the connection has dropped its own state.
                    merged += desk.count._p_changed is None
                    break
    finally:
        connection.close()
    return Reviewed(reviewer, len(topics), merged, repeated)


def review_at(uri: str, reviewer: str, topics: Sequence[str]) -> Reviewed:
    """Run a review in a process of its own, with its own connection to the database."""
    with closing(open_database(uri)) as db:
        return review(db, reviewer, topics)


def review_by_processes(uri: str, reviewers: Sequence[str], topics: list[str]) -> list[Reviewed]:
    """Let all reviewers work in new processes, at the same time, on the same topics.

    Raise BrokenProcessPool if a process does not start.
    """
    fresh = multiprocessing.get_context("spawn")
    barrier = fresh.Barrier(len(reviewers))
    # Each process waits for the others, because they start one after the other.
    with ProcessPoolExecutor(len(reviewers), fresh, barrier.wait, (START_SECONDS,)) as pool:
        working = [pool.submit(review_at, uri, name, topics) for name in reviewers]
        return [work.result() for work in working]


def count_notes(connection: Any) -> tuple[int, int]:
    """Return the counter and the number of notes; they differ if a change was lost."""
    desk: Desk = connection.root()["desk"]
    return int(desk.count()), len(desk.notes)


def take_back(db: Any, note: str) -> dict[str, Any]:
    """Undo the newest transaction described by ``note``; return its entry of the undo log.

    Raise LookupError if none of the newest 100 transactions matches.
    """
    for entry in db.undoInfo(0, 100):
        if entry["description"] == note:
            with transaction.TransactionManager() as current:
                current.note(f"undo: {note}")
                db.undo(entry["id"], current)
            return dict(entry)
    raise LookupError(f"none of the newest 100 transactions is described as {note!r}")
