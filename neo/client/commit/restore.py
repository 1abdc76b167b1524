"""IStorageRestoreable: write transactions of another database, without conflict detection."""

from __future__ import annotations

from collections import OrderedDict

from neo.client.commit.participants import Kind, PendingBlob
from neo.client.commit.transaction import ClientTransaction
from neo.client.errors import refused
from neo.client.read.records import data_of
from neo.client.read.replicas import Replicas
from neo.protocol.blobs import Content, content_of
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AskObject

#: Serials that are kept to guess the base serial of the next revision: 30 MB. After a wrong guess, the
#: object is sent again, with the serial from the answer.
REMEMBERED = 100_000


class Restorer:
    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._serials: OrderedDict[bytes, bytes] = OrderedDict()

    def restore(
        self,
        transaction: ClientTransaction,
        oid: bytes,
        data: bytes | None,
        prev_txn: bytes | None,
        content: Content | None = None,
        blob: PendingBlob | None = None,
    ) -> None:
        """Write a revision. ``content``: of its blob, ``blob``: the file."""
        base = self._serials.get(oid, ZERO_TID)
        if data is None:
            transaction.delete(oid, base, Kind.RESTORE)
            return
        original = None if prev_txn is None else self._same(oid, prev_txn, data, content)
        if original is not None:
            transaction.copy(oid, base, original, Kind.RESTORE)
        else:
            transaction.store(oid, base, data, Kind.RESTORE, blob)

    def _same(
        self, oid: bytes, serial: bytes, data: bytes, content: Content | None
    ) -> bytes | None:
        """Return the revision that holds this data, if the revision at ``serial`` has the same data and
        content."""
        try:
            answer = self._replicas.read(oid, AskObject(oid, serial, None))
        except ErrorAnswer as e:
            if e.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST):
                return None
            raise refused(f"loading object {oid.hex()}", e) from None
        found = None if answer.compression else content_of(answer.data)
        if data_of(answer) != data or found != content:
            return None
        return answer.data_serial or answer.serial

    def voting(self, transaction: ClientTransaction) -> None:
        """Expect that a transaction with an imposed tid will be committed before the next one is."""
        if transaction.imposed is not None:
            self.finished(transaction, transaction.imposed)

    def finished(self, transaction: ClientTransaction, tid: bytes) -> None:
        for oid, change in transaction.changes.items():
            if change.kind is Kind.RESTORE:
                self._serials[oid] = tid
                self._serials.move_to_end(oid)
        while len(self._serials) > REMEMBERED:
            self._serials.popitem(last=False)
