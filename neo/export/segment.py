"""Write revisions and transactions to files of the tables ``changes`` and ``transactions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from neo.client.history.scan import Revision
from neo.codec import Record, decode
from neo.export.folder import LINKS, finished
from neo.export.plan import Plan
from neo.export.tables import writing
from neo.protocol.packets import AnswerTransactionInformation
from neo.spark.rows import Builder
from neo.spark.tables import columns_of

Report = Callable[[int, int], None]
"""Called with numbers of rows and of bytes that were read."""


def write_changes(
    plan: Plan,
    folder: Path,
    group: int,
    pages: Iterable[tuple[int, list[Revision]]],
    report: Report,
) -> None:
    """Write a file of changes, and one with the references of *all* these revisions.

    ``pages``: sorted by (partition, oid, tid), as both files are. The table of references selects from
    the second file.
    """
    once = _Once()
    rows = Builder(columns_of("changes", plan.columns_of("changes")), read=once.first)
    links = Builder(columns_of("references"), read=once.again)
    name = plan.file(group)
    with (
        finished(folder / "changes" / name) as changes_path,
        finished(folder / LINKS / name) as links_path,
        writing(changes_path, rows.schema) as changes_file,
        writing(links_path, links.schema) as links_file,
    ):
        for partition, page in pages:
            for batch in rows.changes(partition, page):
                changes_file.add(batch)
            if not plan.since:
                for batch in links.references(partition, page):
                    links_file.add(batch)
            once.forget()
            report(len(page), sum(revision.size for revision in page))


class _Once:
    """Decodes each record of a page once for two tables.

    The second needs no states, which may be large.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Record] = {}

    def first(self, data: bytes) -> Record:
        record = decode(data)
        self._known[data] = replace(record, state=None)
        return record

    def again(self, data: bytes) -> Record:
        """Return the record without its state, decoding it if ``first`` was not called."""
        return self._known.get(data) or self.first(data)

    def forget(self) -> None:
        self._known.clear()


def write_transactions(
    path: Path, pages: Iterable[tuple[int, list[AnswerTransactionInformation]]]
) -> None:
    """Write a file of transactions. ``pages``: (partition, transactions)."""
    rows = Builder(columns_of("transactions"))
    with finished(path) as temporary, writing(temporary, rows.schema) as file:
        for partition, page in pages:
            for batch in rows.transactions(partition, page):
                file.add(batch)
