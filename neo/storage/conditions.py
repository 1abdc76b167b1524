"""What operators are told of a storage node before they ask: whatever makes requests fail, or soon will
(specification 17.32)."""

from __future__ import annotations

from collections import Counter

from neo.protocol.packets import Condition
from neo.protocol.words import counted
from neo.storage.blobs.contents import Contents
from neo.storage.database import Database
from neo.storage.disks import Disks
from neo.storage.replication.replicator import Replicator

#: With less room the node may stop at any moment: the log of SQLite alone may get so long.
FULL_BYTES = 64 << 20
#: With less room there is time to act, but not much.
LOW_BYTES = 1 << 30
#: Warnings of large disks: less than a tenth, less than a fifth.
LOW_PARTS = 10, 5
#: Time for which a failure for want of room is told.
RECENT_SECONDS = 600.0
#: Reasons that are told of cells that are not copied.
REASONS_MAX = 3


class Conditions:
    """All methods run on the loop's thread."""

    def __init__(
        self, database: Database, contents: Contents, replicator: Replicator, disks: Disks
    ) -> None:
        self._database = database
        self._contents = contents
        self._disks = disks
        self._replicator = replicator

    def describe(self) -> list[Condition]:
        """Return what is wrong now. Raise BackendFailure."""
        return [*self._room(), *self._lost(), *self._copies(), *self._refused()]

    def _room(self) -> list[Condition]:
        found: list[Condition] = []
        for what, disk in self._disks.found():
            part = next((part for part in LOW_PARTS if disk.free * part < disk.total), None)
            if part is not None or disk.free < LOW_BYTES:
                severity = "problem" if disk.free < FULL_BYTES else "warning"
                text = f"{_bytes(disk.free)} are free on the disk of its {what}"
                if part is not None:
                    text += f", less than {100 // part} % of {_bytes(disk.total)}"
                found.append(("room", severity, text, "free space on that disk, or give it a larger one"))
        at = self._contents.refused_at
        if at is not None and self._database.monotonic() - at < RECENT_SECONDS:
            text = "uploads of blobs failed for want of room in the last minutes"
            found.append(("upload", "problem", text, "free space on the disk of its contents of blobs"))
        return found

    def _lost(self) -> list[Condition]:
        contents = self._contents
        nowhere = [contents.lost[each] for each in sorted(contents.nowhere) if each in contents.lost]
        if not nowhere:
            return []
        content, oid = nowhere[0]
        lost = counted(len(nowhere), "content of a blob is", "contents of blobs are")
        text = (
            f"{lost} on no node that can be asked, the first is"
            f" {content.checksum.hex()} of object {oid.hex()}: who reads these blobs gets an error"
        )
        return [
            (
                "content",
                "problem",
                text,
                "restore the files of these contents from a backup into its blob_dir; then: neoctl check",
            )
        ]

    def _copies(self) -> list[Condition]:
        reasons = Counter[str]()
        for _, why in self._replicator.stuck():
            reasons[why] += 1
        return [
            (
                "copy",
                "problem",
                f"{counted(count, 'partition')} cannot be copied to it: {why}",
                "mend what it names: the copy is tried again all the time",
            )
            for why, count in reasons.most_common(REASONS_MAX)
        ]

    def _refused(self) -> list[Condition]:
        refusals = self._database.refusals
        if not refusals.last:
            return []
        text = (
            f"its database refused a statement, and {counted(refusals.count, 'request')} failed since:"
            f" {refusals.last}"
        )
        return [
            (
                "statement",
                "problem",
                text,
                "report this, with the log of the node; then start it again",
            )
        ]


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
