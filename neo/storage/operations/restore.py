"""The steps of ``neoctl restore`` on a storage node (specification 27.60 to 27.67).

Theory of operation
-------------------
All nodes look into the folder, and tell which copies restore the moment that the operator chose; so each
knows that all read the same. Then each writes the rows of its cells, copy by copy, as replication does,
and the contents of blobs before the rows that refer to them. If the archive has another number of
partitions, a node reads the files of all of them, and takes the rows that belong to its cells.

The undo deletes everything: the database was empty before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from neo.archive.chain import Chain, select
from neo.archive.disk import Files
from neo.archive.folder import ArchiveFolder
from neo.archive.format import (
    ArchiveError,
    Block,
    End,
    Kept,
    Objects,
    Transactions,
    contents_of,
)
from neo.archive.manifest import Manifest
from neo.archive.reader import read_partition
from neo.node.task import Future
from neo.operations.model import Operation
from neo.protocol.blobs import PIECE_BYTES, Content
from neo.protocol.ids import ZERO_OID, ZERO_TID, add64, format_nid, u64
from neo.protocol.packets import RevisionRow
from neo.storage.backend.api import BackendRefused, Key, Record, Transaction
from neo.storage.background import Background
from neo.storage.blobs.contents import NO_FOLDER, Contents
from neo.storage.blobs.disk import ContentMismatch, Done
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.operations.local_locks import ROWS
from neo.storage.operations.steps import Context, Report, StepFailed, StepFunction
from neo.storage.operations.worker import Worker

T = TypeVar("T")

CHECK, LOAD = "look into the archive", "load"
#: Rows of ``config`` about packs, which the undo deletes.
_PACKS = ("_pack_wanted", "_pack_tid")
#: Bytes of values between two commits of the database.
COMMIT_BYTES = 16 << 20
#: Revisions that are compared with those that a copy names.
LENGTH = 1000
OID_MAX = b"\xff" * 8


class RestoreOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of the operation. ``tid``: of the moment, in hexadecimal; '' for the newest copy."""

    path: str
    tid: str
    partitions: int


class _Found(msgspec.Struct, frozen=True, array_like=True):
    """What a node finds: the last copy of the chain, by tid and digest, and the moment."""

    tid: bytes
    digest: bytes
    until: bytes


class _Target(NamedTuple):
    """``numbers``: the partitions of the archive that have rows of own cells, which are ``cells``."""

    chain: Chain
    numbers: Sequence[int]
    cells: frozenset[int]


def order_of(operation: Operation) -> RestoreOrder:
    """Raise StepFailed if the master asks for what this release does not know."""
    try:
        return msgspec.convert(operation.arguments, RestoreOrder)
    except msgspec.ValidationError as e:
        raise StepFailed(
            f"the order cannot be read ({e}): install the same release everywhere"
        ) from None


def _select(order: RestoreOrder, files: Files) -> Chain:
    """Return the copies to restore. Raise StepFailed, OSError."""
    try:
        at = bytes.fromhex(order.tid) if order.tid else None
        return select(ArchiveFolder(order.path, files).complete(), at)
    except ArchiveError as e:
        raise StepFailed(str(e)) from None


class Check:
    """Finds the copies to restore. Raises StepFailed if this node is not empty, or cannot keep them."""

    local = ""

    def __init__(
        self, database: Database, cells: Cells, contents: Contents, worker: Worker
    ) -> None:
        self._database = database
        self._cells = cells
        self._contents = contents
        self._worker = worker

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        order = order_of(operation)
        if self._database.backend.reads.last_ids(self._cells.assigned()) != (None, None):
            raise StepFailed("the database of this node is not empty: restore into a new cluster")
        chain = await self._worker.call(partial(_select, order, self._worker.files))
        blobs = any(file.contents for copy in chain.copies for file in copy.files)
        if blobs and not self._contents.enabled:
            raise StepFailed(f"the archive has contents of blobs: {NO_FOLDER}")
        last = chain.copies[-1]
        return msgspec.msgpack.encode(_Found(last.tid, last.digest, chain.until))

    async def undo(self, operation: Operation, undo: bytes) -> None:
        """Nothing was changed."""


