"""Contents that this node fetches from others, before it writes rows that refer to them (specification
26.17 to 26.19).

A transfer asks the node that sent the row, then other nodes with a readable cell of the object, in a
backup also those of the upstream cluster. It goes on with the next one where the last one stopped, also
after a restart: the part stays on the disk. All who want the same content share its transfer; if that
fails, each asks the nodes of its own object.

The rows that need a content may never come again: its cell was taken away, or it was packed. So parts of
transfers that did not end are deleted when nothing is left to be fetched (specification 26.28).

Bound: TRANSFERS_MAX at a time, each with PIECES_AHEAD pieces in memory. Others wait for their turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.blobs import PIECE_BYTES, PIECES_AHEAD, Content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import FEATURE_BLOBS, AnswerBlob, AskBlob, NotifyBlobDamaged, Ping
from neo.storage.background import Background
from neo.storage.blobs.contents import NO_FOLDER, Contents
from neo.storage.blobs.disk import FETCH, ContentMismatch
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.events import Part
from neo.storage.links import Links, UpstreamPeers
from neo.storage.replication.failure import FetchFailed, NoSource

logger = logging.getLogger("neo.storage")

#: Transfers at a time: a few hide the time of a round trip and of a sync for small contents.
TRANSFERS_MAX = 4
#: Longer than the pause after which a fetch of rows that failed is made again.
IDLE_SECONDS = 5.0
#: In :class:`~neo.storage.links.Links`.
USER = "contents"
#: A node that refuses with one of these does not have the content.
_WITHOUT = (ErrorCode.OID_NOT_FOUND, ErrorCode.CHECKING_ERROR)

T = TypeVar("T")


class _Wanted(NamedTuple):
    oid: bytes
    content: Content

    @property
    def part(self) -> str:
        return f"{FETCH}{self.content.checksum.hex()}"

    def __str__(self) -> str:
        return f"content {self.content} of object {self.oid.hex()}"


class ContentFetch(Part):
    """All methods run on the loop's thread."""

    def __init__(
        self,
        contents: Contents,
        background: Background,
        cluster: Cluster,
        cells: Cells,
        links: Links,
        upstream: UpstreamPeers,
    ) -> None:
        self._contents = contents
        self._background = background
        self._cluster = cluster
        self._cells = cells
        self._links = links
        self._upstream = upstream
        #: Whether a content is here durably, by checksum.
        self._transfers: dict[bytes, Future[bool]] = {}
        self._running = 0
        self._waiting: deque[Future[None]] = deque()
        #: Whether parts that no transfer goes on with are to be deleted.
        self._tidying = False

    def here(self, content: Content) -> bool:
        """Return whether a row with this content may be written now."""
        return self._contents.has(content.checksum)

    async def fetch(self, oid: bytes, content: Content, source: Peer | None) -> bool:
        """Return True when a content is here durably: the caller writes the row. Return False if all
        nodes that should have it were asked, and none has it. In both cases the caller calls
        :meth:`written` afterwards. Raise FetchFailed if it may be had later.

        ``source``: the node that sent the row. Must run in a job of the operation.
        """
        contents, checksum = self._contents, content.checksum
        if not contents.enabled:
            raise FetchFailed(f"object {oid.hex()} has a blob: {NO_FOLDER}")
        contents.hold(checksum)
        try:
            if contents.has(checksum):
                return True
            while (transfer := self._transfers.get(checksum)) is not None:
                if await _succeeds(transfer):
                    return True
                # It was begun for another object: other nodes have a copy of this one.
            transfer = self._transfers[checksum] = Future()
            self._background.run(self._run(_Wanted(oid, content), source, transfer))
            return await transfer
        except BaseException:
            contents.release(checksum)
            raise

    def written(self, content: Content) -> None:
        """End what :meth:`fetch` began: the row is written, or is not wanted any more."""
        self._contents.release(content.checksum)

    def lost(self, oid: bytes, content: Content) -> None:
        """Note, before a committed row is written, that no node has its content: it is asked for again
        until one has it (:mod:`neo.storage.blobs.mend`)."""
        logger.error("%s is lost: no node has it; it is asked for again", _Wanted(oid, content))
        self._contents.missing(content, oid)

    def operation_started(self) -> None:
        """Look for parts that an earlier operation or process left."""
        if self._contents.enabled:
            self._begin_tidying()

    def operation_stopped(self) -> None:
        """Forget the transfers, whose jobs are cancelled."""
        self._transfers.clear()
        self._waiting.clear()
        self._running = 0
        self._tidying = False

    # -- a transfer --------------------------------------------------------------------------------

    async def _run(self, wanted: _Wanted, source: Peer | None, transfer: Future[bool]) -> None:
        if self._running >= TRANSFERS_MAX:
            turn: Future[None] = Future()
            self._waiting.append(turn)
            await turn
        else:
            self._running += 1
        try:
            found = await self._transfer(wanted, source)
        except FetchFailed as e:
            self._end(wanted)
            self._begin_tidying()
            transfer.fail(e)
        else:
            self._end(wanted)
            transfer.resolve(found)

    def _end(self, wanted: _Wanted) -> None:
        del self._transfers[wanted.content.checksum]
        if self._waiting:
            self._waiting.popleft().resolve(None)
        else:
            self._running -= 1
        if not self._transfers:
            self._links.release(USER)

    async def _transfer(self, wanted: _Wanted, source: Peer | None) -> bool:
        failures: list[str] = []
        without = True
        for each in self._sources(wanted, source):
            try:
                peer = await self._connect(each) if isinstance(each, int) else each
                if await self._receive(wanted, peer):
                    return True
                failures.append(f"{peer} sent another content")
            except ErrorAnswer as e:
                failures.append(f"{peer}: {e}")
                without &= e.code in _WITHOUT
            except ConnectionLost as e:
                failures.append(str(e))
                without = False
        if not failures:
            why = "no other node has a readable cell of the object"
            raise NoSource(f"{wanted} cannot be fetched: {why}")
        reasons = "; ".join(failures)
        if not without:
            raise FetchFailed(f"{wanted} cannot be fetched: {reasons}")
        logger.info("%s is on no node: %s", wanted, reasons)
        self._contents.disk.drop(wanted.part)
        return False

    def _sources(self, wanted: _Wanted, source: Peer | None) -> list[Peer | int]:
        """Return the nodes that should have the content. Ids of an upstream cluster mean other nodes
        here."""
        partitions, nodes = self._cells.partitions, self._cluster.nodes
        nids = partitions.readable(partitions.partition(wanted.oid))
        first = None if source is None else source.node
        others = [nid for nid in nids if nid != self._cluster.nid and nodes.get(nid) is not first]
        upstream = [peer for peer in self._upstream.accepted.values() if peer is not source]
        return [*([] if source is None else [source]), *others, *upstream]

    async def _connect(self, nid: int) -> Peer:
        """Return the connection with a node of this cluster, when its features are known: it tells them
        after it has accepted. Raise ConnectionLost."""
        peer = await self._links.connect(nid, USER)
        if peer.node is None or FEATURE_BLOBS not in peer.node.features:
            await peer.ask(Ping())
        return peer

    async def _receive(self, wanted: _Wanted, peer: Peer) -> bool:
        """Receive what is missing from one node. Return False if the whole is another content. Raise
        ErrorAnswer, ConnectionLost; FetchFailed for an error of the own disk."""
        if peer.node is None or FEATURE_BLOBS not in peer.node.features:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, "it keeps no contents of blobs")
        content = wanted.content
        begun = offset = await self._length(wanted)
        if offset > content.size:
            offset = 0
        asked = offset
        answers: deque[Future[AnswerBlob]] = deque()
        while offset < content.size or not offset:
            while len(answers) < PIECES_AHEAD and asked < content.size:
                length = min(PIECE_BYTES, content.size - asked)
                answers.append(peer.ask(AskBlob(wanted.oid, content.checksum, asked, length)))
                asked += length
            data = (await answers.popleft()).data if answers else b""
            await self._append(wanted, offset, data)
            expected = min(PIECE_BYTES, content.size - offset)
            offset += len(data)
            if len(data) < expected or not content.size:
                break  # the file of the peer is too short, or the content is empty
        try:
            await self._keep(wanted)
        except ContentMismatch as e:
            if begun:
                # What an earlier source sent may be wrong: ask this one for the whole.
                logger.warning("%s came damaged from several nodes: %s", wanted, e)
                return await self._receive(wanted, peer)
            logger.error("%s does not match its checksum, as it came from %s: %s", wanted, peer, e)
            peer.send(NotifyBlobDamaged(wanted.oid, content.checksum))
            return False
        return True

    async def _length(self, wanted: _Wanted) -> int:
        """Return what is here of an interrupted transfer."""
        length: Future[int] = Future()
        self._contents.disk.resume(wanted.part, self._contents.guard(_settle(length)))
        return await _of_disk(length)

    async def _append(self, wanted: _Wanted, offset: int, data: bytes) -> None:
        written: Future[None] = Future()
        done = self._contents.guard(_settle(written))
        self._contents.disk.append(wanted.part, offset, data, done)
        try:
            await _of_disk(written)
        except ContentMismatch as e:
            raise FetchFailed(f"{wanted} cannot be kept: {e}") from None

    async def _keep(self, wanted: _Wanted) -> None:
        """Make the part durable. Raise ContentMismatch: it is deleted; FetchFailed."""
        kept: Future[None] = Future()
        self._contents.keep(wanted.part, wanted.content, _settle(kept))
        await _of_disk(kept)

    # -- what failed transfers left ------------------------------------------------------------------

    def _begin_tidying(self) -> None:
        if not self._tidying:
            self._tidying = True
            self._background.run(self._tidy())

    async def _tidy(self) -> None:
        """Delete the parts that no transfer will go on with."""
        idle = 0
        while idle < 2:
            await self._background.sleep(IDLE_SECONDS)
            idle = 0 if self._expecting() else idle + 1
        found: Future[list[str]] = Future()
        self._contents.disk.fetched(self._contents.guard(_settle(found)))
        try:
            left = await found
        except OSError as e:
            logger.error("what interrupted transfers of contents left cannot be deleted: %s", e)
            self._background.run(self._tidy())
            return
        self._tidying = False
        used = {f"{FETCH}{checksum.hex()}" for checksum in self._transfers}
        for part in left:
            if part not in used:
                self._contents.disk.drop(part)

    def _expecting(self) -> bool:
        """Return whether rows or contents are lacking here, which may need what transfers left. A node
        of a backup lacks nothing while it is connected to the upstream cluster and fetches nothing."""
        cells = self._cells
        incomplete = len(cells.readable()) < len(cells.assigned())
        cut_off = cells.backup.active and not self._upstream.accepted
        return bool(self._transfers or self._contents.lost or incomplete or cut_off)


async def _succeeds(transfer: Future[bool]) -> bool:
    """Return whether the transfer that another caller began brought the content."""
    try:
        return await transfer
    except FetchFailed:
        return False


def _settle(future: Future[T]) -> Callable[[T | Exception], None]:
    """Return a callback for the disk that settles a future."""

    def done(found: T | Exception) -> None:
        if isinstance(found, Exception):
            future.fail(found)
        else:
            future.resolve(found)

    return done


async def _of_disk(result: Future[T]) -> T:
    try:
        return await result
    except OSError as e:
        raise FetchFailed(f"a content cannot be kept: {e}") from None
