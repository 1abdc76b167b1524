"""Bugs of blobs: contents that are not durable, are removed, are not there, or are those of others."""

from __future__ import annotations

from neo.client.blobs.cache import BlobCache
from neo.protocol.blobs import Content
from neo.protocol.packets import AddObject, AddVotedObject
from neo.storage.backend.sql import COUNTER_BITS
from neo.storage.backend.values import Values
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.disk import Done
from neo.storage.blobs.mend import Mender
from neo.storage.blobs.sweep import Sweep
from neo.storage.blobs.uploads import Resume, Uploads
from neo.storage.commit.transactions import Client
from neo.storage.maintenance.cleanup import Orphans
from neo.storage.replication.fetch import Fetch
from neo.storage.sync.received_votes import ReceivedVotes
from tests.simulator.planting import Canary, Patch

_BLOBS = {"workloads": ("blobs",), "disk": "memory", "backup": False, "seconds": 6.0}
_KILLS = {**_BLOBS, "faults": ("kill-server",)}
_COPIES = {**_BLOBS, "storages": 3, "replicas": 1, "faults": ("kill-server", "operate")}


def _row_before_sync() -> list[Patch]:
    def await_content(
        self: Uploads, client: Client, ttid: bytes, oid: bytes, content: Content, resume: Resume
    ) -> bool:
        return True

    def check(self: Uploads, client: Client, ttid: bytes) -> None:
        pass

    return [(Uploads, "await_content", await_content), (Uploads, "check", check)]


def _told_before_sync() -> list[Patch]:
    keep, store = Contents.keep, Contents.store

    def tell(self: Contents, content: Content, done: Done) -> None:
        self._kept.add(content.checksum)
        done(None)

    def kept(self: Contents, part: str, content: Content, done: Done) -> None:
        keep(self, part, content, lambda error: None)
        tell(self, content, done)

    def stored(self: Contents, data: bytes, content: Content, done: Done) -> None:
        store(self, data, content, lambda error: None)
        tell(self, content, done)

    return [(Contents, "keep", kept), (Contents, "store", stored)]


def _removed_before_the_row() -> list[Patch]:
    def leave(self: Contents, checksums: list[bytes]) -> int:
        leaving = [c for c in checksums if c not in self._holds and not self._rows.has_content(c)]
        self._leaving.update(leaving)
        self._remove(leaving)
        return len(leaving)

    return [(Contents, "leave", leave)]


def _never_removed() -> list[Patch]:
    def collect(self: Contents) -> None:
        pass

    return [(Contents, "collect", collect)]


def _never_swept() -> list[Patch]:
    def operation_started(self: Sweep) -> None:
        self._wanted = False

    return [(Sweep, "operation_started", operation_started)]


def _replicated_without() -> list[Patch]:
    async def add_blob(self: Fetch, m: AddObject) -> None:
        self._add_object(m)

    return [(Fetch, "_add_blob", add_blob)]


def _vote_without() -> list[Patch]:
    original = ReceivedVotes._add_object

    def add_object(self: ReceivedVotes, source: object, m: AddVotedObject) -> None:
        here = self._contents.here
        self._contents.here = lambda content: True  # type: ignore[method-assign]
        try:
            original(self, source, m)  # type: ignore[arg-type]
        finally:
            self._contents.here = here  # type: ignore[method-assign]

    return [(ReceivedVotes, "_add_object", add_object)]


def _ids_again() -> list[Patch]:
    sweep = Sweep._forget_freed

    def first_free(self: Values, partition: int) -> int:
        start, end = partition << COUNTER_BITS, (partition + 1) << COUNTER_BITS
        rows = self._read("SELECT MAX(id) FROM data WHERE id>=? AND id<?", start, end)
        last: int | None = rows[0][0]
        return start if last is None else last + 1

    async def forget_freed(self: Sweep) -> None:
        await self._background.sleep(2.0)  # a sweep over many rows, which takes as long, is no bug
        await sweep(self)

    return [(Values, "_first_free", first_free), (Sweep, "_forget_freed", forget_freed)]


def _data_never_swept() -> list[Patch]:
    async def sweep(self: Orphans) -> None:
        self._wanted = False

    return [(Orphans, "_sweep", sweep)]


def _not_mended() -> list[Patch]:
    def begin_mending(self: Mender) -> None:
        pass

    return [(Mender, "_begin_mending", begin_mending)]


def _of_another_tid() -> list[Patch]:
    original = BlobCache.path

    def path(self: BlobCache, oid: bytes, tid: bytes) -> str:
        return original(self, oid, bytes(8))

    return [(BlobCache, "path", path)]


CANARIES = (
    Canary(
        "content-row-before-sync",
        "a record is written and voted before its content is on the disk",
        "disk: after a power loss, a record refers to a content that is missing",
        _row_before_sync,
        10,
        {**_BLOBS, "faults": ("kill-server", "slow-disk")},
        first=104,
    ),
    Canary(
        "content-told-before-sync",
        "a content counts as durable before its group is synced",
        "disk: after a power loss, a record refers to a content that is missing",
        _told_before_sync,
        100,
        {**_BLOBS, "faults": ("kill-server", "slow-disk")},
        first=150,
    ),
    Canary(
        "content-removed-before-the-row",
        "a file is removed before the deletion of its last row is durable",
        "disk: after a power loss, a record refers to a content that is missing",
        _removed_before_the_row,
        120,
        _KILLS,
        first=120,
    ),
    Canary(
        "content-never-removed",
        "files of contents stay when their last row is gone",
        "disk: a file without a row",
        _never_removed,
        10,
        {**_BLOBS, "faults": ("none",)},
    ),
    Canary(
        "content-never-swept",
        "files that a crash left are not looked for",
        "disk: a file without a row",
        _never_swept,
        30,
        _KILLS,
    ),
    Canary(
        "replicated-without-content",
        "a row is replicated, and its content is not",
        "disk: a record refers to a content that is missing",
        _replicated_without,
        10,
        _COPIES,
    ),
    Canary(
        "vote-without-content",
        "a synchronous backup acknowledges a vote without the content",
        "disk: a record refers to a content that is missing",
        _vote_without,
        20,
        {**_BLOBS, "backup": True, "sync": True, "faults": ("none",)},
    ),
    Canary(
        "data-never-swept",
        "data that a crash left is not looked for",
        "tables: data that nothing refers to",
        _data_never_swept,
        20,
        _KILLS,
    ),
    Canary(
        "ids-given-again",
        "after a crash, ids of data continue after those of data, though content has greater ones",
        "disk: a value gets an id to which a row of another one refers",
        _ids_again,
        40,
        {**_KILLS, "disk": "sqlite"},
    ),
    Canary(
        "content-not-mended",
        "a lost content is not copied from other nodes",
        "drills: a damaged content is copied anew",
        _not_mended,
        10,
        {**_COPIES, "faults": ("none",)},
    ),
    Canary(
        "content-of-another-tid",
        "the client's cache gives the content of another revision",
        "workload: the content is not the one that its object names",
        _of_another_tid,
        10,
        {**_BLOBS, "faults": ("none",)},
    ),
)
