"""Contents of blobs: made from a name, and found in the folders of storage nodes."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ZODB.blob import Blob
from ZODB.DB import DB

from neo.protocol.blobs import Content, content_hash
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

MIB = 1 << 20
_NUMBER_BYTES = 8


# -- what applications store -----------------------------------------------------------------------


class Made(NamedTuple):
    """A content of ``size`` bytes, different for each name. Its pieces of 1 MiB differ, too."""

    name: str
    size: int

    def pieces(self) -> Iterator[bytes]:
        base = Random(self.name).randbytes(min(self.size, MIB))
        for start in range(0, self.size, MIB):
            number = start.to_bytes(_NUMBER_BYTES, "big")
            yield (base[: MIB - _NUMBER_BYTES] + number)[: self.size - start]

    def write(self, blob: Blob) -> None:
        with blob.open("w") as file:
            for piece in self.pieces():
                file.write(piece)

    def problem(self, blob: Blob) -> str | None:
        """Read the blob. Return how it differs."""
        with blob.open("r") as file:
            for number, piece in enumerate(self.pieces()):
                found = file.read(len(piece))
                if found != piece:
                    return f"{self}: MiB {number} differs, {len(found)} of {len(piece)} bytes were read"
            if file.read(1):
                return f"{self}: more bytes were read"
        return None

    def content(self) -> Content:
        """Return what the cluster calls it."""
        computed = content_hash()
        for piece in self.pieces():
            computed.update(piece)
        return Content(self.size, computed.digest())


def put(db: DB, contents: Mapping[str, Made]) -> bytes:
    """Store new blobs below the root, in one transaction. Return its tid."""
    with db.transaction() as connection:
        for key, made in contents.items():
            blob = connection.root()[key] = Blob()
            made.write(blob)
    tid: bytes = db.lastTransaction()
    return tid


def check_readable(db: DB, contents: Mapping[str, Made]) -> None:
    """Read all of the blobs."""
    with db.transaction() as connection:
        root = connection.root()
        problems = [made.problem(root[key]) for key, made in contents.items()]
    assert problems == [None] * len(contents), problems


def check_fresh(cluster: Cluster, contents: Mapping[str, Made], **options: Any) -> None:
    """Read all of the blobs with a new client, whose cache is empty."""
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS, **options))) as db:
        check_readable(db, contents)


# -- what storage nodes have -----------------------------------------------------------------------


def folder(cluster: Cluster, name: str) -> Path:
    """Return the folder of contents of a storage node."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(cluster.simple.conf.path)
    configured = parser[name].get("blob_dir")
    return Path(configured or f"{cluster.database(name)}.blobs")


def path(cluster: Cluster, name: str, content: Content) -> Path:
    """Return the file of a content on a storage node."""
    text = content.checksum.hex()
    return folder(cluster, name) / text[:2] / text


def files(cluster: Cluster, name: str) -> set[bytes]:
    """Return the checksums of the files in the folder of a storage node."""
    found: set[bytes] = set()
    for bucket in folder(cluster, name).iterdir():
        if len(bucket.name) == 2:
            found.update(bytes.fromhex(file) for file in os.listdir(bucket))
    return found


def parts(cluster: Cluster, name: str) -> dict[str, os.stat_result]:
    """Return the files that a storage node receives now."""
    found = {}
    for entry in os.scandir(folder(cluster, name) / "parts"):
        try:
            found[entry.name] = entry.stat()
        except FileNotFoundError:
            continue  # it was kept or dropped just now
    return found


def rows(cluster: Cluster, name: str) -> set[Content]:
    """Return the contents to which values of a storage node refer. Rows without a value count for
    nothing."""
    found = cluster.query(
        name, "SELECT DISTINCT size, checksum FROM content JOIN data ON data.id=content.data_id"
    )
    return {Content(size, bytes(checksum)) for size, checksum in found}


def check_folder(cluster: Cluster, name: str) -> int:
    """Check the folder of a storage node while no client stores: each row has its content, undamaged. In
    the end there is no other file, and no part. Return the number of contents."""

    def check_gone(missing: set[bytes]) -> None:
        """Files are removed after their rows: what has no file has no row by now."""
        lost = missing and missing & {content.checksum for content in rows(cluster, name)}
        assert not lost, f"{name} has no file of {len(lost)} contents"

    def problem() -> str | None:
        wanted = {content.checksum for content in rows(cluster, name)}
        present = files(cluster, name)
        check_gone(wanted - present)
        if present - wanted:
            return f"{name} has {len(present - wanted)} files without rows"
        return f"{name} has parts: {list(left)}" if (left := parts(cluster, name)) else None

    wait_until(lambda: problem() is None, f"orphans stay on {name}")
    for content in rows(cluster, name):
        computed, size = content_hash(), 0
        try:
            with open(path(cluster, name, content), "rb") as file:
                while data := file.read(MIB):
                    computed.update(data)
                    size += len(data)
        except FileNotFoundError:
            check_gone({content.checksum})
            continue
        assert Content(size, computed.digest()) == content, f"{name}: {content} is damaged"
    return len(rows(cluster, name))
