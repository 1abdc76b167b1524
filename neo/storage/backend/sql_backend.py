"""A backend on an SQL database, composed of an engine and the parts that use it."""

from __future__ import annotations

from neo.storage.backend.blobs import BlobTable
from neo.storage.backend.commits import Commits
from neo.storage.backend.maintenance import Maintenance
from neo.storage.backend.operations import OperationTables
from neo.storage.backend.pages import Pages
from neo.storage.backend.prepared import PreparedTables
from neo.storage.backend.reads import Reads
from neo.storage.backend.regrouped import RegroupedTables
from neo.storage.backend.replication import Replication
from neo.storage.backend.sql import Engine
from neo.storage.backend.tables import Tables
from neo.storage.backend.values import Values


class SQLBackend:
    """Implements :class:`~neo.storage.backend.api.Backend`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tables = Tables(engine)
        self.blobs = BlobTable(engine)
        self.values = Values(engine, self.tables, self.blobs)
        self.reads = Reads(engine, self.tables, self.values)
        reader = engine.reader
        self.committed = None if reader is None else Reads(reader, self.tables, self.values)
        self.pages = Pages(engine, self.values)
        self.marks = PreparedTables(engine, self.tables)
        self.commits = Commits(engine, self.tables, self.values, self.reads, self.marks)
        self.operations = OperationTables(engine)
        self.regrouping = RegroupedTables(engine, self.tables)
        self.replication = Replication(
            engine, self.tables, self.values, self.reads, self.commits
        )
        self.maintenance = Maintenance(engine, self.tables, self.values, self.commits)

    def open(self, reset: bool = False) -> None:
        self.engine.open(reset)
        try:
            self.tables.load()
            self.values.load()
            self.blobs.load()
            self.commits.load()
            self.marks.load()
            self.operations.load()
        except BaseException:
            self.engine.close()
            raise

    def close(self) -> None:
        self.engine.close()
