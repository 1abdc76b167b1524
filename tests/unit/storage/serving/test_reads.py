"""Reads of clients, as a storage node answers them."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import INVALID_PARTITION, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AnswerCommitted,
    AnswerObject,
    AnswerPack,
    AnswerTransactionInformation,
    AskCommitted,
    AskFinalTID,
    AskLockInformation,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskPack,
    AskRevisions,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskTransactionLog,
    Error,
    NotifyUnlockInformation,
)
from neo.storage.backend import pages
from neo.storage.serving import client as serving
from neo.storage.serving import transaction_log
from tests.unit.storage.requests import commit, commit_twice, data_of, load, store, vote
from tests.unit.storage.world import OUT, UP, End, World, check_refused, refused


def test_a_committed_object_is_loaded(master: End, client: End) -> None:
    """Specification 6.10, 6.11."""
    commit_twice(master, client, 1)
    first = AnswerObject(p64(1), p64(12), p64(16), 0, sha1(data_of(10)).digest(), data_of(10), None)
    assert load(client, 1, before=16) == first
    assert load(client, 1, at=12) == first
    assert load(client, 1, at=12, before=999) == first
    assert load(client, 1).data == data_of(14)


def test_missing_objects(master: End, client: End) -> None:
    """Specification 6.13."""
    commit(master, client, 10, 12, 1)
    assert load(client, 1, before=12) == Error(ErrorCode.OID_NOT_FOUND.value, p64(1).hex())
    assert load(client, 1, at=13) == Error(ErrorCode.OID_NOT_FOUND.value, p64(1).hex())
    assert load(client, 3) == Error(ErrorCode.OID_DOES_NOT_EXIST.value, p64(3).hex())


def test_cells_that_are_not_readable_are_not_read(world: World) -> None:
    """Specification 6.3, 6.20."""
    master = world.operate([[(1, OUT)], [(2, UP)]])
    client = world.client(master)
    for message in (
        AskObject(p64(0), None, None),
        AskObject(p64(1), None, None),
        AskObjectHistory(p64(0), 0, 1),
        AskTransactionInformation(p64(1)),
        AskObjectUndoSerial(p64(9), p64(9), p64(8), [p64(1)]),
        AskTIDs(0, 10, 0),
        AskTIDsFrom(ZERO_TID, p64(99), 10, 1),
        AskOIDs(0, ZERO_OID, 10),
        AskFinalTID(p64(0)),
        AskFinalTID(p64(1)),
        AskRevisions(0, 0, ZERO_TID, p64(99), None, 1, False),
    ):
        assert refused(client.ask(message)) == (ErrorCode.NON_READABLE_CELL.value, "")
    assert client.ask(AskTIDs(0, 10, INVALID_PARTITION)).tid_list == []


def test_reads_wait_for_the_unlock_of_a_locked_transaction(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 5.6, 6.6, 6.7."""
    commit(master, client, 10, 12, 1)
    commit(master, client, 20, 22, 2)
    store(client, 30, 1, serial=12)
    vote(client, 30, 1)
    master.ask(AskLockInformation(p64(30), p64(32)))
    assert load(other, 2).serial == p64(22)
    waiting = [
        other.ask_later(message)
        for message in (
            AskObject(p64(1), None, None),
            AskTIDs(0, 1, INVALID_PARTITION),
            AskTIDsFrom(p64(30), p64(99), 10, 0),
            AskTransactionInformation(p64(32)),
            AskObjectHistory(p64(1), 0, 1),
            AskFinalTID(p64(30)),
            AskObjectUndoSerial(p64(40), p64(33), p64(12), [p64(1)]),
            AskOIDs(1, ZERO_OID, 10),
            AskRevisions(1, 0, ZERO_TID, p64(99), None, 1000, False),
        )
    ]
    world.settle()
    assert not any(waiting)
    assert other.ask(AskTransactionInformation(p64(22))).description == b"note"
    assert other.ask(AskTIDsFrom(p64(20), p64(31), 10, 0)).tid_list == [p64(22)]
    master.send(NotifyUnlockInformation(p64(30)))
    world.settle()
    assert waiting[0][0].serial == p64(32)
    assert waiting[1][0].tid_list == [p64(32)]
    assert waiting[2][0].tid_list == [p64(32)]
    assert waiting[3][0].description == b"note"
    assert waiting[4][0].history_list == [(p64(32), 10)] or waiting[4][0].history_list == [
        [p64(32), 10]
    ]
    assert waiting[5][0].tid == p64(32)
    assert p64(1) in waiting[6][0].undo_dict
    assert waiting[7][0].oid_list == [p64(1)]
    assert [row[1] for row in waiting[8][0].revision_list] == [p64(32)]


