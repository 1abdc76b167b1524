"""Stores after the master's abort, and tids that are imposed again (specification 7.6, 7.71)."""

from __future__ import annotations

import pytest

from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_CHAINS,
    FEATURE_OURS,
    AbortTransaction,
    AskRecovery,
    NotifyFeatures,
    NotifyPresetEnded,
)
from tests.unit.storage.requests import store
from tests.unit.storage.world import End


@pytest.mark.parametrize("tells", [True, False])
def test_a_late_store_is_accepted_only_of_a_tid_that_may_begin_again(
    master: End, client: End, tells: bool
) -> None:
    """The transactions were aborted before anything of them arrived. The late store of one comes on a
    connection that its client has lost: it would hold the object as long as the client lives."""
    master.send(NotifyFeatures([FEATURE_OURS, *[FEATURE_CHAINS] * tells]))
    for ttid in 10, 20:
        master.send(AbortTransaction(p64(ttid), []))
    if tells:
        master.send(NotifyPresetEnded(p64(20)))
    master.ask(AskRecovery())
    # A master that does not tell which may begin again can mean each of them.
    assert store(client, 10, 1) == (ZERO_TID if tells else None)
    assert store(client, 20, 2) is None
