"""Contents that clients send (specification 26.10 to 26.13).

An upload belongs to an object of a transaction on one connection, and lives until the transaction votes
or ends: a client that resolves a conflict stores the record again, without the content. Its last piece
makes it a content of this node, which the upload holds. One that comes in one piece never is a part.

Bounds: a client has pieces of JOBS_BYTES (:mod:`neo.node.backlog`) on their way to the disk, PARTS_MAX
uploads without their last piece, and one store that waits for each upload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from neo.node.peer import Peer
from neo.protocol.blobs import PIECE_BYTES, SIZE_MAX, Content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AnswerStoreBlob, AskStoreBlob
from neo.storage.blobs.contents import NO_FOLDER, Contents
from neo.storage.blobs.disk import ContentMismatch
from neo.storage.commit.transactions import Client
from neo.storage.events import Part

logger = logging.getLogger("neo.storage")

#: Uploads of a connection that wait for more pieces. Each thread of a client sends one at a time.
PARTS_MAX = 1000

#: Called with None when the content is durable, else with why it will not be.
Resume = Callable[[ErrorAnswer | None], None]


@dataclass(eq=False, slots=True)
class Upload:
    """``part``: its name on the disk. ``content``: None until the last piece came."""

    part: str
    size: int = 0  # of the pieces that came
    content: Content | None = None
    durable: bool = False
    failure: ErrorAnswer | None = None
    resume: Resume | None = None  # of a store that waits


@dataclass(eq=False, slots=True)
class _Transaction:
    uploads: dict[bytes, Upload] = field(default_factory=dict)  # oid →
    #: Contents that are being made durable.
    arriving: dict[Content, Upload] = field(default_factory=dict)


class _Piece(NamedTuple):
    """A piece that is on its way to the disk, and its request."""

    client: Client
    peer: Peer
    message_id: int
    m: AskStoreBlob
    upload: Upload


class Uploads(Part):
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._numbers = count(1)
        #: Empty while no client stores blobs. The key names the connection and the ttid.
        self.transactions: dict[tuple[Client, bytes], _Transaction] = {}
        #: Uploads without their last piece, by connection.
        self._parts: dict[Client, set[Upload]] = {}

    # -- pieces ------------------------------------------------------------------------------------

    def receive(self, client: Client, peer: Peer, message_id: int, m: AskStoreBlob) -> None:
        """Handle AskStoreBlob: write the piece, and answer later. Raises ErrorAnswer."""
        if not self._contents.enabled:
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, NO_FOLDER)
        if len(m.data) > PIECE_BYTES or m.offset > SIZE_MAX - PIECE_BYTES:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"{len(m.data)} bytes at {m.offset} of a content were sent: at most {PIECE_BYTES} bytes"
                f" below {SIZE_MAX} expected",
            )
        upload = self._begin(client, m) if m.offset == 0 else self._find(client, m)
        upload.size += len(m.data)
        if m.checksum is not None:
            upload.content = content = Content(upload.size, m.checksum)
            self._parts[client].discard(upload)
            self.transactions[client, m.ttid].arriving[content] = upload
            self._contents.hold(m.checksum)
        peer.begin_job(len(m.data))
        piece = _Piece(client, peer, message_id, m, upload)
        if m.offset == 0 and upload.content is not None:
            self._contents.store(m.data, upload.content, partial(self._stored, piece))
            return
        written = self._contents.guard(partial(self._written, piece))
        self._contents.disk.append(upload.part, m.offset, m.data, written)
        # After the piece: the disk keeps the order of calls for a part.
        if upload.content is not None:
            self._contents.keep(upload.part, upload.content, partial(self._kept, piece))

    def _begin(self, client: Client, m: AskStoreBlob) -> Upload:
        """Begin an upload, in the place of an earlier one of the object."""
        transaction = self.transactions.get((client, m.ttid))
        if transaction is None:
            transaction = self.transactions[client, m.ttid] = _Transaction()
        if (old := transaction.uploads.pop(m.oid, None)) is not None:
            self._drop(client, transaction, old, "it was sent anew")
        parts = self._parts.setdefault(client, set())
        if len(parts) >= PARTS_MAX:
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"the client sends {len(parts)} contents at a time: no more are accepted",
            )
        upload = transaction.uploads[m.oid] = Upload(f"upload-{next(self._numbers)}")
        parts.add(upload)
        return upload

    def _find(self, client: Client, m: AskStoreBlob) -> Upload:
        """Return the upload that this piece continues."""
        transaction = self.transactions.get((client, m.ttid))
        upload = None if transaction is None else transaction.uploads.get(m.oid)
        if upload is None:
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"object {m.oid.hex()}: this node has no beginning of the content in transaction"
                f" {m.ttid.hex()}: begin the transaction again",
            )
        if upload.failure is not None:
            raise upload.failure
        if upload.content is not None or upload.size != m.offset:
            expected = "no more" if upload.content is not None else f"the one at {upload.size}"
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"object {m.oid.hex()}: a piece at {m.offset} of the content was sent, {expected}"
                " expected",
            )
        return upload

    def _written(self, piece: _Piece, error: Exception | None) -> None:
        if error is not None:
            self._fail(piece, error)
        if piece.m.checksum is None:
            self._answer(piece)
        piece.peer.end_job(len(piece.m.data))

    def _stored(self, piece: _Piece, error: Exception | None) -> None:
        self._kept(piece, error)
        piece.peer.end_job(len(piece.m.data))

    def _kept(self, piece: _Piece, error: Exception | None) -> None:
        """Answer the last piece: the content is durable, or failed."""
        upload, content = piece.upload, piece.upload.content
        if error is not None:
            self._fail(piece, error)
        elif upload.failure is None and content is not None:
            upload.durable = True
            arriving = self.transactions[piece.client, piece.m.ttid].arriving
            if arriving.get(content) is upload:
                del arriving[content]
        # Before the store that waits, because it was sent before.
        self._answer(piece)
        _resume(upload, None)

    def _answer(self, piece: _Piece) -> None:
        failure, m = piece.upload.failure, piece.m
        if failure is not None:
            piece.peer.refuse(piece.message_id, failure.code, failure.message)
        else:
            piece.peer.answer(piece.message_id, AnswerStoreBlob(m.ttid, m.oid))

    # -- failures ----------------------------------------------------------------------------------

    def _fail(self, piece: _Piece, error: Exception) -> None:
        """Give up an upload, unless it has ended: the part is dropped, and its transaction cannot vote,
        unless an equal content is here."""
        client, m, upload = piece.client, piece.m, piece.upload
        if upload.failure is not None:
            return
        self._contents.not_written(error)
        what = f"the content of object {m.oid.hex()} is not stored: {error}"
        if isinstance(error, ContentMismatch):
            code = ErrorCode.PROTOCOL_ERROR
        else:
            code = ErrorCode.INCOMPLETE_TRANSACTION
        logger.error("transaction %s: %s", m.ttid.hex(), what)
        why = ErrorAnswer(code, what)
        self._end(client, self.transactions[client, m.ttid], upload, why)
        content = upload.content
        here = content is not None and self._contents.has(content.checksum)
        _resume(upload, None if here else why)

    def _end(
        self, client: Client, transaction: _Transaction, upload: Upload, why: ErrorAnswer
    ) -> None:
        """Free what an upload has on the disk."""
        upload.failure = why
        if upload.content is None:
            self._parts[client].discard(upload)
        else:
            if transaction.arriving.get(upload.content) is upload:
                del transaction.arriving[upload.content]
            self._contents.release(upload.content.checksum)
        if not upload.durable:
            self._contents.disk.drop(upload.part)

    def _drop(self, client: Client, transaction: _Transaction, upload: Upload, why: str) -> None:
        if upload.failure is None:
            failure = ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, f"a content is dropped: {why}")
            self._end(client, transaction, upload, failure)
            _resume(upload, failure)

    # -- transactions ------------------------------------------------------------------------------

    def await_content(
        self, client: Client, ttid: bytes, oid: bytes, content: Content, resume: Resume
    ) -> bool:
        """Return whether a row with this content may be written now. Else ``resume`` is called when it
        may, or why it may not. Raises ErrorAnswer if the content is not here and not on its way."""
        if not self._contents.enabled:
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, NO_FOLDER)
        # The transaction's own uploads first: the database need not be asked for what is on its way.
        own = self._own(client, ttid, oid, content)
        if own is not None and own.failure is None:
            if own.durable:
                return True
            if own.resume is not None:
                raise ErrorAnswer(
                    ErrorCode.PROTOCOL_ERROR,
                    f"object {oid.hex()}: another store waits for its content {content}",
                )
            own.resume = resume
            return False
        if self._contents.has(content.checksum):
            return True
        if own is not None and own.failure is not None:
            raise own.failure
        raise ErrorAnswer(
            ErrorCode.INCOMPLETE_TRANSACTION,
            f"object {oid.hex()} refers to content {content}, which is not on this node: send it before"
            " the record",
        )

    def _own(self, client: Client, ttid: bytes, oid: bytes, content: Content) -> Upload | None:
        """Return the upload of a content in a transaction: that of the object, or one that arrives."""
        transaction = self.transactions.get((client, ttid))
        if transaction is None:
            return None
        own = transaction.uploads.get(oid)
        return own if own and own.content == content else transaction.arriving.get(content)

    def awaited(self, client: Client, ttid: bytes) -> bool:
        """Return whether a store of the transaction waits for a content."""
        transaction = self.transactions.get((client, ttid))
        return transaction is not None and any(
            upload.resume is not None for upload in transaction.uploads.values()
        )

    def check(self, client: Client, ttid: bytes) -> None:
        """Raise ErrorAnswer if a content of the transaction is not durable: it must not vote."""
        transaction = self.transactions.get((client, ttid))
        if transaction is None:
            return
        for oid, upload in transaction.uploads.items():
            # An equal content, of another object, may be durable before.
            content = upload.content
            here = content is not None and self._contents.has(content.checksum)
            if not here:
                reason = "it is not complete" if upload.failure is None else upload.failure.message
                raise ErrorAnswer(
                    ErrorCode.INCOMPLETE_TRANSACTION,
                    f"transaction {ttid.hex()} cannot vote: the content of object {oid.hex()} is not"
                    f" durable here: {reason}",
                )

    def end(self, client: Client, ttid: bytes, why: str) -> None:
        """Forget the uploads of a transaction. Its rows, if any, need their contents from now on.
        ``why``: for requests that have no answer yet."""
        transaction = self.transactions.pop((client, ttid), None)
        if transaction is not None:
            for upload in transaction.uploads.values():
                self._drop(client, transaction, upload, why)

    def connection_lost(self, client: Client) -> None:
        """Drop the uploads of a connection that ended."""
        for ttid in [ttid for owner, ttid in self.transactions if owner == client]:
            self.end(client, ttid, "the connection ended")
        self._parts.pop(client, None)

    # -- events ------------------------------------------------------------------------------------

    def client_lost(self, nid: int) -> None:
        """Drop the uploads of a client that the master lost."""
        for client in {client for client, _ in self.transactions if client.nid == nid}:
            self.connection_lost(client)

    def operation_stopped(self) -> None:
        """Drop all uploads."""
        for client in {client for client, _ in self.transactions}:
            self.connection_lost(client)


def _resume(upload: Upload, why: ErrorAnswer | None) -> None:
    """Call back the store that waits for an upload."""
    resume, upload.resume = upload.resume, None
    if resume is not None:
        resume(why)