def test_transactions_are_listed_and_described(master: End, client: End) -> None:
    """Specification 6.15, 6.16, 6.17, 6.18, 6.19."""
    for number in range(4):
        commit(master, client, 10 + 2 * number, 10 + 2 * number, number)
    assert client.ask(AskTIDs(1, 3, INVALID_PARTITION)).tid_list == [p64(14), p64(12)]
    assert client.ask(AskTIDs(0, 9, 1)).tid_list == []
    assert client.ask(AskTIDsFrom(p64(12), p64(14), 9, 0)).tid_list == [p64(12), p64(14)]
    assert client.ask(AskTIDsFrom(p64(12), p64(14), 1, 0)).tid_list == [p64(12)]
    answer = client.ask(AskTransactionInformation(p64(12)))
    assert answer == AnswerTransactionInformation(
        p64(12), b"user", b"note", b"ext", False, [p64(1)]
    )
    assert client.ask(AskTransactionInformation(p64(13))) == Error(
        ErrorCode.TID_NOT_FOUND.value, p64(13).hex()
    )
    assert client.ask(AskFinalTID(p64(12))).tid == p64(12)
    assert client.ask(AskFinalTID(p64(99))).tid is None
    assert client.ask(AskOIDs(0, ZERO_OID, 10)).oid_list == [p64(0), p64(2)]
    assert client.ask(AskOIDs(0, p64(1), 10)).oid_list == [p64(2)]


def test_pages_of_revisions_have_data_as_stored(master: End, client: End) -> None:
    """Specification 6.25, 6.26."""
    commit_twice(master, client, 1)
    answer = client.ask(AskRevisions(1, 1, ZERO_TID, p64(99), None, 1, True))
    row = (p64(1), p64(12), 0, sha1(data_of(10)).digest(), len(data_of(10)), data_of(10), None)
    assert (list(map(tuple, answer.revision_list)), answer.more) == ([row], True)
    answer = client.ask(AskRevisions(1, 1, ZERO_TID, p64(99), row[:2], 1000, True))
    assert ([r[1] for r in answer.revision_list], answer.more) == ([p64(16)], False)


