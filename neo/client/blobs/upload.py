"""Contents of blobs are sent to storage nodes (specification 26.10 to 26.14).

The file is read once: a piece goes to all nodes, then to the checksum, while the network and the disks of
the nodes are at work. Answers are awaited only when too many pieces have none. The last ones need not be:
a node answers the store of the record after those of the content, and refuses it if they were refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from neo.client.commit.participants import Participants, PendingBlob
from neo.client.errors import refusal
from neo.net.channel import Channel, Ticket
from neo.protocol.blobs import PIECE_BYTES, PIECES_AHEAD, Content, content_hash
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import AnswerStoreBlob, AskStoreBlob


class _Stream:
    """The pieces on their way to a node."""

    def __init__(self, nid: int, channel: Channel) -> None:
        self.nid = nid
        self._channel = channel
        self._tickets: deque[Ticket[AnswerStoreBlob]] = deque()

    def send(self, message: AskStoreBlob) -> None:
        """Send a piece when fewer than PIECES_AHEAD have no answer. Raise ConnectionLost, ErrorAnswer."""
        if len(self._tickets) >= PIECES_AHEAD:
            self._channel.wait(self._tickets[0])
            self._tickets.popleft()
        self._tickets.append(self._channel.ask(message))

    def end(self) -> None:
        """Do not wait for the other answers."""
        for ticket in self._tickets:
            self._channel.forget(ticket)


def upload(
    participants: Participants, nids: Iterable[int], ttid: bytes, oid: bytes, blob: PendingBlob
) -> None:
    """Send a content to the storage nodes that it was not sent to before. A node that is lost takes no
    further part in the transaction. Raise the errors of refusal(); OSError if the file cannot be read."""
    streams = []
    for nid in nids:
        channel = None if nid in blob.nodes else participants.join(nid)
        if channel is not None:
            streams.append(_Stream(nid, channel))
    if not streams:
        return
    blob.nodes.update(stream.nid for stream in streams)
    alive = list(streams)
    try:
        with open(blob.path, "rb", buffering=0) as file:
            for message in _pieces(ttid, oid, file, blob):
                for stream in list(alive):
                    if not _send(participants, stream, message):
                        alive.remove(stream)
    finally:
        for stream in streams:
            stream.end()


def _pieces(
    ttid: bytes, oid: bytes, file: BinaryIO, blob: PendingBlob
) -> Iterator[AskStoreBlob]:
    """Yield the pieces of a file; set the content before the last one."""
    checksum = content_hash()
    offset, piece = 0, _read(file)
    checksum.update(piece)
    while len(piece) == PIECE_BYTES and (following := _read(file)):
        yield AskStoreBlob(ttid, oid, offset, piece, None)
        offset += len(piece)
        piece = following
        checksum.update(piece)
    blob.content = Content(offset + len(piece), checksum.digest())
    yield AskStoreBlob(ttid, oid, offset, piece, blob.content.checksum)


def _read(file: BinaryIO) -> bytes:
    """Read a whole piece, or the rest of the file. On the usual disks one read returns all of it."""
    piece = file.read(PIECE_BYTES)
    while len(piece) < PIECE_BYTES and (more := file.read(PIECE_BYTES - len(piece))):
        piece += more
    return piece


def _send(participants: Participants, stream: _Stream, message: AskStoreBlob) -> bool:
    """Return whether the node goes on."""
    try:
        stream.send(message)
    except ConnectionLost as e:
        participants.fail(stream.nid, str(e))
        return False
    except ErrorAnswer as e:
        raise refusal(
            f"storage node {format_nid(stream.nid)}, content of object {message.oid.hex()}", e
        ) from None
    return True
