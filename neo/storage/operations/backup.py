"""The steps of ``neoctl backup`` on a storage node (specification 27.50 to 27.56, 28.1).

Theory of operation
-------------------
All nodes look for the newest copy in the folder, and tell what they find; so each knows whether all see
the same, and which copy the new one follows. Then each copies its partitions up to one tid, while clients
write: rows up to a tid that all nodes have do not change, since the operation holds the locks of packs,
truncations and changes of the partition table. At the end each writes the same manifest: nodes may share
the folder, or each may have one of its own, whose files are brought together later. """

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from neo.archive import manifest as manifests
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveDamaged, ArchiveError, Header, contents_of
from neo.archive.manifest import Manifest, PartitionFile
from neo.archive.writer import PartitionWriter
from neo.node.task import Future
from neo.operations.model import Operation
from neo.protocol.blobs import Content
from neo.protocol.ids import ZERO_OID, ZERO_TID, add64, format_nid
from neo.storage.backend.api import Order, PageRequest
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.operations.local_locks import ARCHIVE
from neo.storage.operations.steps import Context, Report, StepFailed, StepFunction
from neo.storage.operations.worker import Worker

LOOK, COPY, MANIFEST = "look at the folder", "copy", "write the manifest"
#: Transactions or names of revisions, and bytes of objects, that are read together while no client is
#: active.
LENGTH = 500
PAGE_BYTES = 1 << 20
#: Period in which a node looks whether it operates again.
WAIT_SECONDS = 0.5


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What a node finds in its folder: the newest complete copy, by tid and digest; None if there is
    none."""

    tid: bytes | None
    digest: bytes | None


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    full: bool
    tid: str
    pack: str
    partitions: int
    readers: list[int]


class CopyOrder(NamedTuple):
    """The arguments of the operation. ``pack``: of the database, ZERO_TID if it was never packed.
    ``readers``: the node that copies each partition."""

    path: str
    full: bool
    tid: bytes
    pack: bytes
    partitions: int
    readers: list[int]


def order_of(operation: Operation) -> CopyOrder:
    """Raise StepFailed if the master asks for what this release does not know."""
    try:
        a = msgspec.convert(operation.arguments, _Arguments)
        tids = bytes.fromhex(a.tid), bytes.fromhex(a.pack)
    except (msgspec.ValidationError, ValueError) as e:
        raise StepFailed(
            f"the order cannot be read ({e}): install the same release everywhere"
        ) from None
    return CopyOrder(a.path, a.full, *tids, a.partitions, a.readers)


class Look:
    """Tells which copy is the newest. Raises StepFailed if the folder cannot be used."""

    local = ""

    def __init__(self, cluster: Cluster, worker: Worker) -> None:
        self._cluster = cluster
        self._worker = worker

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        order = order_of(operation)
        return await self._worker.call(partial(self._find_base, order))

    def _find_base(self, order: CopyOrder) -> bytes:
        folder = ArchiveFolder(order.path, self._worker.files)
        try:
            newest = folder.newest(self._cluster.name)
            if newest is None or order.full:
                there = folder.manifest(order.tid)
                if there is not None:
                    raise StepFailed(
                        f"{folder.copy(order.tid)} is a copy of this moment: remove it, or wait for the"
                        " next transaction"
                    )
                return msgspec.msgpack.encode(Base(None, None))
            folder.chain(newest)
        except ArchiveError as e:
            raise StepFailed(str(e)) from None
        if newest.partitions != order.partitions:
            raise StepFailed(
                f"{folder.copy(newest.tid)} has {newest.partitions} partitions, the cluster"
                f" {order.partitions}: make a full copy"
            )
        if newest.tid > order.tid:
            raise StepFailed(
                f"{folder.copy(newest.tid)} is later than the last transaction: the database was"
                " truncated; make a full copy in another folder"
            )
        return msgspec.msgpack.encode(Base(newest.tid, newest.digest))

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """Nothing was changed."""


def base_of(context: Context) -> Base:
    """Return the copy that all nodes found. Raise StepFailed if they found different ones."""
    told = {nid: data for (step, nid), data in context.items() if step == 0}
    if len(set(told.values())) != 1:
        bases = {nid: msgspec.msgpack.decode(data, type=Base) for nid, data in told.items()}
        found = ", ".join(
            f"{format_nid(nid)} {'none' if base.tid is None else manifests.show(base.tid)}"
            for nid, base in sorted(bases.items())
        )
        raise StepFailed(
            f"the nodes find different copies in their folders ({found}): give all of them the same"
            " folder, or make a full copy"
        )
    return msgspec.msgpack.decode(next(iter(told.values())), type=Base)


class Copy:
    """Copies the partitions of this node. Its undo removes the copy, unless it was there before."""

    local = ARCHIVE

    def __init__(
        self,
        database: Database,
        cluster: Cluster,
        cells: Cells,
        locks: Locks,
        background: Background,
        contents: Contents,
        worker: Worker,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._cells = cells
        self._locks = locks
        self._background = background
        self._contents = contents
        self._worker = worker

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return _was_there(operation, told)

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        order, base = order_of(operation), base_of(context)
        if base.tid == order.tid:
            return b""  # nothing has changed since
        mine = [p for p, nid in enumerate(order.readers) if nid == self._cluster.nid]
        await self._ready(order, mine, report)
        folder = ArchiveFolder(order.path, self._worker.files)
        chain = await self._worker.call(partial(_chain, folder, base))
        await self._worker.call(partial(folder.begin, order.tid))
        files = []
        for number, partition in enumerate(mine):
            report(number / len(mine), f"partition {partition}")
            try:
                files.append(await self._partition(order, folder, chain, partition))
            except ArchiveError as e:
                raise StepFailed(str(e)) from None
        return msgspec.msgpack.encode(files)

    async def _ready(self, order: CopyOrder, mine: list[int], report: Report) -> None:
        """Wait until this node operates, has its cells complete again after a restart, and has all rows
        up to the tid in its tables. Raise StepFailed if a cell was moved away: it does not come back."""
        while not self._cluster.operational or not set(mine).issubset(self._cells.readable()):
            if self._cluster.operational:
                for partition in mine:
                    if self._cells.state(partition) is None:
                        raise StepFailed(f"partition {partition} was moved to another node: try again")
            report(0.0, "waits until its partitions can be read: neoctl status")
            await self._background.sleep(WAIT_SECONDS)
        unlocked: Future[None] = Future()
        self._locks.when_unlocked(lambda: unlocked.resolve(None), order.tid)
        await unlocked
        await self._database.executed()

    async def _partition(
        self, order: CopyOrder, folder: ArchiveFolder, chain: list[Manifest], partition: int
    ) -> PartitionFile:
        if not self._cells.is_readable(partition):
            raise StepFailed(f"partition {partition} cannot be read here any more: try again")
        base = chain[-1] if chain else None
        last = None if base is None else base.files[partition].last
        if base is not None and last is not None:
            found = self._database.backend.reads.transaction(last.tid)
            manifests.check_history(partition, last, found)
        after = None if base is None else base.tid
        header = Header(self._cluster.name, partition, order.partitions, after, order.tid)
        before = [copy.tid for copy in chain]
        name = format_nid(self._cluster.nid)
        writer = await self._worker.call(partial(PartitionWriter, folder, header, before, name))
        try:
            await self._transactions(writer, header)
            await self._objects(writer, header)
            if header.after is not None and order.pack > header.after:
                await self._kept(writer, header, header.after)
            return await self._worker.call(partial(writer.finish, last))
        except BaseException:
            self._worker.call(writer.abort)
            raise

    async def _transactions(self, writer: PartitionWriter, header: Header) -> None:
        backend, pace = self._database.backend, self._background
        first = add64(header.after or ZERO_TID, 1)
        while True:
            began, length = pace.monotonic(), pace.rows(LENGTH)
            tids = backend.reads.tids_ascending(first, header.tid, length, header.partition)
            rows = [row for tid in tids if (row := backend.reads.transaction(tid)) is not None]
            await self._worker.call(partial(writer.transactions, rows))
            if len(tids) < length:
                return
            first = add64(tids[-1], 1)
            await pace.give_way(began)

    async def _objects(self, writer: PartitionWriter, header: Header) -> None:
        backend, pace = self._database.backend, self._background
        first, after = add64(header.after or ZERO_TID, 1), None
        while True:
            began = pace.monotonic()
            size = min(PAGE_BYTES, 64 << 10) if pace.busy else PAGE_BYTES
            page = PageRequest(header.partition, Order.BY_TID, first, header.tid, after, size, True)
            rows, after = backend.pages.revisions(page)
            sources = {content: self._source(content) for content in contents_of(rows)}
            await self._worker.call(partial(writer.objects, rows, sources))
            if after is None:
                return
            await pace.give_way(began)

    async def _kept(self, writer: PartitionWriter, header: Header, after: bytes) -> None:
        """Name the revisions of the copies before that are still here: a pack may have removed others
        together with their deletions (specification 28.21)."""
        read, pace = self._database.backend.replication.objects_ascending, self._background
        first = ZERO_TID, ZERO_OID
        while True:
            began, length = pace.monotonic(), pace.rows(LENGTH)
            rows = read(header.partition, *first, after, length)
            await self._worker.call(partial(writer.kept, rows))
            if len(rows) < length:
                return
            first = rows[-1][0], add64(rows[-1][1], 1)
            await pace.give_way(began)

    def _source(self, content: Content) -> Path | None:
        contents = self._contents
        return contents.disk.file(content.checksum) if contents.has(content.checksum) else None

    async def undo(self, operation: Operation, undo: bytes) -> None:
        order = order_of(operation)
        if not undo:
            folder = ArchiveFolder(order.path, self._worker.files)
            await self._worker.call(partial(folder.remove, order.tid))


class WriteManifest:
    """Writes the manifest, which makes the copy complete. Its undo removes it, unless it was there
    before."""

    local = ARCHIVE

    def __init__(self, cluster: Cluster, worker: Worker) -> None:
        self._cluster = cluster
        self._worker = worker

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return _was_there(operation, told)

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        order, base = order_of(operation), base_of(context)
        if base.tid != order.tid:
            files = [
                file
                for (number, _), data in context.items()
                if number == 1
                for file in msgspec.msgpack.decode(data, type=list[PartitionFile])
            ]
            await self._worker.call(partial(self._write, order, base, files))
        return b""

    def _write(self, order: CopyOrder, base: Base, files: list[PartitionFile]) -> None:
        folder = ArchiveFolder(order.path, self._worker.files)
        pack = order.pack if order.pack != ZERO_TID else None
        try:
            previous = _chain(folder, base)[-1] if base.tid is not None else None
            made = manifests.new_manifest(
                self._cluster.name, order.tid, files, pack, previous
            )
        except ArchiveError as e:
            raise StepFailed(str(e)) from None
        folder.finish(made, format_nid(self._cluster.nid))

    async def undo(self, operation: Operation, undo: bytes) -> None:
        order = order_of(operation)
        if not undo:
            folder = ArchiveFolder(order.path, self._worker.files)
            await self._worker.call(partial(folder.remove, order.tid))


def _was_there(operation: Operation, told: Mapping[int, bytes]) -> bytes:
    """Return whether the copy was complete before: then the undo must not remove it."""
    base = msgspec.msgpack.decode(told[0], type=Base)
    return b"it was there" if base.tid == order_of(operation).tid else b""


def _chain(folder: ArchiveFolder, base: Base) -> list[Manifest]:
    """Return the copies that a new copy follows, the full one first. Raise StepFailed."""
    if base.tid is None:
        return []
    found = folder.manifest(base.tid)
    if found is None or isinstance(found, ArchiveDamaged) or found.digest != base.digest:
        raise StepFailed(f"{folder.copy(base.tid)} changed meanwhile: try again")
    try:
        return folder.chain(found)
    except ArchiveError as e:
        raise StepFailed(str(e)) from None


def steps_of_backup(
    database: Database,
    cluster: Cluster,
    cells: Cells,
    locks: Locks,
    background: Background,
    contents: Contents,
    worker: Worker,
) -> dict[str, StepFunction]:
    """Return the functions of the steps, by name."""
    copy = Copy(
        database=database,
        cluster=cluster,
        cells=cells,
        locks=locks,
        background=background,
        contents=contents,
        worker=worker,
    )
    return {
        LOOK: Look(cluster, worker),
        COPY: copy,
        MANIFEST: WriteManifest(cluster, worker),
    }
