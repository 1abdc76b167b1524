"""AskVoted: the master of a synchronous backup wants rows of a transaction (specification 25.10)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from neo.net.sockets import format_address
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    FEATURE_OURS,
    Address,
    AnswerVoted,
    AskFetchVoted,
    AskVoted,
    SyncMark,
)
from neo.storage.backend.api import BackendRefused, Prepared
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.following.links import UpstreamLinks
from neo.storage.sync.received_votes import ReceivedVotes

#: Times that lacking rows are asked for. One is enough, unless connections are lost meanwhile.
FETCHES_MAX = 3


@dataclass(eq=False, repr=False)
class VoteFetch:
    """Bound: one job for each transaction that the upstream cluster finishes."""

    database: Database
    cells: Cells
    background: Background
    upstream: UpstreamLinks
    votes: ReceivedVotes

    def ask(self, peer: Peer, message_id: int, m: AskVoted) -> None:
        """Answer when all rows are here durably, with ErrorAnswer if they cannot be: TID_NOT_FOUND if the
        transaction has ended upstream (specification 25.55)."""
        if not self.cells.backup.active:
            raise ErrorAnswer(ErrorCode.NOT_READY, "this node is not one of a standby")
        self.votes.confirm(m.ttid)
        self.background.run(self._answer(peer, message_id, m))

    def left(self) -> None:
        """End the subscriptions, and drop what came of them and is not confirmed (specification
        25.18)."""
        self.upstream.unsubscribe()

    async def _answer(self, peer: Peer, message_id: int, m: AskVoted) -> None:
        try:
            await self._fetch(m)
            if m.mark is not None:
                self._mark(m.mark, m.source_dict)
        except (ConnectionLost, ErrorAnswer, BackendRefused) as e:
            code, text = ErrorCode.INCOMPLETE_TRANSACTION, str(e)
            if isinstance(e, ErrorAnswer):
                text = e.message
                if e.code is ErrorCode.TID_NOT_FOUND:  # the transaction has ended upstream
                    code = e.code
            peer.refuse(
                message_id,
                code,
                f"the rows of transaction {m.ttid.hex()} cannot be had: {text}",
            )
        else:
            self.database.answer_stored(peer, message_id, AnswerVoted(m.ttid))

    async def _fetch(self, m: AskVoted) -> None:
        partition = self.cells.partitions.partition
        wanted: dict[int, set[bytes]] = {each: set() for each in m.source_dict}
        for oid in m.oid_list:
            if (oids := wanted.get(partition(oid))) is not None:
                oids.add(oid)

        def lacking() -> list[int]:
            if not self.votes.is_confirmed(m.ttid):
                raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, "it was aborted meanwhile")
            return [
                each
                for each, oids in wanted.items()
                if not self.votes.has(m.ttid, each, oids, partition(m.ttid) == each)
            ]

        async def arrived() -> list[int]:
            while (lack := lacking()) and self.votes.arriving(m.ttid, lack):
                await self.votes.changed()
            return lack

        for _ in range(FETCHES_MAX):
            if not (lack := await arrived()):
                break
            by_source: dict[Address, list[int]] = {}
            for each in lack:
                by_source.setdefault(m.source_dict[each], []).append(each)
            for address, partitions in by_source.items():
                source = await self._connect(m.upstream_name, address)
                self.votes.forget(m.ttid, set(partitions).intersection(lacking()))
                self.upstream.subscribe(source)
                try:
                    await source.ask(AskFetchVoted(m.ttid, partitions))
                    self.votes.arrived(source, m.ttid, partitions, fetched=True)
                finally:
                    self.upstream.fetched(source)
        if lack := await arrived():
            why = self.votes.failure(m.ttid, lack[0])
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                why or f"rows are missing in partition {lack[0]}",
            )

    async def _connect(self, cluster: str, address: Address) -> Peer:
        """Return the connection with a node of the upstream cluster that knows AskFetchVoted."""
        source = await self.upstream.connect(cluster, address)
        if source.node is None or FEATURE_OURS not in source.node.features:
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"{format_address(address)} of the upstream cluster must be updated to take part",
            )
        return source

    def _mark(self, mark: SyncMark, here: Container[int]) -> None:
        """Store the mark, and the checks in these partitions (specification 25.60)."""
        ttid, xid, since, text, partitions, _, checked = mark
        partition = self.cells.partitions.partition
        checks = [(oid, ZERO_TID) for oid in checked if partition(oid) in here]
        self.database.backend.marks.mark_prepared(Prepared(ttid, xid, since, text, partitions), checks)
        self.votes.marked(ttid)
