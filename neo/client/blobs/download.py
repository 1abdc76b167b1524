"""Contents of blobs are fetched from storage nodes (specification 26.15, 26.16)."""

from __future__ import annotations

import logging
from collections import deque
from typing import BinaryIO

from neo.client.connect.connections import LOST, NOT_HERE, Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.client.errors import CorruptedError, refused
from neo.net.channel import Channel, Ticket
from neo.protocol.blobs import PIECE_BYTES, PIECES_AHEAD, Content, content_hash
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import FEATURE_BLOBS, AnswerBlob, AskBlob, NotifyBlobDamaged

logger = logging.getLogger("neo.client")


class Downloads:
    """Thread-safe."""

    def __init__(
        self, connections: Connections, master: MasterConnection, storages: StorageConnections
    ) -> None:
        self._connections = connections
        self._master = master
        self._storages = storages

    def backoff(self) -> Backoff:
        """Return pauses for a download that begins now."""
        return self._connections.backoff()

    def fetch(self, oid: bytes, content: Content, file: BinaryIO, backoff: Backoff) -> None:
        """Write the content of an object to an empty file. Raise CorruptedError if no node has the
        content intact, UnavailableError if no node answers for ``wait_timeout``, OSError of the file."""
        parts = self._connections, self._master, self._storages
        _Download(*parts, oid, content, file, backoff).run()


class _Download:
    def __init__(
        self,
        connections: Connections,
        master: MasterConnection,
        storages: StorageConnections,
        oid: bytes,
        content: Content,
        file: BinaryIO,
        backoff: Backoff,
    ) -> None:
        self._connections = connections
        self._master = master
        self._storages = storages
        self._oid = oid
        self._content = content
        self._file = file
        self._offset = 0
        self._checksum = content_hash()
        #: Nodes that gave pieces since the beginning of the file.
        self._givers: dict[int, Channel] = {}
        #: Nodes that do not have the content, or not intact, with the reasons.
        self._without: dict[int, str] = {}
        self._lost: set[int] = set()
        # Begins anew with each piece.
        self._backoff = backoff

    def run(self) -> None:
        reason = "no running node has a readable cell"
        while True:
            nids = self._master.view().nodes(self._oid)
            usable = [nid for nid in nids if nid not in self._lost and nid not in self._without]
            if usable:
                nid = self._storages.choose(usable)
                failure = self._read_from(nid)
                if failure is None:
                    return
                reason = f"{format_nid(nid)}: {failure}"
            elif nids and all(nid in self._without for nid in nids):
                raise CorruptedError(
                    f"no storage node has the content {self._content} of object {self._oid.hex()}"
                    f" intact: {'; '.join(self._without.values())}"
                )
            else:
                self._wait(reason)

    def _wait(self, reason: str) -> None:
        self._backoff.wait(f"object {self._oid.hex()}, its content: {reason}")
        self._master.barrier(self._backoff)
        self._lost.clear()

    def _read_from(self, nid: int) -> str | None:
        """Read from one node up to the end. Return None if the content is complete, else why not."""
        try:
            if FEATURE_BLOBS not in self._storages.features(nid, self._backoff):
                return self._lacks(nid, "it does not announce blobs: has it a blob_dir?")
            channel = self._storages.channel(nid, self._backoff)
        except (*LOST, ErrorAnswer) as e:
            self._lost.add(nid)
            return str(e)
        try:
            self._stream(nid, channel)
        except ConnectionLost as e:
            self._lost.add(nid)
            return str(e)
        except ErrorAnswer as e:
            if e.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.CHECKING_ERROR):
                return self._lacks(nid, str(e))
            if e.code in NOT_HERE:
                self._lost.add(nid)
                return str(e)
            raise refused(f"content of object {self._oid.hex()}", e) from None
        if self._offset == self._content.size and self._checksum.digest() == self._content.checksum:
            return None
        return self._damaged(nid)

    def _lacks(self, nid: int, why: str) -> str:
        self._without[nid] = f"{format_nid(nid)}: {why}"
        return why

    def _damaged(self, nid: int) -> str:
        """Report the damage to the nodes that sent pieces, which then verify their files, and begin
        again. If one node sent all pieces, leave this node out."""
        why = "what was received does not match its checksum"
        logger.error(
            "content %s of object %s: %s; it came from %s",
            self._content,
            self._oid.hex(),
            why,
            ", ".join(map(format_nid, self._givers)),
        )
        for channel in self._givers.values():
            channel.send(NotifyBlobDamaged(self._oid, self._content.checksum))
        if len(self._givers) == 1:
            self._lacks(nid, why)
        self._begin_again()
        return why

    def _begin_again(self) -> None:
        self._givers.clear()
        self._offset = 0
        self._checksum = content_hash()
        self._file.seek(0)
        self._file.truncate()

    def _stream(self, nid: int, channel: Channel) -> None:
        """Read pieces, PIECES_AHEAD at a time. Raise ErrorAnswer, the errors of LOST."""
        size, asked = self._content.size, self._offset
        tickets: deque[Ticket[AnswerBlob]] = deque()
        try:
            while self._offset < size:
                while asked < size and len(tickets) < PIECES_AHEAD:
                    length = min(PIECE_BYTES, size - asked)
                    request = AskBlob(self._oid, self._content.checksum, asked, length)
                    tickets.append(channel.ask(request))
                    asked += length
                data = self._backoff.answer(channel, tickets[0]).data
                tickets.popleft()
                self._backoff = self._connections.backoff()
                self._givers[nid] = channel
                expected = min(PIECE_BYTES, size - self._offset)
                if len(data) != expected:
                    return  # its file is too short: the checksum will not match
                self._file.write(data)
                self._checksum.update(data)
                self._offset += len(data)
        finally:
            for ticket in tickets:
                channel.forget(ticket)
