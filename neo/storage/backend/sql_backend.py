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
    """Implements :class:`~neo.storage.backend.api.Backend`: each call goes directly to a part."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        tables = self.tables = Tables(engine)
        blobs = self._blobs = BlobTable(engine)
        values = self.values = Values(engine, tables, blobs)
        reads = self.reads = Reads(engine, tables, values)
        prepared = self._prepared = PreparedTables(engine, tables)
        operations = self._operations = OperationTables(engine)
        commits = self.commits = Commits(engine, tables, values, reads, prepared)
        replication = Replication(engine, tables, values, reads, commits)
        maintenance = Maintenance(engine, tables, values, commits)

        self._offer_engine(engine)

        self.get_config = tables.get_config
        self.set_config = tables.set_config
        self.partition_count = tables.partition_count
        self.cells = tables.cells
        self.change_cells = tables.change_cells
        self.set_complete = tables.set_complete
        self.forget_complete = tables.forget_complete

        self.store_data = values.store_data
        self.load_data = values.load_data
        self.release_data = values.release_data

        self._offer_reads(reads, Pages(engine, values))

        self.vote = commits.vote
        self.lock = commits.lock
        self.unlock = commits.unlock
        self.abort = commits.abort
        self.validate = commits.validate
        self.drop_unfinished = commits.drop_unfinished
        self.final_tid = commits.final_tid
        self.locked_transactions = commits.locked_transactions

        self._offer_prepared(commits, prepared)
        self._offer_blobs(blobs)
        self._offer_operations(operations)
        self._offer_regrouping(RegroupedTables(engine, tables))

        self.objects_ascending = replication.objects_ascending
        self.add_transaction = replication.add_transaction
        self.add_object = replication.add_object
        self.delete_transactions = replication.delete_transactions
        self.delete_objects = replication.delete_objects
        self.unlink_undone = replication.unlink_undone
        self.link_undone = replication.link_undone
        self.packed_elsewhere = replication.packed_elsewhere

        self.truncate = maintenance.truncate
        self.pack = maintenance.pack
        self.prune_orphans = maintenance.prune_orphans
        self.drop_partition = maintenance.drop_partition

    def _offer_engine(self, engine: Engine) -> None:
        self.close = engine.close
        self.drain = engine.drain
        self.executed = engine.executed
        self.stored = engine.stored
        self.attempt = engine.attempt
        self.room = engine.room
        self.size = engine.size

    def _offer_reads(self, reads: Reads, pages: Pages) -> None:
        self.load = reads.load
        self.records = reads.records
        self.object_exists = reads.object_exists
        self.last_serial = reads.last_serial
        self.serial_at = reads.serial_at
        self.value_at = reads.value_at
        self.undo_serial = reads.undo_serial
        self.packed_value = reads.packed_value
        self.packed_undo = reads.packed_undo
        self.history = reads.history
        self.oids = reads.oids
        self.distinct_oids = reads.distinct_oids
        self.greatest_oid = reads.greatest_oid
        self.transaction = reads.transaction
        self.tids_descending = reads.tids_descending
        self.tids_ascending = reads.tids_ascending
        self.last_ids = reads.last_ids
        self.tail = reads.tail
        self.revisions = pages.revisions

    def _offer_prepared(self, commits: Commits, prepared: PreparedTables) -> None:
        self.mark_prepared = prepared.mark
        self.prepared = prepared.prepared
        self.prepared_rows = commits.prepared_rows
        self.replace_prepared = commits.replace_prepared
        self.replace_voted = commits.replace_voted
        self.add_voted_object = commits.add_voted_object
        self.decide = prepared.decide
        self.decided = prepared.decided
        self.forget_decided = prepared.forget_decided

    def _offer_blobs(self, blobs: BlobTable) -> None:
        self.has_content = blobs.has_content
        self.contents = blobs.contents
        self.content_groups = blobs.content_groups
        self.references = blobs.references
        self.objects_with = blobs.objects_with
        self.freed_contents = blobs.freed_contents
        self.forget_freed = blobs.forget_freed
        self.content_totals = blobs.content_totals

    def _offer_operations(self, operations: OperationTables) -> None:
        self.journal = operations.journal
        self.begin_operation = operations.begin
        self.write_step = operations.write_step
        self.forget_operation = operations.forget

    def _offer_regrouping(self, regrouped: RegroupedTables) -> None:
        self.regrouped = regrouped.regrouped
        self.begin_regrouping = regrouped.begin_regrouping
        self.regroup = regrouped.regroup
        self.switch_partitions = regrouped.switch_partitions
        self.drop_regrouped = regrouped.drop_regrouped

    def open(self, reset: bool = False) -> None:
        self.engine.open(reset)
        try:
            self.tables.load()
            self.values.load()
            self._blobs.load()
            self.commits.load()
            self._prepared.load()
            self._operations.load()
        except BaseException:
            self.engine.close()
            raise
