"""Files of blobs, as ZODB's interfaces see them, and their contents in the cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import OrderedDict
from typing import BinaryIO, Protocol

from ZODB.interfaces import IBlobStorage
from ZODB.POSException import POSKeyError

from neo.client.blobs.cache import PENDING, BlobCache
from neo.client.blobs.download import Downloads
from neo.client.blobs.eviction import Eviction
from neo.client.commit.participants import PendingBlob
from neo.client.errors import refused
from neo.client.read.replicas import Replicas
from neo.net.host import ThreadHost
from neo.protocol.blobs import Content, content_hash, content_of
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AnswerObject, AskObject

#: Revisions whose content is remembered: 30 MB. Others cost a request when their file is used first.
REMEMBERED = 100_000
#: Bytes of a file that are read at once.
STEP_BYTES = 1 << 20
#: Revisions of files of the cache that are looked for at once.
ASKED = 1000


class Folder(Protocol):
    """Settings of the folder; see :class:`neo.client.settings.Settings`."""

    @property
    def cluster(self) -> str: ...

    @property
    def blob_dir(self) -> str | None: ...

    @property
    def blob_cache_size(self) -> int: ...

    @property
    def blob_cache_size_check(self) -> int: ...


class BlobFiles:
    """Contents in the folder, in the cluster, and of transactions in progress. Thread-safe."""

    def __init__(
        self, host: ThreadHost, settings: Folder, replicas: Replicas, downloads: Downloads
    ) -> None:
        self._replicas = replicas
        self._downloads = downloads
        self.cache = BlobCache(host, settings.blob_dir, settings.cluster)
        self.cache.check()
        size, check = settings.blob_cache_size, settings.blob_cache_size_check
        self._eviction = Eviction(host, self.cache, size, check)
        self._contents: OrderedDict[tuple[bytes, bytes], Content] = OrderedDict()
        # Revisions that have a next one up to this tid may be gone: their contents are not remembered.
        self._packed = ZERO_TID
        #: Files of transactions in progress, by the identity of ZODB's transaction and the oid.
        self.pending: dict[int, dict[bytes, PendingBlob]] = {}

    # -- reading -----------------------------------------------------------------------------------

    def known(self, answer: AnswerObject) -> None:
        """Remember the content of a record, which refers to one."""
        content = content_of(answer.data)
        if content is not None and not answer.compression:
            following = answer.next_serial
            if following is None or following > self._packed:
                self._remember(answer.oid, answer.serial, content)

    def _remember(self, oid: bytes, tid: bytes, content: Content) -> None:
        self._contents[oid, tid] = content
        if len(self._contents) > REMEMBERED:
            try:
                self._contents.popitem(last=False)
            except KeyError:
                pass  # other threads did that

    def _content(self, oid: bytes, tid: bytes) -> Content:
        """Return the content of a revision. Raise POSKeyError if it has none."""
        content = self._contents.get((oid, tid))
        if content is None:
            try:
                answer = self._replicas.read(oid, AskObject(oid, tid, None))
            except ErrorAnswer as e:
                if e.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST):
                    raise POSKeyError(oid) from None
                raise refused(f"loading object {oid.hex()}", e) from None
            content = None if answer.compression else content_of(answer.data)
            if content is None or answer.serial != tid:
                raise POSKeyError(oid)
            self.known(answer)
        return content

    def load(self, oid: bytes, tid: bytes) -> str:
        """Return the path of a revision's file, which stays for a minute at least. Raise POSKeyError,
        CorruptedError, UnavailableError."""
        content = self._content(oid, tid)
        backoff, seen = self._downloads.backoff(), 0

        def download(file: BinaryIO) -> None:
            self._downloads.fetch(oid, content, file, backoff)

        def waits(size: int) -> None:
            nonlocal backoff, seen
            if size > seen:
                backoff, seen = self._downloads.backoff(), size  # there is progress
            backoff.check(f"object {oid.hex()}: another thread or process downloads its content")

        return self.cache.fetch(oid, tid, content.size, download, waits)

    def open(self, oid: bytes, tid: bytes) -> BinaryIO:
        """Open the file of a revision. Raise the errors of load()."""
        while True:
            path = self.load(oid, tid)
            try:
                return open(path, "rb")
            except FileNotFoundError:
                continue  # somebody removed it: it is loaded again

    # -- writing -----------------------------------------------------------------------------------

    def take(self, transaction: int, oid: bytes, path: str) -> PendingBlob:
        """Take a file of the application away for a change of a transaction."""
        blob = PendingBlob(self.cache.take(path))
        replaced = self.pending.setdefault(transaction, {})
        self._discard(replaced.pop(oid, None))
        replaced[oid] = blob
        return blob

    def replaced(self, transaction: int, oid: bytes) -> None:
        """Drop the file of a change that another change of its object replaces."""
        if transaction in self.pending:
            self._discard(self.pending[transaction].pop(oid, None))

    def _discard(self, blob: PendingBlob | None) -> None:
        if blob is not None:
            self.cache.discard(blob.path)

    def ended(self, transaction: int, tid: bytes | None) -> None:
        """Keep the files of a transaction that is committed, drop them if ``tid`` is None."""
        for oid, blob in self.pending.pop(transaction, {}).items():
            if tid is None or blob.content is None:
                self.cache.discard(blob.path)
                continue
            self._remember(oid, tid, blob.content)
            try:
                self.cache.keep(oid, tid, blob.path)
            except OSError:
                self.cache.discard(blob.path)  # it is committed, and can be downloaded

    def copy(self, source: IBlobStorage, oid: bytes, tid: bytes) -> str | None:
        """Copy the file of a revision of another storage. Return its path, for :meth:`take`; None if
        there is none."""
        load = getattr(source, "loadBlob", None)
        if load is None:
            return None
        try:
            path = load(oid, tid)
        except POSKeyError:
            return None
        fd, copied = tempfile.mkstemp(prefix=PENDING, dir=self.cache.temporary)
        os.close(fd)
        shutil.copyfile(path, copied)
        return copied

    def content(self, path: str) -> Content:
        """Compute the content of a file."""
        checksum, size = content_hash(), 0
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(STEP_BYTES):
                checksum.update(piece)
                size += len(piece)
        return Content(size, checksum.digest())

    def pack_begins(self, tid: bytes) -> None:
        """Ask storage nodes again whether revisions exist that a pack may remove. Called by the thread
        that leads on the master's channel."""
        self._packed = max(self._packed, tid)
        self._contents.clear()

    # -- maintenance -------------------------------------------------------------------------------

    def packed(self) -> None:
        """Remove files of revisions that are gone."""
        if not self.cache.made:
            return
        batch: list[tuple[bytes, bytes]] = []
        for revision in self.cache.revisions():
            batch.append(revision)
            if len(batch) == ASKED:
                self._forget_gone(batch)
                batch = []
        self._forget_gone(batch)

    def _forget_gone(self, revisions: list[tuple[bytes, bytes]]) -> None:
        answers = self._replicas.read_each((oid, AskObject(oid, tid, None)) for oid, tid in revisions)
        for (oid, tid), answer in zip(revisions, answers, strict=True):
            if isinstance(answer, ErrorAnswer):
                gone = answer.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST)
            else:
                gone = answer.serial != tid
            if gone:
                self._contents.pop((oid, tid), None)
                self.cache.forget(oid, tid)

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        self.cache.close()

    def forked(self) -> None:
        """Forget the parent's transactions, whose files are the parent's. Call in the child of a fork."""
        self.pending.clear()
        self.cache.forked()
        self._eviction.forked()


class FilesystemHelper:
    """The attributes of ZODB's own blob storages that applications use besides the interfaces."""

    def __init__(self, files: BlobFiles) -> None:
        self._files = files

    @property
    def temp_dir(self) -> str:
        return self._files.cache.temporary

    @property
    def base_dir(self) -> str:
        return str(self._files.cache.root) + os.sep

    def getBlobFilename(self, oid: bytes, tid: bytes) -> str:
        """Return the path of a revision's file, which is loaded first. There is no file if the revision
        has no content."""
        try:
            return self._files.load(oid, tid)
        except POSKeyError:
            return self._files.cache.path(oid, tid)
