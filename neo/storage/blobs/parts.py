"""The parts of a storage node that keep contents of blobs, with each other as neighbours."""

from __future__ import annotations

from neo.node.host import Host
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.disk import ContentDisk
from neo.storage.blobs.fetch import ContentFetch
from neo.storage.blobs.mend import Mender
from neo.storage.blobs.state import ContentStates
from neo.storage.blobs.sweep import Sweep
from neo.storage.blobs.uploads import Uploads
from neo.storage.blobs.verify import Verifier
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.events import Part
from neo.storage.links import Links, UpstreamPeers


class BlobParts:
    """``disk``: open; None if the node has no folder of contents. ``all``: in the order in which they are
    told of events."""

    def __init__(
        self,
        host: Host,
        database: Database,
        disk: ContentDisk | None,
        background: Background,
        cluster: Cluster,
        cells: Cells,
        links: Links,
        upstream: UpstreamPeers,
    ) -> None:
        self._disk = disk
        self.contents = Contents(database, disk)
        self.uploads = Uploads(self.contents)
        self.sweep = Sweep(database, self.contents, background)
        self.fetch = ContentFetch(self.contents, background, cluster, cells, links, upstream)
        self.mender = Mender(database.backend.blobs, self.contents, self.fetch, background, cells)
        self.verifier = Verifier(database, self.contents, background, cells)
        self.states = ContentStates(
            host, database.backend.blobs, self.contents, self.verifier, self.sweep
        )
        self.all: tuple[Part, ...] = (
            self.uploads,
            self.contents,
            self.sweep,
            self.fetch,
            self.mender,
            self.verifier,
        )

    def condemn(self) -> None:
        """Prepare to delete all contents, before the database is erased. Call it after :meth:`close`.
        Raise BackendFailure."""
        if self._disk is not None:
            self._disk.condemn()

    def erase(self) -> None:
        """Delete all contents: the database was erased. Raise BackendFailure."""
        if self._disk is not None:
            self._disk.open(None)

    def close(self) -> None:
        """Wait for calls in progress, and release the folder. Idempotent."""
        if self._disk is not None:
            self._disk.close()
