"""Open the storage that a user names: a path, a URI, or a section of a ZConfig file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ZConfig
from zc.lockfile import LockError
from ZODB.blob import BlobStorage, FilesystemHelper
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileStorageFormatError

from neo.migrate.blobs import check_new_folder, remove_leftovers
from neo.migrate.datafs import DataFile, listed
from neo.migrate.errors import MigrateError

#: Options of a URI that zodburi applies to the database, not to the storage; copies ignore them.
DATABASE_OPTIONS = frozenset(
    (
        *("database_name", "connection_pool_size", "connection_pool_timeout"),
        *("connection_cache_size", "connection_cache_size_bytes", "connection_large_record_size"),
        *("connection_historical_pool_size", "connection_historical_timeout"),
        *("connection_historical_cache_size", "connection_historical_cache_size_bytes"),
    )
)

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
# Storages alone, or inside the database section of an application.
_SCHEMA = """
<schema>
  <import package="ZODB"/>
  <multisection type="ZODB.storage" name="*" attribute="storages"/>
  <multisection type="ZODB.database" name="*" attribute="databases"/>
</schema>
"""
#: The layout of the cache of a ZEO client, which is no part of the source.
_CACHE_LAYOUT = "zeocache"


@contextmanager
def _untouched() -> Iterator[None]:
    """Open FileStorages to read only during the block, and create no folder of blobs.

    Only the classes of ZODB know which files a section or a URI opens, perhaps below wrappers such as
    ``<zlibstorage>`` and ``<demostorage>``. A FileStorage that is opened to be written takes a lock,
    truncates an unfinished transaction and saves its index; a folder of blobs gets what it lacks. So
    while a source is opened, these classes open to read only.

    The block runs on the only thread that opens storages.
    """
    opened, created = FileStorage.__init__, FilesystemHelper.create

    def init(self: Any, file_name: str, *more: Any, **options: Any) -> None:
        options = {**dict(zip(("create", "read_only", "stop"), more, strict=False)), **options}
        opened(self, file_name, **{**options, "create": False, "read_only": True})

    def create(self: Any) -> None:
        if self.layout_name == _CACHE_LAYOUT:
            created(self)

    FileStorage.__init__, FilesystemHelper.create = init, create
    try:
        yield
    finally:
        FileStorage.__init__, FilesystemHelper.create = opened, created


def open_source(
    text: str,
    config: Path | None,
    salvage: bool = False,
    report: Callable[[int, int], None] | None = None,
    blobs: Path | None = None,
) -> Any:
    """Open the storage to read, and write nothing beside it. Raise MigrateError, also for a damaged
    FileStorage unless ``salvage``.

    A FileStorage becomes a DataFile, whose headers are read here. ``report`` is called with the
    position and the size in bytes. ``blobs``: the folder of blobs of a FileStorage given by its path.
    """
    opener = _from_config(text, config) or _from_uri(text)
    if opener is None:
        if not Path(text).is_file():
            why = "it is no file" if Path(text).exists() else "there is no such file"
            raise MigrateError(_unknown(text, config, why))
        return _read_file(text, text, salvage, report, str(blobs) if blobs else None)
    _check_by_path(text, "--blobs", blobs)
    with _untouched():
        storage = _open(text, opener)
    plain, folder = _without_folder(storage)
    if isinstance(plain, FileStorage):
        path = plain._file_name
        storage.close()
        return _read_file(text, path, salvage, report, folder)
    try:
        for path in _files_below(storage):
            # A wrapper may transform records, so salvage cannot bypass it.
            _read_file(text, path, False, report).close()
    except MigrateError:
        storage.close()
        raise
    return storage


def _check_by_path(text: str, option: str, folder: Path | None) -> None:
    """Raise MigrateError if a folder of blobs was given for a storage that brings its own."""
    if folder is not None:
        raise MigrateError(
            f"{option} belongs to a FileStorage given by its path, and {text!r} is none: "
            "name its folder in its section or URI; NEO needs none"
        )


def _without_folder(storage: Any) -> tuple[Any, str | None]:
    """Return a storage without the wrapper that keeps its blobs, and the folder of its blobs."""
    if isinstance(storage, BlobStorage):
        return storage._BlobStorage__storage, storage.fshelper.base_dir
    return storage, getattr(storage, "blob_dir", None)


def _read_file(
    text: str,
    path: str,
    salvage: bool,
    report: Callable[[int, int], None] | None,
    blobs: str | None = None,
) -> DataFile:
    """Open a DataFile. Raise MigrateError if it is damaged, unless ``salvage``."""
    # Data that cannot be read is found here if it is to be left out, otherwise by the copy.
    found: DataFile = _open(text, lambda: DataFile(path, report, blobs, thorough=salvage))
    if found.gaps and not salvage:
        found.close()
        raise MigrateError(
            f"{path!r} is damaged; nothing is copied. Lost are\n{listed(found.gaps)}\n"
            "Restore the file from a backup, or copy what can be read with neomigrate --salvage"
        )
    return found


def _files_below(storage: Any) -> Iterator[str]:
    """Yield the files of FileStorages below a storage such as ``<zlibstorage>`` or ``<demostorage>``."""
    for name in ("base", "changes"):
        inner = getattr(storage, name, None)
        if isinstance(inner, FileStorage):
            yield inner._file_name
        elif inner is not None:
            yield from _files_below(inner)


def open_destination(
    text: str, config: Path | None, dry_run: bool, blobs: Path | None = None
) -> Any | None:
    """Open the storage to write; create a new file. Raise MigrateError.

    ``dry_run``: create nothing; return None if there is no storage yet. ``blobs``: the folder for blobs
    of a FileStorage given by its path.
    """
    opener = _from_config(text, config) or _from_uri(text)
    if opener is not None:
        _check_by_path(text, "--blobs-to", blobs)
        if not dry_run:
            return _open(text, opener)
        with _untouched():
            return _open(text, lambda: _existing(opener))
    path = Path(text)
    if not path.exists():
        if path.suffix != ".fs":
            raise MigrateError(_unknown(text, config, "a new file must be called *.fs"))
        if not path.absolute().parent.is_dir():
            raise MigrateError(f"{text!r} cannot be created: its folder does not exist")
        if blobs is not None:
            check_new_folder(blobs)
        if dry_run:
            return None
    elif not dry_run:
        # FileStorage truncates the unfinished transaction of an interrupted copy, but reports it as the
        # last one until it is opened again.
        _open(text, lambda: FileStorage(text)).close()
    if dry_run:
        folder = str(blobs) if blobs is not None and blobs.is_dir() else None
        with _untouched():
            return _open(text, lambda: FileStorage(text, read_only=True, blob_dir=folder))
    storage = _open(text, lambda: FileStorage(text, blob_dir=str(blobs) if blobs else None))
    if blobs is not None:
        remove_leftovers(storage.temporaryDirectory())
    return storage


def _existing(opener: Callable[[], Any]) -> Any | None:
    """Open a storage; return None if its file does not exist yet."""
    try:
        return opener()
    except FileNotFoundError:
        return None


def _unknown(text: str, config: Path | None, reason: str) -> str:
    section = f", or a section of {config}" if config else ""
    return (
        f"{text!r} is no storage: {reason}; write the path of a FileStorage, "
        f"a URI such as neo://name@host:port{section}"
    )


def _open(text: str, opener: Any) -> Any:
    try:
        return opener()
    except MigrateError:
        raise
    except Exception as e:
        raise MigrateError(f"storage {text!r} cannot be opened: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    if isinstance(error, LockError):
        return f"it is locked, another process has it open ({error})"
    if isinstance(error, FileStorageFormatError):
        return f"{error} is not a FileStorage"
    if isinstance(error, OSError):
        where = "" if error.filename is None else f" ({error.filename!r})"
        return f"{error.strerror}{where}" if error.strerror else str(error)
    return str(error) or type(error).__name__


def _from_uri(text: str) -> Any | None:
    """Return a factory; None if the text is not a URI."""
    scheme = _SCHEME.match(text)
    if scheme is None or Path(text).exists():
        return None
    name = scheme[0].rstrip(":")
    found = list(entry_points(group="zodburi.resolvers", name=name))
    if not found:
        raise MigrateError(
            f"no installed package opens {name}: addresses such as {text!r}; "
            "zodburi opens file: and zeo:, zodb-neo opens neo: and neos:"
        )
    try:
        factory, options = found[0].load()(text)
    except Exception as e:  # packages raise different errors
        raise MigrateError(f"address {text!r} is wrong: {_reason(e)}") from e
    unknown = sorted(set(options) - DATABASE_OPTIONS)
    if unknown:
        raise MigrateError(f"address {text!r} has unknown options: {', '.join(unknown)}")
    return factory


def _from_config(text: str, config: Path | None) -> Any | None:
    """Return the ``open`` of a section of the file; None if it has no such section."""
    if config is None:
        return None
    schema = ZConfig.loadSchemaFile(io.StringIO(_SCHEMA))
    try:
        parsed, _ = ZConfig.loadConfig(schema, str(config.absolute()))
    except ZConfig.ConfigurationError as e:
        raise MigrateError(f"configuration file {str(config)!r}: {e}") from None
    openers = {section.name: section.config.storage.open for section in parsed.databases}
    openers |= {section.name: section.open for section in parsed.storages}
    return openers.get(text.lower())
