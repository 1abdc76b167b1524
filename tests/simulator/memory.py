"""The backend of a simulated storage node in memory: a model of the contract of every backend.

Theory of operation ------------------- A :class:`MemoryDisk` has the durable rows; it survives the
process. An open backend has the rows as the process sees them
(:class:`~tests.simulator.memory_tables.Tables`) and knows which rows changed since the last commit.
``stored`` hands these changes to the disk, one commit at a time. When the simulated sync is over, they
are durable, and the next commit starts for the callers that waited. A crash keeps the durable rows; the
commit whose sync was in progress is kept or lost as a whole.

``lag``: typical seconds between a write and its execution, as in a backend that writes in a thread of
its own; 0: writes are executed at once. Until then, reads that need not wait do not see the write.

A misuse that a database would not notice (data released twice, a vote without a store…) is a Violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from neo.archive.room import Disk
from neo.node.meter import Histogram
from neo.protocol.enums import CellState
from neo.storage.backend.api import (
    LEFT_BACKUP_TID,
    BackendFailure,
    BackendRefused,
    Cell,
    Done,
    Schedule,
    Stored,
    TransactionMeta,
)
from neo.storage.backend.disk_work import DiskWork
from neo.storage.backend.schema import check_version
from neo.storage.backend.sql import COUNTER_BITS, storable, to_int
from neo.storage.backend.tables import VERSION_ROW
from tests.simulator.disk_base import OnFailure
from tests.simulator.memory_committed import CommittedMemory
from tests.simulator.memory_pages import MemoryPages
from tests.simulator.memory_regrouped import MemoryRegrouped
from tests.simulator.memory_tables import (
    DataRow,
    Image,
    ObjectRow,
    Tables,
    TransactionRow,
    apply,
    empty_image,
)
from tests.simulator.world import Event

if TYPE_CHECKING:
    from tests.simulator.memory_disk import MemoryDisk


class MemoryBackend(MemoryRegrouped, MemoryPages):
    """Implementation of :class:`neo.storage.backend.api.Backend`."""

    partitions_max = 1 << 15
    text_max = 1 << 16

    def __init__(
        self,
        disk: MemoryDisk,
        schedule: Schedule,
        on_failure: OnFailure,
        dedup: bool = False,
        lag: float = 0.0,
    ) -> None:
        self.name = disk.name
        # One object is all parts.
        self.engine = self.tables = self.values = self.reads = self.pages = self.commits = self
        self.committed = CommittedMemory(self)
        self.marks = self.blobs = self.operations = self.regrouping = self
        self.replication = self.maintenance = self
        self._disk = disk
        self._schedule = schedule
        self._on_failure = on_failure
        self._dedup = dedup
        self._lag = lag
        self.value_max = 1 << 30
        self._failure: BackendFailure | None = None
        self._broken: BackendFailure | None = None  # a failed sync that was not reported yet
        self._is_open = False
        self._forget()

    def _forget(self) -> None:
        self.memory = Tables(empty_image())
        self._queue: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._execution: Event | None = None
        self._waiting: list[Done] = []
        self._busy = False  # from a commit until its sync is reported
        self._config: dict[str, str] = {}
        self._cells: dict[tuple[int, int], int] = {}
        self._next_data_id: dict[int, int] = {}
        self._modulo = 1

    # -- life -----------------------------------------------------------------------------------

    def open(self, reset: bool = False) -> None:
        assert not self._is_open, "already open"
        self._failure = self._broken = None
        self._forget()
        self._disk.take(self)
        try:
            self._disk.check_usable()
            self._load(empty_image() if reset else self._disk.image)
        except BackendFailure:
            self._disk.release(self)
            raise
        self._is_open = True
        self._disk.image = self.memory.image()
        self.memory.take_changes()

    def _load(self, image: Image) -> None:
        tables = self.memory = Tables(image)
        if tables.config:
            check_version(tables.config.get("version", (None, None))[1], self.name)
        else:
            tables.config.put(VERSION_ROW[0], VERSION_ROW)
        self._config = dict(tables.config.values())
        self._cells = {(partition, nid): tid for partition, nid, tid in tables.pt.values()}
        self._modulo = max(1, self.partition_count())
        for data_id in tables.data_ids():
            partition = data_id >> COUNTER_BITS
            self._next_data_id[partition] = max(self._next_data_id.get(partition, 0), data_id + 1)

    def close(self) -> None:
        if not self._is_open:
            return
        try:
            if self._failure is None:
                self._execute_all()
            self._disk.finish_sync()
            if self._failure is None:
                self._make_durable()
        finally:
            self.abandon()
            self._disk.release(self)

    def _make_durable(self) -> None:
        if self._broken is not None:
            raise self._broken
        changes = self.memory.take_changes()
        if changes:
            self._disk.check_usable()
            apply(self._disk.image, changes)
        for done in self._waiting:
            self._schedule(done)

    def abandon(self) -> None:
        """Forget all that the process had in memory."""
        self._is_open = False
        if self._execution is not None:
            self._execution.cancel()
        self._forget()

    # -- primitives -----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._is_open:
            raise BackendFailure(f"{self.name}: the database is not open")
        if self._disk.read_fails():
            self._failure = self._disk.failure("a read failed")
            raise self._failure

    def _write(self, operation: Callable[..., object], *args: Any) -> None:
        """Execute a write now or, with ``lag``, later; always in the order of the calls."""
        self._check()
        if self._disk.write_fails():
            self._failure = self._disk.failure("no space is left")
            raise self._failure
        if self._lag:
            self._put(operation, *args)
        else:
            operation(*args)

    def _put(self, operation: Callable[..., object], *args: Any) -> None:
        self._queue.append((operation, args))
        if self._execution is None:
            world = self._disk.world
            self._execution = world.call_later(
                world.delay(self._lag), self._execute_some, f"{self.name} executes"
            )

    def _execute_some(self) -> None:
        """Execute pending writes, as the thread of a real backend does."""
        self._execution = None
        if self._failure is not None:
            return
        try:
            self._execute_all()
        except BackendFailure as failure:
            self._schedule(self._on_failure, failure)

    def _execute_all(self) -> None:
        while self._queue:
            operation, args = self._queue.popleft()
            operation(*args)

    # -- durability -----------------------------------------------------------------------------

    def disk(self) -> Disk | None:
        return None

    def work(self) -> DiskWork:
        return DiskWork(Histogram(), None, 0)

    def attempt(self) -> AbstractContextManager[None]:
        """Do nothing: these tables refuse no row that the product writes."""
        return nullcontext()

    def drain(self) -> None:
        self._check()
        self._execute_all()

    def executed(self, done: Done) -> None:
        self._check()
        if self._lag:
            self._put(self._schedule, done)
        else:
            self._schedule(done)

    def written(self, done: Done) -> None:
        self._check()
        if self._lag:
            self._put(self._write_out, done)
        else:
            self._write_out(done)

    def _write_out(self, done: Done) -> None:
        if self._disk.full:
            self._failure = self._disk.failure("no space is left")
            raise self._failure
        self.committed.write_out()
        self._schedule(done)

    def stored(self, done: Done, alone: bool = False) -> None:
        self._check()
        if self._lag:
            self._put(self._store, done)
        else:
            self._store(done)

    def _store(self, done: Done) -> None:
        self._waiting.append(done)
        if not self._busy:
            self._commit()

    def _commit(self) -> None:
        """Hand all executed writes to the disk, for all callers that wait (group commit)."""
        covered, self._waiting = self._waiting, []
        changes = self.memory.take_changes()
        self.committed.write_out()
        if not changes:
            for done in covered:
                self._schedule(done)
            return
        if self._disk.full:
            self._failure = self._disk.failure("no space is left")
            raise self._failure
        self._busy = True
        self._disk.sync(changes, lambda: self._schedule(self._synced, covered), self._sync_broke)

    def _synced(self, covered: list[Done]) -> None:
        """Call back: these writes are durable. Runs on the loop's thread."""
        if self._failure is not None:
            return
        if self._is_open:
            self._busy = False
            if self._waiting:
                self._go_on()
        for done in covered:
            done()

    def _go_on(self) -> None:
        try:
            self._commit()
        except BackendFailure as failure:
            self._on_failure(failure)

    def _sync_broke(self, failure: BackendFailure) -> None:
        self._broken = failure
        self._schedule(self._sync_failed, failure)

    def _sync_failed(self, failure: BackendFailure) -> None:
        if self._is_open and self._failure is None:
            self._failure = failure
            self._on_failure(failure)

    # -- configuration and partition table ------------------------------------------------------

    def get_config(self, name: str) -> str | None:
        return self._config.get(name)

    def set_config(self, name: str, value: str | None) -> None:
        if value is None:
            if self._config.pop(name, None) is not None:
                self._write(self.memory.config.remove, name)
        elif self._config.get(name) != value:
            self._config[name] = value
            self._write(self.memory.config.put, name, (name, value))

    def partition_count(self) -> int:
        return 1 + max((partition for partition, _ in self._cells), default=-1)

    def cells(self) -> list[Cell]:
        return [Cell(*cell, tid) for cell, tid in sorted(self._cells.items())]

    def change_cells(
        self,
        ptid: int,
        replicas: int,
        changes: Iterable[tuple[int, int, CellState]],
        own_nid: int,
        replace: bool,
    ) -> None:
        wanted: dict[tuple[int, int], int | None] = dict.fromkeys(self._cells) if replace else {}
        for partition, nid, state in changes:
            if not 0 <= partition < self.partitions_max:
                raise BackendFailure(
                    f"{self.name}: partition {partition} cannot be kept: this backend numbers"
                    f" {self.partitions_max} partitions. Use another backend or fewer partitions."
                )
            cell = partition, nid
            if state is CellState.DISCARDED:
                wanted[cell] = None
            elif state is not CellState.OUT_OF_DATE:
                wanted[cell] = -state.value
            else:
                wanted[cell] = self._tid_when_outdated(partition, nid) if nid == own_nid else 0
        for cell, tid in wanted.items():
            if tid is None:
                if self._cells.pop(cell, None) is not None:
                    self._write(self.memory.pt.remove, cell)
            else:
                self._set_cell(cell, tid)
        self._modulo = max(1, self.partition_count())
        self.set_config("ptid", str(ptid))
        self.set_config("replicas", str(replicas))

    def _tid_when_outdated(self, partition: int, nid: int) -> int:
        tid = self._cells.get((partition, nid))
        if tid is None or tid == -CellState.CORRUPTED.value:
            return 0
        if tid >= 0:
            return tid
        backup_tid = self._config.get("backup_tid") or self._config.get(LEFT_BACKUP_TID)
        if backup_tid is not None:
            return int(backup_tid, 16)
        self.drain()
        return max(self._greatest_tids(partition), default=0)

    def _set_cell(self, cell: tuple[int, int], tid: int) -> None:
        if self._cells.get(cell) != tid:
            self._cells[cell] = tid
            self._write(self.memory.pt.put, cell, (*cell, tid))

    # -- two-phase commit -----------------------------------------------------------------------

    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int:
        partition = storable(oid, "oid") % self._modulo
        if self._dedup:
            self.drain()
            same = self.memory.same.get((checksum, compression))
            if same is not None:
                self.memory.hold(same)
                return same
        if len(data) > self.value_max:
            raise BackendRefused(
                f"the object has {len(data)} bytes; {self.name} keeps at most {self.value_max} in"
                " one record"
            )
        data_id = self._next_data_id.get(partition, partition << COUNTER_BITS)
        row = DataRow(data_id, checksum, compression, bytes(data))
        self._write(self.memory.add_data, row)
        self._next_data_id[partition] = data_id + 1
        self.memory.hold(data_id)
        return data_id

    def release_data(self, data_ids: Iterable[int]) -> None:
        self._write(self.memory.release, list(data_ids))

    def vote(self, ttid: bytes, meta: TransactionMeta | None, stored: Iterable[Stored]) -> None:
        t = storable(ttid, "ttid")
        modulo = self._modulo
        rows = []
        for oid, data_id, value_serial in stored:
            o = storable(oid, "oid")
            value_tid = None if value_serial is None else to_int(value_serial)
            rows.append(ObjectRow(o % modulo, o, t, data_id, value_tid))
        if meta is not None:
            if max(len(meta.user), len(meta.description), len(meta.extension)) > self.text_max:
                raise BackendRefused(
                    f"user, description or extension has more than {self.text_max} bytes, which"
                    f" {self.name} cannot keep"
                )
            self._write(
                self.memory.vote_transaction,
                TransactionRow(
                    t % modulo,
                    None,
                    0,
                    b"".join(meta.oids),
                    meta.user,
                    meta.description,
                    meta.extension,
                    t,
                ),
            )
        self._write(self.memory.vote, rows)

    def lock(self, ttid: bytes, tid: bytes) -> None:
        self._write(self.memory.lock, to_int(ttid), storable(tid, "tid"))

    def unlock(self, ttid: bytes, tid: bytes) -> None:
        final = storable(tid, "tid")
        self._write(self.memory.unlock, to_int(ttid), final, final % self._modulo, False)

    def validate(self, ttid: bytes, tid: bytes) -> None:
        final = storable(tid, "tid")
        self._write(self.memory.unlock, to_int(ttid), final, final % self._modulo, True)

    def abort(self, ttid: bytes) -> None:
        self._write(self.memory.abort, to_int(ttid))

    def drop_unfinished(self, keep: Collection[bytes] = ()) -> None:
        self._write(self.memory.drop_unfinished, set(map(to_int, keep)))
