"""The scenes of the demonstration, in the order in which they are shown.

Each takes an open database and a Show, and raises PromiseBroken if the database returns wrong data, so
that no error looks like a success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from ZODB.utils import readable_tid_repr, z64

from examples.demo import datafs, editing, queries, stdlib
from examples.demo.model import Library
from examples.demo.show import Show, readable
from neo.migrate import copy_from
from neo.migrate.blobs import Blobs, Policy
from neo.protocol.ids import ZERO_TID
from neo.protocol.words import counted

ROWS = 8
NAME = "open"
WORDS = "temporary file"
CHAIN = ("json", "ctypes")
MISTAKE = "demo: a hasty headline"
MISTAKEN = "Everything is perfect, reviews are closed."

ReviewerPool = Callable[[Sequence[str], list[str]], list[editing.Reviewed]]


class PromiseBroken(Exception):
    """The database lost or changed data, or kept data that it should not; the message says which."""


class WrongDatabase(Exception):
    """The database has data that the demonstration must not touch."""


def promise(kept: bool, otherwise: str) -> None:
    """Raise PromiseBroken with the text ``otherwise`` unless ``kept``."""
    if not kept:
        raise PromiseBroken(otherwise)


def load_standard_library(show: Show, db: Any, folder: Path, limit: int | None) -> list[str]:
    """Load modules (the first ``limit`` by name); return the names of all in the database."""
    show.scene("Loading Python's own standard library")
    files = stdlib.find_modules(folder)
    if limit is not None:
        files = dict(list(files.items())[:limit])
    show.say(f"{len(files):,} modules beneath {folder}")
    with (
        show.timed("read, understood and committed"),
        show.progress(len(files), "modules") as advance,
    ):
        new = stdlib.load_library(db, files, lambda done, total, name: advance(done, name))
    if new < len(files):
        show.say(f"{len(files) - new:,} of them were there already")
    with db.transaction() as connection:
        return list(connection.root()["library"].modules)


def ask_library(show: Show, db: Any) -> None:
    """Run queries that use the classes of the application."""
    show.scene("Asking")
    with db.transaction() as connection:
        connection.cacheMinimize()
        library = connection.root()["library"]
        for title, columns, ask in library_questions():
            connection.getTransferCounts(clear=True)
            start = perf_counter()
            rows = ask(library)
            seconds = perf_counter() - start
            loads, _ = connection.getTransferCounts(clear=True)
            show.table(title, columns, rows)
            show.say(f"({readable(seconds)}, {loads:,} objects loaded)", "dim")


Question = tuple[str, tuple[str, ...], Callable[[Library], list[tuple[Any, ...]]]]


def library_questions() -> Iterator[Question]:
    """Return (title, columns, query) of each question."""
    yield "How much is there?", ("what", "how many"), lambda lib: [*queries.totals(lib)]
    yield (
        "Which modules define the most classes?",
        ("module", "classes", "what it says of itself"),
        lambda lib: [*queries.richest_in_classes(lib, ROWS)],
    )
    yield (
        "Which functions are the longest?",
        ("module", "function", "lines"),
        lambda lib: [
            (d.module, d.qualname, d.length) for d in queries.longest_functions(lib, ROWS)
        ],
    )
    yield (
        "Which modules do the most others import?",
        ("module", "imported by"),
        lambda lib: [*queries.most_imported(lib, ROWS)],
    )
    yield (
        f"Which modules define {NAME!r}?",
        ("module", "definition", "line", "what it says of itself"),
        lambda lib: [
            (d.module, d.qualname, d.line, d.summary)
            for d in queries.definitions_of(lib, NAME)[: 2 * ROWS]
        ],
    )
    yield (
        f"What has to do with a {WORDS!r}?",
        ("module", "definition", "what it says of itself"),
        lambda lib: [
            (d.module, d.qualname, d.summary) for d in queries.described_as(lib, WORDS)[:ROWS]
        ],
    )
    yield (
        "Which modules have the most marks of unfinished work?",
        ("module", "marks", "the first"),
        lambda lib: [
            (m.name, len(m.marks), f"line {m.marks[0][0]}: {m.marks[0][1]}")
            for m in queries.most_marks(lib, ROWS)
            if m.marks
        ],
    )
    yield (
        f"How does importing {CHAIN[0]!r} come to need {CHAIN[1]!r}?",
        ("the shortest chain of imports",),
        lambda lib: [(" > ".join(queries.import_chain(lib, *CHAIN)) or "it does not",)],
    )


def copy_datafs(show: Show, storage: Any, path: Path, source: Any) -> None:
    """Copy the transactions of a Data.fs, with their ids, unless the database has them.

    Raise WrongDatabase if the database has other data.
    """
    show.scene(f"Copying {path}")
    if storage.lastTransaction() > z64:
        if not datafs.has_copy(storage, source):
            raise WrongDatabase(
                f"the database is not empty and not a whole copy of {path}: give another --folder"
            )
        show.say("its transactions are there already")
        return
    total = sum(1 for _ in source.iterator())
    with show.timed("copied"), show.progress(total, "transactions") as advance:
        # The queries need no contents. Where they lie is not known.
        blobs = Blobs(Policy.OMIT)
        with closing(copy_from(ZERO_TID, source, storage, blobs)) as steps:
            for done, _ in enumerate(steps, 1):
                advance(done, "")
    if blobs.lost:
        what = counted(blobs.lost, "blob")
        show.say(f"the contents of {what} were left out; neomigrate copies them, too")


def ask_datafs(show: Show, storage: Any) -> list[str]:
    """Run queries that need no class of the application; return the most numerous classes."""
    show.scene("Asking")
    with show.timed("every object looked at"):
        found = datafs.inventory(storage, ROWS)
    show.say(f"{found.objects:,} objects, {found.size:,} bytes")
    show.table("What is in it?", ("class", "objects", "bytes"), found.classes)
    show.table(
        "What are the biggest objects?",
        ("class", "oid", "bytes"),
        [(name, f"0x{int.from_bytes(oid, 'big'):x}", size) for size, oid, name in found.biggest],
    )
    with show.timed("every transaction looked at"):
        past = datafs.activity(storage, ROWS)
    show.say(f"{past.transactions:,} transactions")
    show.table("On which days was it changed most?", ("day (UTC)", "transactions"), past.days)
    show.table("Who changed it?", ("user", "transactions"), past.users)
    return [name for name, _, _ in found.classes]


def edit_together(
    show: Show, db: Any, reviewers: Sequence[str], topics: list[str], pool: ReviewerPool
) -> bytes:
    """Run concurrent reviewers; return the tid before the first of their notes."""
    show.scene(f"{len(reviewers)} reviewers write at the same time")
    start = editing.open_desk(db)
    before: bytes = db.lastTransaction()
    wanted = start + len(reviewers) * len(topics)
    show.say("Each process writes a note about the same topics and adds 1 to one counter.")
    with show.timed("all done"):
        work = pool(reviewers, topics)
    show.table(
        "What became of their transactions",
        ("reviewer", "notes", "merged with others'", "done again"),
        work,
    )
    with db.transaction() as connection:
        count, notes = editing.count_notes(connection)
    promise(
        count == notes == wanted,
        f"the counter says {count} and there are {notes} notes, but {wanted} were acknowledged",
    )
    show.say(f"The counter says {count:,} and there are {notes:,} notes: none was lost.")
    return before


def undo_a_mistake(show: Show, db: Any) -> None:
    """Change one object, commit, and undo that transaction."""
    show.scene("A mistake, and its undo")
    before = headline(db)
    show.say(f"before the mistake:  {before}")
    with db.transaction(MISTAKE) as connection:
        connection.root()["desk"].headline.text = MISTAKEN
    show.say(f"after the mistake:   {headline(db)}", "red")
    undone = editing.take_back(db, MISTAKE)
    show.say(f"after its undo:      {headline(db)}", "green")
    show.say(f"undone: {undone['description']!r}", "dim")
    promise(headline(db) == before, "the undo did not bring the headline back")


def headline(db: Any) -> str:
    """Return the headline in a new transaction."""
    with db.transaction() as connection:
        return str(connection.root()["desk"].headline.text)


def look_back(show: Show, db: Any, before: bytes) -> None:
    """Open the database as it was before the reviews."""
    show.scene("The database as it was")
    with opened(db, at=before) as past, opened(db) as present:
        then, now = editing.count_notes(past)[0], editing.count_notes(present)[0]
    show.say(f"at {readable_tid_repr(before)}: {then:,} notes")
    show.say(f"now: {now:,} notes")
    promise(then < now, "the past shows changes of the present")


@contextmanager
def opened(db: Any, at: bytes | None = None) -> Iterator[Any]:
    """Open a connection to the present, or to the state after the transaction ``at``."""
    connection = db.open(at=at)
    try:
        yield connection
    finally:
        connection.transaction_manager.abort()
        connection.close()
