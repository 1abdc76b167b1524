"""The copies in the folder of an archive (specification 28.1 to 28.4).

A copy is a folder of its own, named by its tid: ``partition-N.rows`` of each partition, ``contents`` with
the contents of blobs that no copy before it in its chain has, and ``manifest.json``, which is written
last. So a copy without a manifest is incomplete, and to remove a copy is to remove its folder. """

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from neo.archive import manifest as manifests
from neo.archive.disk import OS_FILES, Files, make_folder, sync_folder, write_file
from neo.archive.format import ArchiveDamaged, ArchiveError
from neo.archive.manifest import NAME, Manifest

CONTENTS = "contents"
_TID = re.compile(r"[0-9a-f]{16}")
#: Bytes of a manifest at most: of 32,768 partitions, with room.
_MANIFEST_MAX = 64 << 20


class ArchiveFolder:
    """``path``: of the folder, which may be missing. Methods raise OSError, which names the file."""

    def __init__(self, path: str, files: Files = OS_FILES) -> None:
        self.path = Path(path)
        self.files = files

    def copy(self, tid: bytes) -> Path:
        """Return the folder of a copy."""
        return self.path / tid.hex()

    def partition(self, tid: bytes, number: int) -> Path:
        """Return the file of a partition."""
        return self.copy(tid) / f"partition-{number}.rows"

    def content(self, tid: bytes, checksum: bytes) -> Path:
        """Return the file of a content, if this copy has it."""
        name = checksum.hex()
        return self.copy(tid) / CONTENTS / name[:2] / name

    def tids(self) -> list[bytes]:
        """Return the tids of all copies, ascending, also of incomplete ones."""
        names = sorted(self.files.folders(self.path))
        return [bytes.fromhex(name) for name in names if _TID.fullmatch(name)]

    def manifest(self, tid: bytes) -> Manifest | ArchiveDamaged | None:
        """Return the manifest of a copy; None if it is incomplete. Raise ArchiveError if a newer release
        wrote it."""
        path = self.copy(tid) / NAME
        try:
            with self.files.open(path) as file:
                data = file.read(_MANIFEST_MAX)
        except FileNotFoundError:
            return None
        try:
            found = manifests.decode(path, data)
        except ArchiveDamaged as e:
            return e
        if found.tid != tid:
            return ArchiveDamaged(path, 0, "it belongs to another copy")
        return found

    def complete(self) -> dict[bytes, Manifest | ArchiveDamaged]:
        """Return the manifests of all complete copies by tid, ascending."""
        found = {tid: self.manifest(tid) for tid in self.tids()}
        return {tid: each for tid, each in found.items() if each is not None}

    def newest(self, cluster: str) -> Manifest | None:
        """Return the newest complete copy. Raise ArchiveError if it is damaged, or of another cluster."""
        found = self.complete()
        if not found:
            return None
        last = found[max(found)]
        if isinstance(last, ArchiveDamaged):
            raise last
        if last.cluster != cluster:
            raise ArchiveError(
                f"{self.path} has copies of cluster {last.cluster!r}, and this is {cluster!r}: choose"
                " another folder"
            )
        return last

    def chain(self, last: Manifest) -> list[Manifest]:
        """Return the copies that a complete copy needs, the full one first. Raise ArchiveError."""
        copies = [last]
        while (after := copies[0].after) is not None:
            found = self.manifest(after)
            if isinstance(found, ArchiveDamaged):
                raise found
            if found is None or found.digest != copies[0].after_digest:
                raise ArchiveError(
                    f"the copy {self.copy(copies[0].tid)} follows {self.copy(after)}, which is not here"
                    " as it was: make a full copy"
                )
            copies.insert(0, found)
        return copies

    def begin(self, tid: bytes) -> None:
        """Make the folder of a copy, durably, if it is missing."""
        make_folder(self.files, self.copy(tid) / CONTENTS)

    def finish(self, manifest: Manifest, writer: str) -> None:
        """Write the manifest: the copy is complete. ``writer``: tells apart nodes that do so."""
        path = self.copy(manifest.tid) / NAME
        write_file(self.files, path, manifests.encode(manifest), f".{writer}")

    def remove(self, tid: bytes) -> None:
        """Remove a copy, its manifest first. Idempotent."""
        folder, files = self.copy(tid), self.files
        with suppress(FileNotFoundError):
            files.unlink(folder / NAME)
        with suppress(FileNotFoundError):  # another node, or an earlier call, removed it
            sync_folder(files, folder)
            files.remove_folder(folder)
        with suppress(FileNotFoundError):
            sync_folder(files, self.path)
