"""Blobs: written, read, changed, undone, packed, aborted, in conflict, and copied from elsewhere.

Each *shelf* is an object that names the content of its blob, by checksum, and both change in one
transaction. So whatever is undone, truncated or read from an old snapshot, they match. Contents are
empty, of a part of a piece, or of several pieces; many are equal.
"""

from __future__ import annotations

from random import Random
from typing import Any

from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import z64

from neo.protocol import blobs
from neo.protocol.ids import ZERO_TID, time_from_tid
from tests.simulator.content_volume import checksum_of
from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

SHELVES = 4
USER = "blobs"
#: Greatest length of a content, in pieces. With usual pieces contents are small all the same.
PIECES_MAX = 3.5
BYTES_MAX = 10_000
#: Number of different contents that are stored again and again.
USUAL = 6
#: Revisions of blobs that are remembered, to be read again.
REVISIONS_MAX = 30


class Blobs(Workload):
    name = "blobs"
    threads = 3
    rewindable = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._seed = random.getrandbits(32)
        #: Revisions (oid, serial) of blobs that were read.
        self._revisions: list[tuple[bytes, bytes]] = []
        #: Undos and garbage collections in progress.
        self._undoing = self._collecting = 0

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            for number in range(SHELVES):
                data = self._content(context.random)
                shelf = PersistentMapping(sum=checksum_of(data), blob=Blob(data))
                connection.root().setdefault(f"shelf{number}", shelf)
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        choice = context.random.random()
        if choice < 0.35:
            self._change(context)
        elif choice < 0.6:
            self._look(context)
        elif choice < 0.7:
            self._read_again(context)
        elif choice < 0.8:
            self._undo(context)
        elif choice < 0.95 or thread:
            self._store(context)
        else:
            self._pack(context)

    # -- with ZODB ---------------------------------------------------------------------------------

    def _content(self, random: Random) -> bytes:
        """Return a content: in half of the cases one of a few."""
        if random.random() < 0.5:
            random = Random(f"{self._seed} {random.randrange(USUAL)}")
        piece = min(blobs.PIECE_BYTES, BYTES_MAX)
        length = random.choice(
            (0, 1, random.randrange(piece + 1), piece, random.randrange(int(piece * PIECES_MAX)))
        )
        return random.randbytes(min(length, BYTES_MAX))

    def _change(self, context: Context) -> None:
        """Change the blobs of one shelf or several, or put new blobs there."""
        random = context.random
        with context.connection() as (connection, manager):
            for number in random.sample(range(SHELVES), random.choice((1, 1, 2, SHELVES))):
                shelf = connection.root()[f"shelf{number}"]
                data = self._content(random)
                shelf["sum"] = checksum_of(data)
                if random.random() < 0.3:
                    shelf["blob"] = Blob()
                self._write(shelf["blob"], data, random)
                if random.random() < 0.1:
                    manager.savepoint()
            manager.get().user = USER
            if random.random() < 0.1:
                manager.abort()
            else:
                manager.commit()

    def _write(self, blob: Blob, data: bytes, random: Random) -> None:
        if random.random() < 0.3 and data:
            # In two parts, the second one at the end.
            middle = random.randrange(len(data))
            with blob.open("w") as file:
                file.write(data[:middle])
            with blob.open("a") as file:
                file.write(data[middle:])
        else:
            with blob.open("w") as file:
                file.truncate()
                file.write(data)

    def _look(self, context: Context) -> None:
        with context.connection() as (connection, _):
            numbers = range(SHELVES)
            for number in context.random.sample(numbers, context.random.randrange(1, SHELVES + 1)):
                self._compare(connection.root()[f"shelf{number}"], number, context.random)

    def _compare(self, shelf: PersistentMapping, number: int, random: Random) -> None:
        blob, expected = shelf["blob"], shelf["sum"]
        how = random.choice(("r", "c", "committed"))
        blob._p_activate()
        if how == "committed":
            with open(blob.committed(), "rb") as file:
                data = file.read()
        else:
            with blob.open(how) as file:
                data = file.read()
        if checksum_of(data) != expected:
            raise Violation(
                f"blobs: shelf {number} names content {expected[:16]}, and its blob"
                f" {blob._p_oid.hex()} has {checksum_of(data)[:16]} at {blob._p_serial.hex()}"
            )
        if len(self._revisions) >= REVISIONS_MAX:
            self._revisions.pop(random.randrange(REVISIONS_MAX))
        self._revisions.append((blob._p_oid, blob._p_serial))

    def _read_again(self, context: Context) -> None:
        """Read an earlier revision, which may be packed away by now."""
        if self._revisions:
            oid, serial = context.random.choice(self._revisions)
            context.storage.loadBlob(oid, serial)

    def _undo(self, context: Context) -> None:
        random = context.random
        first, count = random.choice((0, 0, 0, 1, 2)), random.choice((1, 1, 2, 3))
        if self._collecting:
            return  # an undo may refer again to what is being deleted (neo.client.maintenance.pack)
        self._undoing += 1
        try:
            with context.connection() as (_, manager):
                log = context.db.undoLog(0, 30)
                ids = [entry["id"] for entry in log if entry["user_name"] == USER]
                if ids := ids[first : first + count]:
                    context.db.undoMultiple(ids, manager.get())
                    manager.get().user = USER
                    manager.commit()
        finally:
            self._undoing -= 1

    def _pack(self, context: Context) -> None:
        tid = context.storage.lastTransaction()
        if tid > ZERO_TID:
            ago = context.random.choice((0.0, 0.1, 2.0)) * context.random.random()
            gc = context.random.random() < 0.5 and not self._undoing
            context.log(f"packs{' with gc' if gc else ''}")
            self._collecting += gc
            try:
                context.storage.pack(time_from_tid(tid) - ago, context.db.references, gc)
            finally:
                self._collecting -= gc

    # -- with the storage --------------------------------------------------------------------------

    def _store(self, context: Context) -> None:
        """Store blobs as records, and end the transaction in any way: contents are left behind."""
        random = context.random
        storage: Any = context.storage
        transaction = TransactionMetaData()
        try:
            storage.tpc_begin(transaction)
            for _ in range(random.randrange(1, 4)):
                self._store_one(context, transaction)
            if random.random() < 0.3:
                storage.tpc_abort(transaction)
                return
            storage.tpc_vote(transaction)
            if random.random() < 0.2:
                storage.tpc_abort(transaction)
                return
            storage.tpc_finish(transaction)
        except BaseException:
            storage.tpc_abort(transaction)
            raise

    def _store_one(self, context: Context, transaction: Any) -> None:
        """Store a new blob, which nothing refers to: a pack with garbage collection removes it."""
        storage: Any = context.storage
        data = self._content(context.random)
        path = context.new_file(data)
        storage.storeBlob(storage.new_oid(), z64, zodb_pickle(Blob()), path, "", transaction)

    # -- the end -----------------------------------------------------------------------------------

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            for number in range(SHELVES):
                self._compare(connection.root()[f"shelf{number}"], number, context.random)


