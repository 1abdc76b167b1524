"""Errors that say at once what is wrong: TLS, two connections of one transaction, undo, extensions."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import transaction
from ZODB.Connection import Connection, TransactionMetaData
from ZODB.POSException import StorageTransactionError, UndoError

from neo.client import NEOStorage
from neo.client.commit.lock_wait import LockWait
from neo.client.errors import RefusedError
from neo.net.tls import _ALERT, tls_context
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    AnswerObject,
    AnswerObjectHistory,
    AnswerObjectUndoSerial,
    AnswerTIDs,
    AnswerTransactionInformation,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskTIDs,
    AskTransactionInformation,
    Message,
)
from tests.support.certificates import Authority
from tests.support.tls_peer import TlsPeer
from tests.unit.client.committing import OID, OTHER, begin
from tests.unit.client.peers import Server
from tests.unit.client.reading import answer
from tests.unit.client.scripted import NAME, scripted

#: What "at once" means on a machine that may stand still. The timeout is three times as long.
AT_ONCE = 20.0
PATIENT = 60.0
#: The pickle of an object of a class that this process does not have.
UNREADABLE = b"cnowhere\nNothing\n."


# -- TLS -------------------------------------------------------------------------------------------


def open_with(address: tuple[str, int], **options: Any) -> None:
    begun = time.monotonic()
    try:
        NEOStorage(f"{address[0]}:{address[1]}", NAME, wait_timeout=PATIENT, **options)
    finally:
        assert time.monotonic() - begun < AT_ONCE


def test_a_client_with_tls_is_told_at_once_that_the_cluster_has_none(tmp_path: Path) -> None:
    """Specification 16.40."""
    files = Authority(tmp_path).node()
    server = Server(lambda peer, received: None)
    try:
        with pytest.raises(RefusedError, match="this node uses TLS and the peer does not"):
            open_with(server.address, **files._asdict())
    finally:
        server.close()


def test_a_client_without_tls_is_told_at_once_that_the_cluster_has_it() -> None:
    """Specification 16.40. Without a common protocol, the node sends an alert of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def alert() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(6)
                sock.sendall(_ALERT)

        thread = threading.Thread(target=alert, daemon=True)
        thread.start()
        with pytest.raises(RefusedError, match="the peer uses TLS and this node does not"):
            open_with(listener.getsockname())
        thread.join(AT_ONCE)


def test_a_certificate_of_another_authority_is_told_at_once(tmp_path: Path) -> None:
    """Specification 16.40."""
    files, foreign = Authority(tmp_path).node(), Authority(tmp_path, "other").node()
    with TlsPeer(tls_context(*files, server=True)) as peer:
        with pytest.raises(RefusedError, match="TLS failed"):
            open_with(peer.address, **foreign._asdict())


# -- two connections of one transaction ------------------------------------------------------------


def metadata(manager: transaction.TransactionManager) -> TransactionMetaData:
    """Return what a connection of ZODB gives a storage."""
    t = manager.get()
    return TransactionMetaData(t.user, t.description, t.extension)


def test_two_connections_that_change_one_object_are_refused_at_once() -> None:
    """Specification 16.41."""
    with scripted([1]) as (_, storage):
        manager = transaction.TransactionManager()
        one, other = metadata(manager), metadata(manager)
        for t in (one, other):
            storage.tpc_begin(t)
        storage.store(OID, p64(50), b"1", "", one)
        storage.store(OTHER, p64(50), b"2", "", other)
        refusals: list[Callable[[], object]] = [
            lambda: storage.store(OID, p64(50), b"2", "", other),
            lambda: storage.deleteObject(OID, p64(50), other),
            lambda: storage.checkCurrentSerialInTransaction(OID, p64(50), other),
        ]
        for refusal in refusals:
            with pytest.raises(StorageTransactionError, match="change it through one of them"):
                refusal()
        for t in (one, other):
            storage.tpc_abort(t)


def test_connections_of_two_transactions_are_not_confused() -> None:
    with scripted([1]) as (_, storage):
        one, other = (metadata(transaction.TransactionManager()) for _ in range(2))
        bare = TransactionMetaData(extension=b"")
        for t in (one, other, bare):
            storage.tpc_begin(t)
            storage.store(OID, p64(50), b"1", "", t)
        for t in (one, other, bare):
            storage.tpc_abort(t)


def test_zodb_gives_all_connections_the_same_extension() -> None:
    """What the refusal relies on."""
    seen: list[Any] = []
    manager = transaction.TransactionManager()
    for _ in range(2):
        connection = Connection.__new__(Connection)
        connection._creating = {}
        connection._normal_storage = Mock(tpc_begin=lambda t: seen.append(t.extension))
        connection.tpc_begin(manager.get())
    assert seen[0] is seen[1] is manager.get().extension


def test_nobody_is_told_to_end_a_transaction_of_the_own_process() -> None:
    with scripted([1]) as (_, storage):
        connections = storage._session.connections
        holder = p64(7), 1, None, 3.0, "voted"
        for own, text in ((True, "belongs to this process"), (False, "neoctl end 0x")):
            ours = partial(eq, p64(7 if own else 9))
            wait = LockWait(connections, storage._session.storages, p64(8), ours)
            described = wait._describe(holder)
            assert text in described and ("neoctl" in described) is not own


# -- undo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deleted", "gone", "text"),
    [
        (60, None, "transaction 000000000000003c deleted the object or undid its creation"),
        (40, None, "transaction 0000000000000028 deleted the object or undid its creation"),
        (None, 40, "the data of transaction 0000000000000028 was packed away"),
    ],
)
def test_an_undo_tells_a_deletion_from_a_pack(
    deleted: int | None, gone: int | None, text: str
) -> None:
    """Specification 16.42: 50 is undone, 60 is current, 40 is what was before."""

    def revision(m: Any) -> Message:
        if m.at == (None if gone is None else p64(gone)):
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, "gone")
        if m.at == (None if deleted is None else p64(deleted)):
            return AnswerObject(m.oid, m.at, None, None, ZERO_HASH, b"", None)
        found = answer(b"x", 40)(m)
        assert isinstance(found, AnswerObject)
        return found

    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers |= {
            AskTransactionInformation: lambda m: AnswerTransactionInformation(
                m.tid, b"", b"", b"", False, [OID]
            ),
            AskObjectUndoSerial: lambda m: AnswerObjectUndoSerial(
                {OID: (p64(60), p64(40), False)}
            ),
            AskObject: revision,
        }
        t = begin(storage)
        with pytest.raises(UndoError, match=text):
            storage.undo(p64(50), t)
        storage.tpc_abort(t)


# -- extensions ------------------------------------------------------------------------------------


def test_an_extension_that_cannot_be_read_hides_no_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 16.20."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers |= {
            AskTIDs: lambda m: AnswerTIDs([p64(60), p64(50)] if m.first == 0 else []),
            AskTransactionInformation: lambda m: AnswerTransactionInformation(
                m.tid, b"user", b"what", UNREADABLE if m.tid == p64(60) else b"", False, [OID]
            ),
            AskObjectHistory: lambda m: AnswerObjectHistory(m.oid, [(p64(60), 1), (p64(50), 1)]),
        }
        with caplog.at_level(logging.WARNING, "neo.client"):
            found = [(d["id"], d["user_name"]) for d in storage.undoLog()]
        assert found == [(p64(60), b"user"), (p64(50), b"user")]
        assert "extension of transaction 000000000000003c cannot be read" in caplog.text
        assert [d["description"] for d in storage.history(OID, 2)] == [b"what", b"what"]
