"""Merge the tables of the last export with new revisions, for tables that depend on all transactions.

All files are sorted by (partition, object, tid), so that one pass merges them, whatever their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neo.export.folder import finished
from neo.export.tables import reading, writing
from neo.spark.tables import columns_of, schema_of

#: Sort keys of tables of revisions, and of references.
REVISION_KEY = ("partition", "oid", "tid")
REFERENCE_KEY = ("partition", "src", "src_tid")

Key = tuple[int, ...]


def _key_at(table: pa.Table, names: tuple[str, ...], row: int) -> Key:
    return tuple(table[name][row].as_py() for name in names)


def _rows_up_to(table: pa.Table, names: tuple[str, ...], last: Key) -> int:
    """Return the number of rows of a sorted table that are not greater than a key."""
    beyond = np.zeros(table.num_rows, bool)
    equal = np.ones(table.num_rows, bool)
    for name, value in zip(names, last, strict=True):
        column = table[name].to_numpy()
        beyond |= equal & (column > value)
        equal &= column == value
    return int(table.num_rows - np.count_nonzero(beyond))


def merged(inputs: Iterable[Iterator[pa.Table]], names: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield sorted tables from several sorted inputs; hold one piece of each."""
    heads: list[tuple[pa.Table, Iterator[pa.Table]]] = []
    for source in inputs:
        heads += _next_head(source)
    while heads:
        # Rows that are not read yet are greater than this key.
        last = min(_key_at(table, names, table.num_rows - 1) for table, _ in heads)
        pieces, left = [], []
        for table, source in heads:
            count = _rows_up_to(table, names, last)
            pieces.append(table.slice(0, count))
            rest = table.slice(count)
            left += [(rest, source)] if rest.num_rows else _next_head(source)
        heads = left
        piece = pa.concat_tables(pieces)
        if sum(1 for part in pieces if part.num_rows) > 1:
            piece = piece.sort_by([(name, "ascending") for name in names])
        yield piece


def _next_head(source: Iterator[pa.Table]) -> list[tuple[pa.Table, Iterator[pa.Table]]]:
    for table in source:
        if table.num_rows:
            return [(table, source)]
    return []


# -- history and objects -------------------------------------------------------------------------


def with_ends(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Add ``end_tid``, ``end_timestamp`` and ``seq`` to sorted revisions, as neo.spark.reading does."""
    waiting: pa.Table | None = None  # the last row so far, which the next one may end
    seq = 1  # its number
    for table in tables:
        if waiting is not None:
            table = pa.concat_tables([waiting, table])
        oids = table["oid"].to_numpy()
        begins = np.ones(len(oids), bool)
        begins[1:] = oids[1:] != oids[:-1]
        places = np.arange(len(oids))
        numbers = places - np.maximum.accumulate(np.where(begins, places, 0)) + 1
        # The first object continues from the last table.
        numbers[: np.argmax(begins[1:]) + 1 if begins[1:].any() else len(oids)] += seq - 1
        count = len(oids) - 1
        yield _ended(table, count, begins[1:], numbers[:count])
        waiting, seq = table.slice(count), int(numbers[count])
    if waiting is not None:
        yield _ended(waiting, 1, np.ones(1, bool), np.array([seq]))


def _ended(table: pa.Table, count: int, last: Any, numbers: Any) -> pa.Table:
    """Return the first ``count`` rows with their ends. ``last``: which are the last of their object."""
    rows = table.slice(0, count)
    follow = table.slice(1, count)
    if follow.num_rows < count:
        follow = rows
    mask = pa.array(last)
    for name, source in (("end_tid", "tid"), ("end_timestamp", "timestamp")):
        column = follow[source]
        nulls = pa.nulls(count, column.type)
        rows = rows.append_column(name, pc.if_else(mask, nulls, column))
    return rows.append_column("seq", pa.array(numbers, pa.int32()))


class Files(NamedTuple):
    """The files of one group of partitions."""

    history: Path
    objects: Path
    references: Path


def write_history(
    changes: Path, before: Path | None, files: Files, names: Callable[[str], Sequence[str]]
) -> None:
    """Write the tables of history and objects.

    ``before``: the last history; ``names``: columns of a table.
    """
    inputs = [reading(path, names("changes")) for path in (before, changes) if path is not None]
    history_schema = schema_of(columns_of("history", names("history")))
    objects_schema = schema_of(columns_of("objects", names("objects")))
    with ExitStack() as stack:
        # Rename the history last: its name means that both files are complete.
        second = stack.enter_context(finished(files.history))
        first = stack.enter_context(finished(files.objects))
        history = stack.enter_context(writing(second, history_schema))
        objects = stack.enter_context(writing(first, objects_schema))
        for rows in with_ends(merged(inputs, REVISION_KEY)):
            history.add(rows)
            exists = pc.and_(pc.is_null(rows["end_tid"]), pc.invert(rows["deleted"]))
            objects.add(rows.filter(exists))


# -- references ----------------------------------------------------------------------------------


def write_references(links: Path, before: Path | None, files: Files) -> None:
    """Write references of existing objects, from the last references and those of new revisions."""
    schema = schema_of(columns_of("references"))
    inputs = [reading(path, schema.names) for path in (before, links) if path is not None]
    current = reading(files.objects, REVISION_KEY)
    with finished(files.references) as temporary, writing(temporary, schema) as file:
        for rows in _of_current(merged(inputs, REFERENCE_KEY), current):
            file.add(rows)


def _of_current(references: Iterator[pa.Table], objects: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the references whose source is an object of the snapshot, at its serial. Both are sorted."""
    keys = next(objects, None)
    for rows in references:
        while rows.num_rows and keys is not None:
            last = _key_at(keys, REVISION_KEY, keys.num_rows - 1)
            # All keys of an object are in one piece.
            count = _rows_up_to(rows, REFERENCE_KEY[:2], last[:2])
            yield _matching(rows.slice(0, count), keys)
            rows = rows.slice(count)
            if rows.num_rows:
                keys = next(objects, None)


def _matching(rows: pa.Table, keys: pa.Table) -> pa.Table:
    places = pc.index_in(rows["src"], value_set=keys["oid"].combine_chunks())
    serials = pc.take(keys["tid"], places)
    return rows.filter(pc.fill_null(pc.equal(serials, rows["src_tid"]), False))
