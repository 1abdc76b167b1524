"""Bugs of backups into archives, and of restores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from neo.archive import chain as chains
from neo.archive.chain import Chain
from neo.archive.disk import PartFile
from neo.archive.format import ArchiveDamaged, Header
from neo.archive.manifest import Manifest
from neo.archive.writer import PartitionWriter
from neo.operations.model import Operation
from neo.protocol.blobs import Content
from neo.protocol.ids import MAX_TID
from neo.storage.operations import restore
from neo.storage.operations.backup import Copy, WriteManifest
from neo.storage.operations.restore import Load, _Target
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "workloads": ("counters",),
    "faults": ("kill-server", "reset"),
    "archives": True,
    "storages": 2,
    "seconds": 5.0,
}


def _later_rows() -> list[Patch]:
    original = Copy._objects

    async def objects(self: Copy, writer: PartitionWriter, header: Header) -> None:
        nid = self._cluster.nid
        await original(self, writer, replace(header, tid=MAX_TID) if nid == 1 else header)

    return [(Copy, "_objects", objects)]


def _not_synced() -> list[Patch]:
    def keep(self: PartFile) -> None:
        assert self._output is not None
        self._files.replace(self._part, self.target)
        self._close(self._output)

    return [(PartFile, "keep", keep)]


def _contents_of_the_first_copy() -> list[Patch]:
    original = PartitionWriter._add

    def add(self: PartitionWriter, content: Content, source: Path | None) -> None:
        if not self._before:
            original(self, content, source)

    return [(PartitionWriter, "_add", add)]


def _left_behind() -> list[Patch]:
    async def undo(self: object, operation: Operation, undo: bytes) -> None:
        return None

    return [(Copy, "undo", undo), (WriteManifest, "undo", undo)]


def _last_copy_only() -> list[Patch]:
    def select(found: Mapping[bytes, Manifest | ArchiveDamaged], at: bytes | None = None) -> Chain:
        chain = chains.select(found, at)
        return chain._replace(copies=chain.copies[-1:])

    return [(restore, "select", select)]


def _rows_after_the_moment() -> list[Patch]:
    def select(found: Mapping[bytes, Manifest | ArchiveDamaged], at: bytes | None = None) -> Chain:
        chain = chains.select(found, at)
        return chain._replace(until=chain.copies[-1].tid)

    return [(restore, "select", select)]


def _not_emptied() -> list[Patch]:
    async def empty(self: Load) -> None:
        return None

    return [(Load, "_empty", empty)]


def _files_of_own_numbers() -> list[Patch]:
    original = Load._target

    def target(self: Load, chain: Chain) -> _Target:
        made = original(self, chain)
        count = chain.copies[-1].partitions
        return made._replace(numbers=[number for number in sorted(made.cells) if number < count])

    return [(Load, "_target", target)]


def _nothing_named() -> list[Patch]:
    async def kept(self: Copy, writer: PartitionWriter, header: Header, after: bytes) -> None:
        return None

    return [(Copy, "_kept", kept)]


CANARIES = (
    Canary(
        "archive-of-several-moments",
        "one node copies also what is committed after the tid of the copy",
        "archives: a copy has revisions that the database did not have at its tid",
        _later_rows,
        20,
        _OPTIONS,
        first=2,
    ),
    Canary(
        "archive-not-synced",
        "a file gets its name, and the manifest is written, before the data is durable",
        "archives: a complete copy is not durable",
        _not_synced,
        20,
        _OPTIONS,
    ),
    Canary(
        "archive-contents-once",
        "a copy that follows another one has none of the new contents",
        "archives: a copy lacks contents",
        _contents_of_the_first_copy,
        40,
        _OPTIONS | {"workloads": ("blobs",)},
        first=3,
    ),
    Canary(
        "archive-left-behind",
        "the undo of a backup does not remove its files",
        "archives: an incomplete copy is left",
        _left_behind,
        40,
        _OPTIONS,
        first=2,
    ),
    Canary(
        "archive-keeps-deleted",
        "a copy after a pack does not name what is left of the copies before",
        "archives: a copy has revisions that a pack had removed with their deletion",
        _nothing_named,
        60,
        _OPTIONS | {"workloads": ("pack",)},
        first=20,
    ),
    Canary(
        "restore-of-the-last-copy",
        "of a chain only the last copy is restored",
        "restore: the restored database misses transactions",
        _last_copy_only,
        40,
        _OPTIONS,
        first=1,
    ),
    Canary(
        "restore-too-much",
        "transactions after the moment that was chosen are restored as well",
        "restore: the last transaction is another one",
        _rows_after_the_moment,
        40,
        _OPTIONS,
        first=4,
    ),
    Canary(
        "restore-by-number",
        "a node reads the files with the numbers of its cells, though the archive has other partitions",
        "restore: the restored database misses transactions",
        _files_of_own_numbers,
        20,
        _OPTIONS,
    ),
    Canary(
        "restore-not-emptied",
        "what an interrupted restore has written is not deleted",
        "restore: rows are left after a restore that was undone",
        _not_emptied,
        60,
        _OPTIONS,
    ),
)
