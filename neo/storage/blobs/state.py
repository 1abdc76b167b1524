"""What operators are told about the contents of this node (specification 26.23)."""

from __future__ import annotations

from neo.node.host import Host
from neo.protocol.packets import AnswerContentState, AnswerLostContents, LostContentRow
from neo.storage.backend.api import References
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.sweep import Sweep
from neo.storage.blobs.verify import Verifier

#: Time for which the totals are reused: to count the rows takes a second for some millions.
GOOD_SECONDS = 60.0
#: Revisions in one answer: an operator reads them.
LISTED_MAX = 1000


class ContentStates:
    def __init__(
        self, host: Host, references: References, contents: Contents, verifier: Verifier, sweep: Sweep
    ) -> None:
        self._host = host
        self._references = references
        self._contents = contents
        self._verifier = verifier
        self._sweep = sweep
        self._totals = 0, 0
        self._until: float | None = None

    def describe(self) -> AnswerContentState:
        """Return the state now; the totals may be a minute old. Raise BackendFailure."""
        now = self._host.monotonic()
        if self._until is None or now >= self._until:
            self._totals = self._references.content_totals()
            self._until = now + GOOD_SECONDS
        contents = self._contents
        disk = contents.room()
        free = 0 if disk is None else disk.free
        left = self._verifier.left + (not self._sweep.done)
        return AnswerContentState(*self._totals, free, len(contents.lost), left)

    def lost(self, nid: int, length: int) -> AnswerLostContents:
        """Return the revisions whose contents this node, ``nid``, lost. Raise BackendFailure."""
        rows: list[LostContentRow] = []
        length = min(length, LISTED_MAX)
        for checksum, (content, _) in sorted(self._contents.lost.items()):
            if len(rows) >= length:
                break
            for oid, tid in self._references.objects_with(checksum, length - len(rows)):
                rows.append((nid, oid, tid, checksum, content.size))
        return AnswerLostContents(rows)
