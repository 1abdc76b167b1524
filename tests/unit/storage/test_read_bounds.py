"""Lists of ids that are long, and undo questions about what a transaction stored itself."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import INVALID_PARTITION, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import AskObjectUndoSerial, AskOIDs, AskTIDs, AskTIDsFrom
from neo.storage.serving import client as serving
from tests.unit.storage.requests import commit, store
from tests.unit.storage.world import End, refused


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
        assert refused(client.ask(message))[0] == ErrorCode.PROTOCOL_ERROR.value


def test_what_the_transaction_stored_counts_as_the_last_revision_for_its_undo(
    master: End, client: End
) -> None:
    """Specification 6.23."""
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    assert store(client, 20, 1, serial=16) is None
    for ttid, is_current in (20, False), (22, True):
        answer = client.ask(AskObjectUndoSerial(p64(ttid), p64(17), p64(16), [p64(1)]))
        assert tuple(answer.undo_dict[p64(1)])[1:] == (p64(12), is_current)
