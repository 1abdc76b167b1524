"""A synchronous backup lists what it keeps prepared (specification 25.69)."""

from __future__ import annotations

from neo.master.sync.synchronous import TICK_SECONDS
from neo.protocol.packets import AnswerJoinSync, AskJoinSync, AskPrepared, SyncMark
from tests.unit.master.cluster import tid
from tests.unit.master.sync_world import SyncWorld

XID = b"order-7"
MARK: SyncMark = (tid(20), XID, 5.0, b"ada /pay", [1], [tid(1)], [tid(2)])


def test_what_is_prepared_upstream_is_listed_in_the_backup() -> None:
    world = SyncWorld()
    upstream, _ = world.backingup()
    assert world.admin().ask(AskPrepared(0, None)).result().row_list == []
    world.host.advance(TICK_SECONDS)
    upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(0), [MARK]))
    row = (XID, tid(20), None, 5.0, 2, b"ada /pay", "kept")
    assert world.admin().ask(AskPrepared(0, None)).result().row_list == [row]
    assert world.admin().ask(AskPrepared(0, XID)).result().row_list == [row]
    assert world.admin().ask(AskPrepared(0, b"other")).result().row_list == []