class Load:
    """Writes the rows of own cells. Its undo empties the database."""

    local = ROWS

    def __init__(
        self,
        database: Database,
        cluster: Cluster,
        cells: Cells,
        background: Background,
        contents: Contents,
        worker: Worker,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._cells = cells
        self._background = background
        self._contents = contents
        self._worker = worker
        self._written = 0

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return b""

    async def run(
        self, operation: Operation, step: int, context: Context, report: Report
    ) -> bytes:
        order = order_of(operation)
        chain = await self._worker.call(partial(_select, order, self._worker.files))
        self._check_same(chain, context)
        await self._empty()  # what an interrupted run left
        target = self._target(chain)
        folder = ArchiveFolder(order.path, self._worker.files)
        parts = len(chain.copies) * len(target.numbers)
        try:
            for done, (number, copy) in enumerate(
                (number, copy) for copy in range(len(chain.copies)) for number in target.numbers
            ):
                report(done / parts, f"partition {number}")
                await self._load(folder, target, copy, number)
        except ArchiveError as e:
            raise StepFailed(str(e)) from None
        except BackendRefused as e:
            raise StepFailed(f"a row cannot be kept here: {e}") from None
        if chain.pack is not None:
            self._database.backend.replication.packed_elsewhere(chain.pack)
            self._database.backend.tables.set_config(_PACKS[0], str(u64(chain.pack)))
        await self._database.stored()
        return b""

    def _check_same(self, chain: Chain, context: Context) -> None:
        last = chain.copies[-1]
        mine = msgspec.msgpack.encode(_Found(last.tid, last.digest, chain.until))
        for (number, nid), told in context.items():
            if number == 0 and told != mine:
                raise StepFailed(
                    f"{format_nid(nid)} finds another copy than this node: give all nodes the same files"
                )

    def _target(self, chain: Chain) -> _Target:
        cells, count = frozenset(self._cells.assigned()), chain.copies[-1].partitions
        same = count == len(self._cells.partitions)
        return _Target(chain, sorted(cells) if same else range(count), cells)

    async def _empty(self) -> None:
        backend, cells = self._database.backend, self._cells.assigned()
        if backend.reads.last_ids(cells) != (None, None):
            backend.maintenance.truncate(ZERO_TID, cells)
        for name in _PACKS:
            backend.tables.set_config(name, None)
        await self._database.stored()

    # -- a file ------------------------------------------------------------------------------------

    async def _load(self, folder: ArchiveFolder, target: _Target, index: int, number: int) -> None:
        """Load the file of a partition of one copy."""
        copy = target.chain.copies[index]
        path = folder.partition(copy.tid, number)
        blocks = read_partition(
            self._worker.files, path, copy.header(number), copy.files[number]
        )
        named: Key | None = None
        while (block := await self._worker.call(partial(_next, blocks))) is not None:
            began = self._background.monotonic()
            if isinstance(block, Transactions):
                self._transactions(target, block)
            elif isinstance(block, Objects):
                await self._objects(folder, target, index, block.rows)
            elif isinstance(block, Kept):
                kept = [named or (ZERO_TID, ZERO_OID), *block.rows]
                named = kept[-1]
                await self._keep(copy, number, kept)
            elif isinstance(block, End) and named is not None and copy.after is not None:
                await self._keep(copy, number, [named, (copy.after, OID_MAX)])
            if self._written >= COMMIT_BYTES:
                self._written = 0
                await self._database.stored()
            await self._background.executed(began)

    def _is_mine(self, target: _Target, id_: bytes) -> bool:
        return self._cells.partitions.partition(id_) in target.cells

    def _transactions(self, target: _Target, block: Transactions) -> None:
        until = target.chain.until
        for row in block.rows:
            if row[0] <= until and self._is_mine(target, row[0]):
                tid, user, description, extension, packed, oids, ttid = row
                self._database.backend.replication.add_transaction(
                    Transaction(tid, user, description, extension, packed, list(oids), ttid)
                )

    async def _objects(
        self, folder: ArchiveFolder, target: _Target, index: int, rows: list[RevisionRow]
    ) -> None:
        """Write the rows of own cells, up to the moment, and before them the contents that they need."""
        until, backend = target.chain.until, self._database.backend
        mine = [row for row in rows if row[1] <= until and self._is_mine(target, row[0])]
        held: list[Content] = []
        try:
            await self._take(folder, target, index, contents_of(mine), held)
            for row in mine:
                oid, tid, compression, checksum, size, data, data_serial = row
                self._written += size
                for content in contents_of([row]):
                    if not self._contents.has(content.checksum):
                        self._contents.missing(content, oid)
                backend.replication.add_object(
                    oid, Record(tid, None, compression, checksum, data or b"", data_serial)
                )
        finally:
            for content in held:
                self._contents.release(content.checksum)

    async def _keep(self, copy: Manifest, number: int, kept: Sequence[Key]) -> None:
        """Delete the revisions (tid, oid) of a partition of the archive from the first to the last of
        ``kept`` that are not among these: a pack had removed them when the copy was made."""
        backend, pace = self._database.backend, self._background
        partitions, there, last = self._cells.partitions, set(kept), kept[-1]
        same = len(partitions) == copy.partitions
        for cell in [number] if same else self._cells.assigned():
            following = kept[0]
            while following <= last:
                began = pace.monotonic()
                found = backend.replication.objects_ascending(cell, *following, last[0], LENGTH)
                gone = [
                    key
                    for key in found
                    if key <= last and key not in there and u64(key[1]) % copy.partitions == number
                ]
                if gone:
                    backend.replication.delete_objects(gone, packed=True)
                await pace.executed(began)
                if len(found) < LENGTH:
                    break
                following = found[-1][0], add64(found[-1][1], 1)

    # -- contents ----------------------------------------------------------------------------------

    async def _take(
        self,
        folder: ArchiveFolder,
        target: _Target,
        index: int,
        wanted: Collection[Content],
        held: list[Content],
    ) -> None:
        """Make contents durable here, which the caller releases: ``held``. One without a file was lost
        when it was copied."""
        for content in sorted(wanted):
            self._contents.hold(content.checksum)
            held.append(content)
            if self._contents.has(content.checksum):
                continue
            for copy in reversed(target.chain.copies[: index + 1]):
                path = folder.content(copy.tid, content.checksum)
                if await self._worker.call(partial(folder.files.exists, path)):
                    await self._receive(path, content)
                    break

    async def _receive(self, path: Path, content: Content) -> None:
        disk, part = self._contents.disk, f"restore-{content.checksum.hex()}"
        offset = 0
        try:
            while offset < content.size or not offset:
                piece = await self._worker.call(partial(_piece, self._worker.files, path, offset))
                await self._of_disk(partial(disk.append, part, offset, piece))
                offset += len(piece)
                if not piece:
                    break
            await self._of_disk(partial(self._contents.keep, part, content))
        except ContentMismatch as e:
            raise StepFailed(f"{path} is damaged: {e}; restore this file, and try again") from None
        except BaseException:
            disk.drop(part)
            raise

    async def _of_disk(self, call: Callable[[Done], None]) -> None:
        """Wait for a call of the folder of contents, which gets a callback."""
        future: Future[None] = Future()

        def done(error: Exception | None) -> None:
            if error is None:
                future.resolve(None)
            else:
                future.fail(error)

        call(self._contents.guard(done))
        await future

    async def undo(self, operation: Operation, undo: bytes) -> None:
        await self._empty()


def _next(blocks: Iterator[Block]) -> Block | None:
    return next(blocks, None)


def _piece(files: Files, path: Path, offset: int) -> bytes:
    with files.open(path) as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)


def steps_of_restore(
    database: Database,
    cluster: Cluster,
    cells: Cells,
    background: Background,
    contents: Contents,
    worker: Worker,
) -> dict[str, StepFunction]:
    """Return the functions of the steps, by name."""
    return {
        CHECK: Check(database, cells, contents, worker),
        LOAD: Load(database, cluster, cells, background, contents, worker),
    }
