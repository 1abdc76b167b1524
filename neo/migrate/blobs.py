"""Copy and compare the contents of blobs.

The content of a blob's revision is a file, which a storage gives with ``loadBlob`` and takes with
``restoreBlob``. A storage gives the path of a file that stays its own: of a file of its folder, or of its
cache. ``restoreBlob`` takes a file away. So each copy hands over a file of its own. It is no second name
of the source's file: that would change the metadata of the source, and its damage would reach the copy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from enum import Enum
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from ZODB.blob import LAYOUT_MARKER, LAYOUTS, auto_layout_select, is_blob_record
from ZODB.interfaces import IBlobStorage, IBlobStorageRestoreable
from ZODB.POSException import POSKeyError

from neo.client import NEOStorage
from neo.client.errors import CorruptedError
from neo.migrate.errors import MigrateError
from neo.migrate.listing import storage_name
from neo.protocol.blobs import Content, content_hash
from neo.protocol.words import counted

#: Greatest number of blobs in a message.
LISTED = 10
#: Bytes of a content in memory.
_CHUNK = 1 << 20
_PREFIX = "neomigrate-"
#: What the folder of a FileStorage has before its first blob.
_EMPTY = {LAYOUT_MARKER, "tmp"}


#: Errors that say that a file is lost or damaged; after any other one, a later attempt may read it.
_UNREADABLE = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP),
        *(errno.EIO, errno.ENXIO, errno.ENODEV, errno.EBADMSG, errno.EUCLEAN, errno.ESTALE),
    )
)


class Unreadable(Exception):
    """The source does not give the content of a blob; the message says why, nothing if it has none."""


class Policy(Enum):
    """What a copy does with a blob whose content cannot be read."""

    REFUSE = "end before its transaction"
    SALVAGE = "copy its record"
    OMIT = "copy the records of all blobs, and no content"


class Folder:
    """The folder of blobs of a FileStorage, to be read.

    ZODB's own class for it may write a file into the folder, and logs a warning about old layouts.
    """

    def __init__(self, path: str) -> None:
        """Raise MigrateError if there is no such folder."""
        if not os.path.isdir(path):
            raise MigrateError(f"there is no folder of blobs {path!r}")
        self._path = path
        name = auto_layout_select(path)
        if name not in LAYOUTS:
            raise MigrateError(
                f"{os.path.join(path, LAYOUT_MARKER)!r} names the layout {name!r}, which is unknown here"
            )
        self._layout = LAYOUTS[name]

    def load(self, oid: bytes, tid: bytes) -> str:
        """Return the path of the file of a revision. Raise POSKeyError."""
        path = os.path.join(self._path, self._layout.getBlobFilePath(oid, tid))
        # A file that exists and cannot be looked at is another case.
        try:
            os.stat(path)
        except FileNotFoundError:
            raise POSKeyError(oid) from None
        except OSError:
            pass
        return path


class Blob(NamedTuple):
    """A revision of a blob. ``path``: of its content; None if there is none."""

    oid: bytes
    tid: bytes
    path: str | None

    def __str__(self) -> str:
        return f"object 0x{self.oid.hex()} of transaction 0x{self.tid.hex()}"


class Blobs:
    """The contents that a copy takes with it.

    ``count``, ``size``: the contents that were copied, or would be. ``lost``: the number of blobs whose
    records were copied without content; ``listed``: the first of them, and why. ``report``: called after
    each content.
    """

    def __init__(self, policy: Policy = Policy.REFUSE) -> None:
        self.policy = policy
        self.report: Callable[[], None] = lambda: None
        self.count = self.size = self.lost = 0
        self.listed: list[str] = []

    def find(self, source: Any, record: Any) -> Blob | None:
        """Return the blob of a record; None for another object. Raise MigrateError if the policy demands
        a content that the source lacks.
        """
        if not is_blob_record(record.data):
            return None
        blob = Blob(record.oid, record.tid, None)
        if self.policy is Policy.OMIT:
            self._lose(source, blob, "")
            return blob
        check_opened(source, blob)
        try:
            return blob._replace(path=_path(source, blob))
        except Unreadable as e:
            self._lose(source, blob, str(e))
            return blob

    def _lose(self, source: Any, blob: Blob, why: str) -> None:
        if self.policy is Policy.REFUSE:
            text = f"{blob} is a blob, and {storage_name(source)} has no content of it: restore the file"
            if why:
                text = f"{blob} is a blob, and its content cannot be read ({why}): restore the file"
            raise MigrateError(
                f"{text} from a backup, then the same command goes on; --salvage copies what there is "
                "and lists such blobs"
            )
        self.lost += 1
        if len(self.listed) < LISTED:
            self.listed.append(f"{blob}: {why}" if why else str(blob))

    def restore(
        self,
        blob: Blob,
        record: Any,
        source: Any,
        destination: Any,
        writer: Any,
        written: Any,
    ) -> bool:
        """Write a record with its content by ``writer``: the destination, or its Import. Return False,
        and write nothing, if the content is lost and the policy allows that. Raise MigrateError, OSError,
        ZODB's errors.
        """
        if blob.path is None:
            return False
        if not takes_blobs(destination):
            raise _refused(blob, storage_name(destination))
        try:
            path = _file_for(destination, blob.path)
        except Unreadable as e:
            self._lose(source, blob, str(e))
            return False
        try:
            size = os.path.getsize(path)
            writer.restoreBlob(record.oid, record.tid, record.data, path, record.data_txn, written)
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        self.counted(size)
        return True

    def foresee(self, blob: Blob, source: Any, refused_by: str | None) -> None:
        """Read the content of a blob, and count it as if it was copied. Raise MigrateError as the copy
        would.

        ``refused_by``: the name of the destination if it takes no blobs.
        """
        if blob.path is None:
            return
        if refused_by is not None:
            raise _refused(blob, refused_by)
        try:
            self.counted(sum(map(len, _chunks(blob.path))))
        except Unreadable as e:
            self._lose(source, blob, str(e))

    def counted(self, size: int) -> None:
        self.count += 1
        self.size += size
        self.report()

    def lines(self) -> list[str]:
        """Return what was lost, for people; nothing if all contents were copied."""
        if not self.lost:
            return []
        left = "left out"
        if self.policy is not Policy.OMIT:
            left = "missing in the source, or could not be read"
        found = [f"the contents of {counted(self.lost, 'blob')} were {left}, the copy is not complete:"]
        found += [f"  {blob}" for blob in self.listed]
        if self.lost > len(self.listed):
            found.append(f"  and {self.lost - len(self.listed):,} more")
        return found


_OTHERWISE = (
    "with blob-dir in a section of the --config file, or in the URI; --no-blobs copies the records "
    "alone, without any content"
)


def check_opened(storage: Any, blob: Blob) -> None:
    """Raise MigrateError if a storage was opened without its blobs."""
    # A client of ZEO without a folder has the interface, and no helper.
    if not IBlobStorage.providedBy(storage) or getattr(storage, "fshelper", storage) is None:
        raise MigrateError(
            f"{blob} is a blob, and {storage_name(storage)} was opened without a folder of blobs: name "
            "the folder of a FileStorage given by its path with --blobs DIR (the source), --blobs-to DIR "
            f"(the destination); otherwise {_OTHERWISE}"
        )


def takes_blobs(destination: Any) -> bool:
    """Return whether a storage takes blobs with the ids of the source."""
    found: bool = IBlobStorageRestoreable.providedBy(destination)
    return found


def _refused(blob: Blob, name: str) -> MigrateError:
    return MigrateError(
        f"{blob} is a blob, and {name} takes no blobs: give it a folder with --blobs-to DIR if it is a "
        f"FileStorage given by its path, otherwise {_OTHERWISE}"
    )


def _path(storage: Any, blob: Blob) -> str:
    """Return the path of the file of a content. Raise Unreadable."""
    try:
        path: str = storage.loadBlob(blob.oid, blob.tid)
    except POSKeyError:
        raise Unreadable from None
    except CorruptedError as e:
        raise Unreadable(str(e)) from None
    except OSError as e:
        raise _unreadable(str(e.filename or storage_name(storage)), e) from None
    return path


def _unreadable(path: str, error: OSError) -> Exception:
    """Return Unreadable, or the error itself if a later attempt may read the file."""
    return Unreadable(f"{path!r}: {error.strerror}") if error.errno in _UNREADABLE else error


def _chunks(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file. Raise Unreadable, OSError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait
            raise Unreadable(f"{path!r} is no file")
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as e:
        raise _unreadable(path, e) from None


def _file_for(destination: Any, path: str) -> str:
    """Return a new file with the content of ``path``, which the destination may take away. Raise
    Unreadable, OSError."""
    name = os.path.join(destination.temporaryDirectory(), f"{_PREFIX}{uuid4().hex}.tmp")
    try:
        with open(name, "xb", buffering=0) as file:
            for chunk in _chunks(path):
                _write(file, chunk)
            if not isinstance(destination, NEOStorage):
                # A FileStorage syncs its data file, and not the files of blobs that belong to it.
                os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return name


def _write(file: RawIOBase, data: bytes) -> None:
    """Write all of the data. A disk that gets full takes a part, and refuses the rest."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def content(storage: Any, blob: Blob) -> tuple[Content | None, str]:
    """Read the content of a blob. Return its size and checksum; None, and why, if it cannot be read."""
    check_opened(storage, blob)
    size, checksum = 0, content_hash()
    try:
        for chunk in _chunks(_path(storage, blob)):
            size += len(chunk)
            checksum.update(chunk)
    except Unreadable as e:
        return None, str(e)
    return Content(size, checksum.digest()), ""


def check_folders(source: Path | None, destination: Path | None) -> None:
    """Raise MigrateError if the folders of source and destination are the same."""
    if source and destination and source.exists() and destination.exists():
        if source.samefile(destination):
            raise MigrateError(f"--blobs and --blobs-to are the same folder, {str(source)!r}")


def check_new_folder(path: Path) -> None:
    """Raise MigrateError if the folder for the blobs of a new FileStorage has files of another one.

    A new FileStorage would remove them all.
    """
    if path.exists() and not path.is_dir():
        raise MigrateError(f"{str(path)!r} is no folder; --blobs-to names the folder for blobs")
    if path.exists() and {entry.name for entry in path.iterdir()} - _EMPTY:
        raise MigrateError(
            f"the folder {str(path)!r} is not empty: it belongs to another database; choose an empty "
            "folder"
        )


def remove_leftovers(folder: str) -> None:
    """Remove what a killed copy left among the temporary files of a FileStorage, which is locked."""
    for path in Path(folder).glob(f"{_PREFIX}*.tmp"):
        path.unlink(missing_ok=True)
