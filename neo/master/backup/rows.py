"""Storage nodes of a synchronous backup are asked for the rows of a transaction (specification 25.10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from neo.master.backup.pipeline import Cells, Rows
from neo.master.cluster import Cluster
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AbortTransaction, Address, AnswerVoted, AskVoted, SyncMark

#: Called with a node that has answered, the partitions that it was asked for, and None or why it did not
#: get the rows: TID_NOT_FOUND if the transaction has ended upstream.
Answered = Callable[[int, Collection[int], ErrorAnswer | None], None]


class RowRequests:
    """``name``: of the upstream cluster. ``source``: return a storage node of it that has a partition;
    the same one as long as possible, because nodes that fetch from it subscribe there (specification
    25.11)."""

    def __init__(
        self, cluster: Cluster, name: str, source: Callable[[int], Address | None]
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._source = source

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
            storage.ask(request).then(_callback(storage, nid, partitions, rows, answered, ttid))

    def _request(
        self,
        ttid: bytes,
        oids: Collection[bytes],
        mark: SyncMark | None,
        partitions: Collection[int],
    ) -> AskVoted | None:
        sources = {}
        for partition in partitions:
            if (source := self._source(partition)) is None:
                return None
            sources[partition] = source
        own = [oid for oid in oids if self._cluster.partitions.partition(oid) in sources]
        return AskVoted(ttid, self._name, sources, own, mark)

    def abort(self, ttid: bytes, nids: Iterable[int]) -> None:
        """Let these nodes drop the rows."""
        for nid in nids:
            if (storage := self._cluster.connected.get(nid)) is not None:
                storage.send(AbortTransaction(ttid, []))


def _callback(
    storage: Peer,
    nid: int,
    partitions: Collection[int],
    rows: Rows,
    answered: Answered,
    ttid: bytes,
) -> Callable[[Future[AnswerVoted]], None]:
    def callback(future: Future[AnswerVoted]) -> None:
        try:
            future.result()
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            rows.answered(nid)
            text = f"{storage!r} did not get transaction {ttid.hex()}: {e.message}"
            answered(nid, partitions, ErrorAnswer(e.code, text))
            return
        rows.answered(nid)
        answered(nid, partitions, None)

    return callback
