"""Several people at one desk: changes at the same time, a mistake, and the past.

``review`` is what every reviewer does, in a thread or in a process of its own; nothing in it knows
of the others. ``take_back`` undoes the newest transaction with a given description.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import transaction
from transaction.interfaces import TransientError

from neo.demo.model import Desk, Note
from neo.demo.opening import open_database

# A transaction that lost a conflict is tried again; twenty losses in a row for one note of one
# desk mean that something else is wrong.
ATTEMPTS_MAX = 20
# For a new process to start Python and import ZODB, on a machine that has much else to do.
START_SECONDS = 60


class Reviewed(NamedTuple):
    """What became of one reviewer's notes.

    ``merged`` transactions met a concurrent change of the count and were resolved;
    ``repeated`` ones could not be merged and were done anew.
    """

    reviewer: str
    notes: int
    merged: int
    repeated: int


def open_desk(db: Any) -> int:
    """Make the desk when there is none; returns the number of notes on it."""
    with db.transaction("demo: the desk") as connection:
        desk: Desk = connection.root().setdefault("desk", Desk())
        return int(desk.count())


def review(db: Any, reviewer: str, topics: Sequence[str]) -> Reviewed:
    """Write one note about each topic, each in a transaction of its own.

    Raises the conflict when a transaction does not succeed within ATTEMPTS_MAX.
    """
    # Explicit: after a commit the objects stay as the commit left them until the next begin(),
    # which is what shows whether the count was merged.
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
                    # A merged state is the storage's: ours was thrown away with the commit.
                    merged += desk.count._p_changed is None
                    break
    finally:
        connection.close()
    return Reviewed(reviewer, len(topics), merged, repeated)


def review_at(uri: str, reviewer: str, topics: Sequence[str]) -> Reviewed:
    """The same from a process of its own, with its own connection to the database."""
    with closing(open_database(uri)) as db:
        return review(db, reviewer, topics)


def review_by_processes(uri: str, reviewers: Sequence[str], topics: list[str]) -> list[Reviewed]:
    """Let every reviewer work in a new process, all at the same time, all on the same topics.

    Raises BrokenProcessPool when a process does not start.
    """
    fresh = multiprocessing.get_context("spawn")
    everybody = fresh.Barrier(len(reviewers))
    with ProcessPoolExecutor(len(reviewers), fresh, meet, (everybody,)) as pool:
        working = [pool.submit(review_at, uri, name, topics) for name in reviewers]
        return [work.result() for work in working]


def meet(everybody: Barrier) -> None:
    """Begin together: processes start one after the other, and would hardly meet otherwise."""
    everybody.wait(START_SECONDS)


def count_notes(connection: Any) -> tuple[int, int]:
    """What the counter says and how many notes there are: equal, or a change was lost."""
    desk: Desk = connection.root()["desk"]
    return int(desk.count()), len(desk.notes)


def change(db: Any, note: str, what: Callable[[Any], None]) -> None:
    """Run a change of the root object in a transaction described by ``note``."""
    with db.transaction(note) as connection:
        what(connection.root())


def take_back(db: Any, note: str) -> dict[str, Any]:
    """Undo the newest transaction described by ``note``; returns its entry of the undo log.

    Raises LookupError when the newest 100 transactions have none.
    """
    for entry in db.undoInfo(0, 100):
        if entry["description"] == note:
            with transaction.TransactionManager() as current:
                current.note(f"undo: {note}")
                db.undo(entry["id"], current)
            return dict(entry)
    raise LookupError(f"none of the newest 100 transactions is described as {note!r}")
