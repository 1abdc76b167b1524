"""A client of a simulated cluster that commits again and again, whichever nodes are away."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ZODB.blob import Blob
from ZODB.DB import DB

from tests.simulator.cluster import Cluster
from tests.simulator.workloads.base import EXPECTED

#: Virtual time within which the client must go on when the cluster serves.
GO_ON_SECONDS = 300.0


class Writing(ABC):
    """A client that writes. ``commits``: the number of acknowledged transactions."""

    def __init__(self, cluster: Cluster) -> None:
        self.commits = 0
        self.cluster = cluster
        self.process = cluster.client()
        self._ending = self._ended = False
        self.process.spawn(self._run, "writer")

    def _run(self) -> None:
        db = self.open()
        while not self._ending:
            try:
                self.step(db)
                self.commits += 1
            except EXPECTED:
                pass  # a node is away
        db.storage.sync()
        self.check(db)
        db.close()
        self._ended = True

    def open(self) -> DB:
        return DB(self.cluster.storage(self.process, wait_timeout=5.0))

    @abstractmethod
    def step(self, db: DB) -> None:
        """Execute one transaction."""

    @abstractmethod
    def check(self, db: DB) -> None:
        """Check the data at the end, when all nodes are connected."""

    def wait_commits(self, count: int) -> None:
        goal = self.commits + count
        self.cluster.world.run_until(lambda: self.commits >= goal, GO_ON_SECONDS, "commits")

    def end(self) -> None:
        self._ending = True
        self.cluster.world.run_until(lambda: self._ended, GO_ON_SECONDS, "the client ends")

    def kill(self) -> None:
        self.process.dead = True
        for thread in self.process.members:
            thread.resume()


class Counter(Writing):
    """Increments one object, which never goes back."""

    def step(self, db: DB) -> None:
        with db.transaction() as connection:
            connection.root()["value"] = connection.root().get("value", 0) + 1

    def check(self, db: DB) -> None:
        with db.transaction() as connection:
            assert connection.root()["value"] >= self.commits


class BlobWriter(Writing):
    """Stores one blob."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        """``folder``: for blobs of the client."""
        self.folder = folder
        super().__init__(cluster)

    def open(self) -> DB:
        return DB(self.cluster.storage(self.process, wait_timeout=5.0, blob_dir=self.folder))

    def step(self, db: DB) -> None:
        with db.transaction() as connection:
            blob = connection.root().setdefault("blob", Blob())
            with blob.open("w") as file:
                file.write(b"content")

    def check(self, db: DB) -> None:
        with db.transaction() as connection, connection.root()["blob"].open() as file:
            assert file.read() == b"content"
