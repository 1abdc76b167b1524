"""Storage nodes of a synchronous backup are asked for the rows of a transaction (specification 25.10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from neo.master.cluster import Cluster
from neo.master.following.sources import Sources
from neo.master.sync.pipeline import Cells, Rows
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AbortTransaction, AnswerVoted, AskVoted, SyncMark

#: Called with a node that has answered, the partitions that it was asked for, and None or why it did not
#: get the rows: TID_NOT_FOUND if the transaction has ended upstream.
Answered = Callable[[int, Collection[int], ErrorAnswer | None], None]


class RowRequests:
    """``sources``: the storage nodes of the upstream cluster."""

    def __init__(self, cluster: Cluster, sources: Sources) -> None:
        self._cluster = cluster
        self._sources = sources

    def ask(
        self,
        ttid: bytes,
        oids: Collection[bytes],
        mark: SyncMark | None,
        rows: Rows,
        cells: Cells,
        answered: Answered,
    ) -> None:
        """Ask the nodes of these cells for the rows that they were not asked for. A node that is lost
        does not answer. If a partition cannot be read in the upstream cluster, its first node counts as
        one that failed, and no other is asked."""
        for nid, partitions in rows.lacking(cells).items():
            if (storage := self._cluster.connected.get(nid)) is None:
                continue
            request = self._request(ttid, oids, mark, partitions)
            if request is None:
                text = "the upstream cluster does not serve all partitions"
                answered(nid, partitions, ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, text))
                return
            rows.ask(nid, partitions)
            asked = _Asked(storage, nid, ttid, partitions, rows, answered)
            storage.ask(request).then(asked.answer)

    def _request(
        self,
        ttid: bytes,
        oids: Collection[bytes],
        mark: SyncMark | None,
        partitions: Collection[int],
    ) -> AskVoted | None:
        sources = {}
        for partition in partitions:
            if (source := self._sources.steady(partition)) is None:
                return None
            sources[partition] = source
        own = [oid for oid in oids if self._cluster.partitions.partition(oid) in sources]
        return AskVoted(ttid, self._sources.name, sources, own, mark)

    def abort(self, ttid: bytes, nids: Iterable[int]) -> None:
        """Let these nodes drop the rows."""
        for nid in nids:
            if (storage := self._cluster.connected.get(nid)) is not None:
                storage.send(AbortTransaction(ttid, []))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pending AskVoted."""

    storage: Peer
    nid: int
    ttid: bytes
    partitions: Collection[int]
    rows: Rows
    answered: Answered

    def answer(self, future: Future[AnswerVoted]) -> None:
        error: ErrorAnswer | None = None
        try:
            future.result()
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            text = f"{self.storage!r} did not get transaction {self.ttid.hex()}: {e.message}"
            error = ErrorAnswer(e.code, text)
        self.rows.answered(self.nid)
        self.answered(self.nid, self.partitions, error)
