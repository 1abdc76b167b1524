"""Write and read Parquet files in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: Bounds of a row group, which a writer collects and a reader reads as a whole.
GROUP_ROWS = 1 << 16
GROUP_BYTES = 16 << 20


class Writer:
    """Collects rows into row groups."""

    def __init__(self, file: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows; select the columns of the file."""
        if not rows.num_rows:
            return
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        self._waiting.append(rows.select(self._schema.names))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._file.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    """Open a new file, which is complete when the block ends without an error."""
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        writer = Writer(file, schema)
        yield writer
        writer.flush()


def reading(path: Path, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the row groups of a file, with these columns."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=list(names)).select(names)
