"""Prepared transactions of a client (specification 24): what it sends, and what it makes of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transaction.interfaces import TransientError
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, ReadConflictError, StorageTransactionError

from neo.client import NEOStorage
from neo.client.commit.prepared import Outcome, Prepared
from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    PreparedConflictError,
    RefusedError,
    TransactionLostError,
)
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerFinalTID,
    AnswerFinishPrepared,
    AnswerObject,
    AnswerPrepared,
    AnswerPrepareTransaction,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskFinishPrepared,
    AskFinishTransaction,
    AskObject,
    AskPrepared,
    AskPrepareTransaction,
    AskStoreObject,
    Error,
    ForgetPrepared,
    InvalidateObjects,
    Message,
    PreparedRow,
    RequestIdentification,
)
from tests.unit.client.committing import OID, OTHER, TTID, begin, refusing
from tests.unit.client.scripted import Scripted, scripted

XID = b"transfer-1"
TID = p64(3000)
Answer = Callable[[Any], Message | None]


def voted(storage: NEOStorage, **metadata: Any) -> TransactionMetaData:
    t = begin(storage, **metadata)
    storage.store(OID, None, b"one", "", t)
    storage.checkCurrentSerialInTransaction(OTHER, p64(7), t)
    storage.tpc_vote(t)
    return t


def prepared(storage: NEOStorage) -> TransactionMetaData:
    t = voted(storage)
    storage.tpc_prepare(t, XID)
    return t


def knows(cluster: Scripted, finish: Answer = lambda m: AnswerFinishPrepared(None)) -> None:
    """Let the master prepare everything, and answer decisions like this."""
    cluster.master.answers |= {
        AskPrepareTransaction: lambda m: AnswerPrepareTransaction(),
        AskFinishPrepared: finish,
    }


def committed(cluster: Scripted) -> Answer:
    def finish(m: AskFinishPrepared) -> Message:
        cluster.last_tid = TID
        return AnswerFinishPrepared(TID if m.commit else None)

    return finish


def lose(cluster: Scripted) -> Answer:
    """Return an answer: none, and the connection ends."""

    def answer(m: Message) -> None:
        cluster.master.peer.close()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Return an answer that is another one at each question; the last one stays."""
    left = list(answers)
    return lambda m: (left.pop(0) if len(left) > 1 else left[0])(m)


def test_the_client_tells_the_master_what_it_stored_and_checked() -> None:
    """Specification 24.1."""
    with scripted([1]) as (cluster, storage):
        knows(cluster)
        storage.tpc_prepare(voted(storage, user="jo", description="pays"), XID)
        asked = AskPrepareTransaction(TTID, XID, [OID], [OTHER], b"jo: pays")
        assert cluster.master.asked(AskPrepareTransaction) == [asked]
        identification = cluster.master.asked(RequestIdentification)[0]
        assert FEATURE_OURS in identification.extra[FEATURES]


def test_a_prepared_transaction_is_committed_by_its_xid() -> None:
    with scripted([1]) as (cluster, storage):
        knows(cluster, committed(cluster))
        t = prepared(storage)
        called: list[bytes] = []
        assert storage.tpc_finish(t, called.append) == TID
        assert called == [TID] and storage.lastTransaction() == TID
        assert storage.load(OID) == (b"one", TID), "from the cache: no node is asked"
        assert cluster.master.asked(AskFinishPrepared) == [AskFinishPrepared(XID, True)]
        assert not cluster.master.asked(AskFinishTransaction, AbortTransaction)
        with pytest.raises(StorageTransactionError):
            storage.tpc_finish(t)


def test_a_prepared_transaction_is_rolled_back_by_its_xid() -> None:
    with scripted([1]) as (cluster, storage):
        knows(cluster)
        t = prepared(storage)
        storage.tpc_abort(t)
        storage.tpc_abort(t)
        assert cluster.master.asked(AskFinishPrepared) == [AskFinishPrepared(XID, False)]
        assert not cluster.master.asked(AbortTransaction)
        assert not cluster.storages[1].asked(AbortTransaction)


def test_only_a_voted_transaction_is_prepared() -> None:
    with scripted([1]) as (_, storage):
        t = begin(storage)
        with pytest.raises(StorageTransactionError, match="before tpc_vote"):
            storage.tpc_prepare(t, XID)


@pytest.mark.parametrize("xid", [b"", b"x" * 141])
def test_an_xid_has_1_to_140_bytes(xid: bytes) -> None:
    with scripted([1]) as (_, storage):
        t = voted(storage)
        with pytest.raises(NEOStorageError, match="an xid has 1 to 140 bytes"):
            storage.tpc_prepare(t, xid)


def test_a_master_without_the_feature_is_named_before_anything_is_sent() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.features = []
        cluster.master.peer.close()
        t = voted(storage)
        words = "does not know prepared transactions: update"
        with pytest.raises(RefusedError, match=words):
            storage.tpc_prepare(t, XID)
        for ask in (storage.recover, lambda: storage.rollback_prepared(XID)):
            with pytest.raises(RefusedError, match=words):
                ask()
        storage.tpc_finish(t)


