"""Open the storage of a source without a change to its files.

Only the classes of ZODB know which files a section or a URI opens, perhaps below wrappers such as
``<zlibstorage>`` and ``<demostorage>``. A FileStorage that is opened to be written takes a lock,
truncates an unfinished transaction and saves its index; a folder of blobs gets what it lacks. So while a
source is opened, these classes open to read only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ZODB.blob import FilesystemHelper
from ZODB.FileStorage import FileStorage

#: The layout of the cache of a ZEO client, which is no part of the source.
_CACHE_LAYOUT = "zeocache"


@contextmanager
def untouched() -> Iterator[None]:
    """Open FileStorages to read only during the block, and create no folder of blobs.

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
