"""Revisions and transactions → files of the tables ``changes`` and ``transactions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from neo.client.scan import Revision
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
    """``pages``: by (partition, oid, tid). Beside the file is another one with the references of *all*
    these revisions, sorted the same way, for the table of references to choose from."""
    once = _Once()
    rows = Builder(columns_of("changes", plan.columns_of("changes")), read=once)
    links = Builder(columns_of("references"), read=once)
    name = plan.file(group)
    with (
        finished(folder / "changes" / name) as changes_path,
        finished(folder / LINKS / name) as links_path,
        writing(changes_path, rows.schema) as changes_file,
        writing(links_path, links.schema) as links_file,
    ):
        for partition, page in pages:
            changes_file.add(rows.changes(partition, page))
            if not plan.since:
                links_file.add(links.references(partition, page))
            once.forget()
            report(len(page), sum(revision.size for revision in page))


class _Once:
    """Decodes each record of a page once, for two tables."""

    def __init__(self) -> None:
        self._known: dict[bytes, Record] = {}

    def __call__(self, data: bytes) -> Record:
        record = self._known.get(data)
        if record is None:
            record = self._known[data] = decode(data)
        return record

    def forget(self) -> None:
        self._known.clear()


def write_transactions(
    path: Path, pages: Iterable[tuple[int, list[AnswerTransactionInformation]]]
) -> None:
    """``pages``: (partition, transactions)."""
    rows = Builder(columns_of("transactions"))
    with finished(path) as temporary, writing(temporary, rows.schema) as file:
        for partition, page in pages:
            file.add(rows.transactions(partition, page))
