"""A page of Zope with a file, which it takes and gives over HTTP as Plone's images do."""

from __future__ import annotations

import shutil
from typing import Any

from AccessControl.class_init import InitializeClass
from AccessControl.SecurityInfo import ClassSecurityInfo
from OFS.SimpleItem import SimpleItem
from ZODB.blob import Blob
from ZPublisher import zpublish
from ZPublisher.Iterators import filestream_iterator


class Album(SimpleItem):
    """One file. ``length``: of its content, changed in the same transaction."""

    meta_type = "Album"
    security = ClassSecurityInfo()
    security.declareObjectPublic()

    def __init__(self, name: str) -> None:
        self.id = name
        self.length = 0
        self.blob = Blob(b"")

    @security.public  # type: ignore[untyped-decorator]
    @zpublish(methods="POST")  # type: ignore[untyped-decorator]
    def upload(self, file: Any) -> str:
        """Replace the content."""
        with self.blob.open("w") as target:
            shutil.copyfileobj(file, target)
            self.length = target.tell()
        return "stored"

    @security.public  # type: ignore[untyped-decorator]
    @zpublish  # type: ignore[untyped-decorator]
    def download(self, REQUEST: Any) -> Any:
        """Return the content: the server reads the file of the cache."""
        found = filestream_iterator(self.blob.committed(), "rb")
        REQUEST.RESPONSE.setHeader("Content-Length", str(len(found)))
        REQUEST.RESPONSE.setHeader("X-Length", str(self.length))
        return found


InitializeClass(Album)