def test_a_page_is_put_together_in_steps_between_which_others_are_served(
    world: World, master: End, client: End, other: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 6.26."""
    for number in range(20):
        commit(master, client, 10 + 2 * number, 11 + 2 * number, 1 + 2 * number)
    monkeypatch.setattr(pages, "ROWS_MAX", 2)
    for order, first, last in (0, 0, 9), (0, 0, 99), (1, 47, 99), (2, 47, 99):
        waiting = client.ask_later(AskRevisions(1, order, p64(first), p64(last), None, 1000, False))
        steps = 1
        while not waiting:
            assert load(other, 1).serial == p64(11)
            world.host.advance(0)
            world.core.flush()
            steps += 1
        tids = [p64(tid) for tid in range(11, 51, 2) if first <= tid <= last]
        # Rows of 64 bytes fill a page of 1000 with 16 of them.
        assert [row[1] for row in waiting[0].revision_list] == tids[:16]
        assert waiting[0].more == (len(tids) > 16)
        assert steps == (8 if waiting[0].more else 2 if order == 2 else 11)


def test_a_page_is_not_gone_on_with_for_a_client_that_left(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        commit(master, client, 10 + 2 * number, 11 + 2 * number, 1 + 2 * number)
    monkeypatch.setattr(pages, "ROWS_MAX", 1)
    client.ask_later(AskRevisions(1, 0, ZERO_TID, p64(9), None, 1000, False))
    client.disconnect()
    monkeypatch.setattr(world.backend.pages, "revisions", lambda ask: pytest.fail("it is read"))
    world.host.advance(0)


def test_pages_of_what_a_pack_may_have_removed_are_refused(
    world: World, master: End, client: End
) -> None:
    """Specification 6.27."""
    commit_twice(master, client, 1)
    assert master.ask(AskPack(p64(20))) == AnswerPack(True)

    def revisions(order: int, first: int, last: int) -> Any:
        return client.ask(AskRevisions(1, order, p64(first), p64(last), None, 1000, False))

    for order, first, last in ((0, 0, 19), (1, 0, 19), (2, 0, 19), (1, 1, 99), (2, 20, 99)):
        refusal = revisions(order, first, last)
        assert refusal.code == ErrorCode.TID_NOT_FOUND.value
        assert "packed up to 0000000000000014" in refusal.message
    for answer in (revisions(0, 0, 20), revisions(1, 0, 99), revisions(2, 0, 99)):
        assert [row[1] for row in answer.revision_list] == [p64(16)]
    assert revisions(2, 21, 99).revision_list == []


def test_pages_of_no_sense_are_refused(client: End) -> None:
    for message in (
        AskRevisions(0, 3, ZERO_TID, p64(9), None, 1000, True),
        AskRevisions(0, 0, ZERO_TID, p64(9), None, 0, True),
        AskRevisions(7, 0, ZERO_TID, p64(9), None, 1000, True),
    ):
        assert client.ask(message).code == ErrorCode.PROTOCOL_ERROR.value


def test_histories_are_newest_first(master: End, client: End) -> None:
    """Specification 6.9, 6.14."""
    commit_twice(master, client, 1)
    answer = client.ask(AskObjectHistory(p64(1), 0, 2))
    assert [tuple(item) for item in answer.history_list] == [(p64(16), 10), (p64(12), 10)]
    answer = client.ask(AskObjectHistory(p64(1), 1, 2))
    assert [tuple(item) for item in answer.history_list] == [(p64(12), 10)]
    check_refused(client.ask(AskObjectHistory(p64(2), 0, 1)), ErrorCode.OID_NOT_FOUND)
    check_refused(client.ask(AskObjectHistory(p64(1), 1, 1)), ErrorCode.PROTOCOL_ERROR)


def test_a_packed_history_begins_at_the_pack_as_with_nodes_of_other_implementations(
    master: End, client: End
) -> None:
    """What the pack keeps of older revisions can be loaded, but is not listed (specification 6.14)."""
    for ttid, serial in ((10, 0), (14, 12), (20, 16)):
        commit(master, client, ttid, ttid + 2, 1, serial=serial)
    commit(master, client, 24, 26, 3)
    master.ask(AskPack(p64(18)))
    answer = client.ask(AskObjectHistory(p64(1), 0, 9))
    assert answer.history_list == [(p64(22), 10)]
    assert client.ask(AskObject(p64(1), None, p64(22))).serial == p64(16)
    master.ask(AskPack(p64(26)))
    assert client.ask(AskObjectHistory(p64(3), 0, 9)).history_list == [(p64(26), 10)]
    check_refused(client.ask(AskObjectHistory(p64(1), 0, 9)), ErrorCode.OID_NOT_FOUND)


def test_the_outcome_by_another_number_of_partitions_is_told_when_it_is_durable_27_99(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vote that was dropped must stay dropped."""
    commit(master, client, 10, 12, 2)
    durable: list[object] = []
    answer_stored = world.core.database.answer_stored

    def recorded(peer: Any, message_id: int, answer: Any) -> None:
        durable.append(answer)
        answer_stored(peer, message_id, answer)

    monkeypatch.setattr(world.core.database, "answer_stored", recorded)
    assert client.ask(AskCommitted(0, p64(10))) == AnswerCommitted(p64(12))
    assert client.ask(AskCommitted(1, p64(10))) == AnswerCommitted(None)
    assert durable == [AnswerCommitted(p64(12)), AnswerCommitted(None)]
    check_refused(client.ask(AskCommitted(7, p64(10))), ErrorCode.PROTOCOL_ERROR)


# -- bounds ----------------------------------------------------------------------------------------


def test_lists_of_ids_are_cut_to_what_a_node_gives_at_most(
    master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 6.9."""
    for ttid in (10, 12, 14):
        commit(master, client, ttid, ttid, ttid)
    monkeypatch.setattr(serving, "LENGTH_MAX", 2)
    assert client.ask(AskTIDs(0, 10, INVALID_PARTITION)).tid_list == [p64(14), p64(12)]
    assert client.ask(AskTIDs(1, 10, 0)).tid_list == [p64(12), p64(10)]
    assert client.ask(AskTIDsFrom(ZERO_TID, p64(99), 10, 0)).tid_list == [p64(10), p64(12)]
    assert client.ask(AskOIDs(0, ZERO_OID, 10)).oid_list == [p64(10), p64(12)]
    for message in AskTIDs(3, 3, 0), AskTIDs(3, 2, 0), AskTIDsFrom(ZERO_TID, p64(9), 0, 0):
        check_refused(client.ask(message), ErrorCode.PROTOCOL_ERROR)


def test_what_the_transaction_stored_counts_as_the_last_revision_for_its_undo(
    master: End, client: End
) -> None:
    """Specification 6.23."""
    commit_twice(master, client, 1)
    assert store(client, 20, 1, serial=16) is None
    for ttid, is_current in (20, False), (22, True):
        answer = client.ask(AskObjectUndoSerial(p64(ttid), p64(17), p64(16), [p64(1)]))
        assert tuple(answer.undo_dict[p64(1)])[1:] == (p64(12), is_current)


# -- damaged data ----------------------------------------------------------------------------------


def damage(world: World, master: End, client: End) -> None:
    """Commit objects 1 and 3, and damage the data of the first in the database."""
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 3)
    right = sha1(data_of(10)).digest()
    world.backend.engine.write("UPDATE data SET value=? WHERE hash=?", b"wrong", right)


def test_damaged_data_is_refused_and_other_objects_are_served(
    world: World, master: End, client: End
) -> None:
    """Specification 6.8."""
    damage(world, master, client)
    code, text = refused(load(client, 1))
    assert code == ErrorCode.CHECKING_ERROR.value and p64(1).hex() in text
    assert load(client, 3).data == data_of(14)
    assert not client.closed and world.host.restarts == 0


def test_a_page_has_damaged_data_as_it_is_for_the_reader_to_verify(
    world: World, master: End, client: End
) -> None:
    """Specification 6.28."""
    damage(world, master, client)
    answer = client.ask(AskRevisions(1, 0, ZERO_TID, p64(99), None, 1000, True))
    rows = [(row[0], row[3], row[5]) for row in answer.revision_list]
    assert rows == [
        (p64(1), sha1(data_of(10)).digest(), b"wrong"),
        (p64(3), sha1(data_of(14)).digest(), data_of(14)),
    ]


def test_the_last_transactions_are_answered_with_their_metadata_unless_a_cell_is_not_readable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 7.61, 7.62."""
    master = world.operate([[(1, UP)], [(1, UP)], [(1, OUT)]])
    client = world.client(master)
    tids = [12, 15, 18, 22]  # partitions 0, 0, 0, 1
    for tid in tids:
        commit(master, client, tid - 3, tid, 3 * tid)

    def log(length: int, *partitions: int, of: int = 3) -> Any:
        return client.ask(AskTransactionLog(length, of, list(partitions)))

    found = log(9, 0, 1)
    (information,) = [client.ask(AskTransactionInformation(p64(22)))]
    people = information.user, information.description, information.extension
    assert found.row_list == [(p64(tid), *people, False) for tid in reversed(tids)]
    assert not found.more
    assert [row[0] for row in log(2, 0).row_list] == [p64(18), p64(15)] and log(2, 0).more
    assert log(9).row_list == []
    not_here = ErrorCode.NON_READABLE_CELL.value
    assert [log(9, 0, 2).code, log(9, 0, of=4).code] == [not_here, not_here]
    monkeypatch.setattr(transaction_log, "BYTES_MAX", 1)
    assert [row[0] for row in log(9, 0, 1).row_list] == [p64(22)] and log(9, 0, 1).more