def test_a_denied_transaction_is_as_it_was_and_is_aborted() -> None:
    """Specification 24.2. No rollback by xid: it may be the xid of another transaction."""
    with scripted([1]) as (cluster, storage):
        knows(cluster)
        cluster.master.answers[AskPrepareTransaction] = refusing(ErrorCode.DENIED)
        t = voted(storage)
        with pytest.raises(NEOStorageError, match="tpc_prepare of transfer-1: DENIED"):
            storage.tpc_prepare(t, XID)
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [1])
        assert not cluster.master.asked(AskFinishPrepared)


def test_the_master_aborts_what_it_cannot_prepare() -> None:
    """Specification 24.3, 24.5: an abort of an unknown transaction would break the protocol."""
    with scripted([1]) as (cluster, storage):
        knows(cluster)
        cluster.master.answers[AskPrepareTransaction] = refusing(ErrorCode.INCOMPLETE_TRANSACTION)
        t = voted(storage)
        with pytest.raises(TransactionLostError):
            storage.tpc_prepare(t, XID)
        storage.tpc_abort(t)
        storage.sync()
        assert not cluster.master.asked(AskFinishPrepared, AbortTransaction)


def test_a_master_lost_in_tpc_prepare_leaves_a_doubt_that_an_abort_ends() -> None:
    """Specification 16.32, 24.7, 24.13: the rollback holds whether it was prepared or not."""
    with scripted([1]) as (cluster, storage):
        knows(cluster)
        cluster.master.answers[AskPrepareTransaction] = lose(cluster)
        t = voted(storage)
        with pytest.raises(OutcomeUnknownError, match=r"transfer-1 may be prepared; .*recover\(\)"):
            storage.tpc_prepare(t, XID)
        with pytest.raises(StorageTransactionError, match="not known to be prepared"):
            storage.tpc_finish(t)
        storage.tpc_abort(t)
        assert cluster.master.asked(AskFinishPrepared) == [AskFinishPrepared(XID, False)]


def test_the_commit_is_repeated_at_the_next_master() -> None:
    """Specification 16.33, 24.10: the same decision gets the same answer."""
    with scripted([1]) as (cluster, storage):
        knows(cluster, in_turn(lose(cluster), committed(cluster)))
        t = prepared(storage)
        assert storage.tpc_finish(t) == TID
        assert cluster.master.asked(AskFinishPrepared) == 2 * [AskFinishPrepared(XID, True)]
        assert storage.lastTransaction() == TID


def test_a_commit_without_answer_is_unknown_and_names_the_xid() -> None:
    """Specification 16.33."""
    with scripted([1], wait_timeout=0.1) as (cluster, storage):
        knows(cluster, lose(cluster))
        t = prepared(storage)
        with pytest.raises(
            OutcomeUnknownError, match="transfer-1: it is committed, or still waits"
        ) as e:
            storage.tpc_finish(t)
        assert not isinstance(e.value, TransientError), "it must not be repeated"
        cluster.master.answers[AskFinishPrepared] = lambda m: AnswerFinishPrepared(None)
        storage.tpc_abort(t)
        storage.sync()
        assert AskFinishPrepared(XID, False) not in cluster.master.log, "it may be committed"


@pytest.mark.parametrize("state", ["rolled back", "rolling back", None])
def test_a_commit_after_a_rollback_is_lost_and_may_be_retried(state: str | None) -> None:
    """While the master knows the outcome, no storage node is asked, since it may not have heard of it
    (specification 16.34)."""
    rows: list[PreparedRow] = [] if state is None else [(XID, TTID, None, 1.0, 0, b"", state)]
    with scripted([1]) as (cluster, storage):
        knows(cluster, refusing(ErrorCode.DENIED))
        cluster.master.answers |= {
            AskPrepared: lambda m: AnswerPrepared(rows),
            AskFinalTID: lambda m: AnswerFinalTID(MAX_TID),
        }
        cluster.storages[1].answers[AskFinalTID] = lambda m: AnswerFinalTID(None)
        t = prepared(storage)
        with pytest.raises(TransactionLostError, match="transfer-1 was rolled back"):
            storage.tpc_finish(t)
        assert bool(cluster.storages[1].asked(AskFinalTID)) is (state is None)


def test_a_denied_commit_of_what_is_still_prepared_is_unknown() -> None:
    with scripted([1]) as (cluster, storage):
        knows(cluster, refusing(ErrorCode.DENIED))
        cluster.master.answers[AskPrepared] = lambda m: AnswerPrepared(ROWS[:1])
        t = prepared(storage)
        with pytest.raises(OutcomeUnknownError):
            storage.tpc_finish(t)


def test_a_commit_whose_outcome_was_forgotten_meanwhile_is_found() -> None:
    """The first answer was lost, and a resolver finished and forgot the transaction
    (specification 16.34)."""
    with scripted([1]) as (cluster, storage):
        knows(cluster, in_turn(lose(cluster), refusing(ErrorCode.DENIED)))
        cluster.master.answers |= {
            AskPrepared: lambda m: AnswerPrepared([]),
            AskFinalTID: lambda m: AnswerFinalTID(MAX_TID),
        }
        cluster.storages[1].answers[AskFinalTID] = lambda m: AnswerFinalTID(TID)
        t = prepared(storage)
        assert storage.tpc_finish(t) == TID


def test_a_rollback_that_cannot_be_told_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with scripted([1], wait_timeout=0.1) as (cluster, storage):
        knows(cluster, lose(cluster))
        t = prepared(storage)
        storage.tpc_abort(t)
        assert "transaction transfer-1 may still be prepared" in caplog.text


ROWS: list[PreparedRow] = [
    (XID, TTID, None, 12.5, 2, b"jo: pays", "prepared"),
    (b"other", p64(9), None, 13.5, 1, b"", "committing"),
    (b"old", p64(8), TID, 2.5, 0, b"", "committed"),
]


def listed(m: AskPrepared) -> AnswerPrepared:
    """Answer with ROWS, as the master does (specification 24.16)."""
    if m.xid is not None:
        return AnswerPrepared([row for row in ROWS if row[0] == m.xid])
    return AnswerPrepared(ROWS[: 2 + m.length])


def test_any_client_may_ask_and_decide() -> None:
    """One outcome costs one row, however many are remembered (specification 24.16)."""
    with scripted([1]) as (cluster, storage):
        knows(cluster, committed(cluster))
        cluster.master.answers |= {
            AskPrepared: listed,
            ForgetPrepared: lambda m: Error(ErrorCode.ACK.value, ""),
        }
        waiting = [Prepared(XID, TTID, 12.5, "jo: pays"), Prepared(b"other", p64(9), 13.5, "")]
        assert storage.recover() == waiting
        assert storage.outcome(b"old") == Outcome(b"old", "committed", TID, 2.5)
        assert storage.outcome(XID) == Outcome(XID, "prepared", None, 12.5)
        assert storage.outcome(b"unheard of") is None
        asked = cluster.master.asked(AskPrepared)[1:]
        assert asked == [AskPrepared(0, xid) for xid in (b"old", XID, b"unheard of")]
        assert storage.commit_prepared(XID) == TID
        storage.rollback_prepared(b"another")
        storage.forget_prepared(XID)
        assert cluster.master.asked(AskFinishPrepared, ForgetPrepared) == [
            AskFinishPrepared(XID, True),
            AskFinishPrepared(b"another", False),
            ForgetPrepared(XID),
        ]


def test_a_refused_decision_says_why() -> None:
    def refuse(m: Message) -> Message:
        raise ErrorAnswer(ErrorCode.DENIED, "it is committed")

    with scripted([1]) as (cluster, storage):
        knows(cluster, refuse)
        with pytest.raises(
            RefusedError, match="rollback of prepared .* transfer-1: DENIED: it is comm"
        ):
            storage.rollback_prepared(XID)


def test_a_decision_by_xid_shows_what_this_client_prepared() -> None:
    """The master tells all clients but the one that prepared it and asks (specification 24.11)."""
    with scripted([1]) as (cluster, storage):
        knows(cluster, committed(cluster))
        cluster.storages[1].answers[AskObject] = lambda m: AnswerObject(
            OID, p64(5), None, 0, b"\0" * 20, b"", None
        )
        t = prepared(storage)
        assert storage.commit_prepared(XID) == TID
        assert storage.lastTransaction() == TID and storage.load(OID) == (b"one", TID)
        storage.tpc_abort(t)
        assert cluster.master.asked(AskFinishPrepared) == [AskFinishPrepared(XID, True)]


def held(m: Message) -> Message:
    raise ErrorAnswer(
        ErrorCode.INCOMPLETE_TRANSACTION, "prepared: transfer-1 holds object 1 for 95 s"
    )


@pytest.mark.parametrize(
    ("request_type", "error"),
    [(AskStoreObject, ConflictError), (AskCheckCurrentSerial, ReadConflictError)],
)
def test_an_object_that_a_prepared_transaction_holds_is_a_conflict(
    request_type: type[Message], error: type[ConflictError]
) -> None:
    """Specification 24.9."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[request_type] = held
        t = begin(storage)
        if request_type is AskStoreObject:
            storage.store(OID, None, b"one", "", t)
        else:
            storage.checkCurrentSerialInTransaction(OID, p64(7), t)
        with pytest.raises(error, match="transfer-1 holds object 1 for 95 s") as e:
            storage.tpc_vote(t)
        assert isinstance(e.value, PreparedConflictError) and e.value.oid == OID


def test_the_loss_of_the_client_s_master_changes_nothing() -> None:
    """Requirement 5: a prepared transaction outlives the connection, and its commit goes to the next."""
    with scripted([1]) as (cluster, storage):
        knows(cluster, committed(cluster))
        t = prepared(storage)
        cluster.master.peer.close()
        storage.sync()
        assert storage.tpc_finish(t) == TID
        # The master tells this client like any other, since it did not prepare on this connection.
        cluster.tell(InvalidateObjects(TID, [OID]))
        storage.sync()
        assert storage.lastTransaction() == TID
