"""A database after whose last transaction no tid is left is not believed."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    AnswerLastIDs,
    AnswerLockedTransactions,
    AskLastIDs,
    AskLockedTransactions,
)
from tests.unit.master.cluster import MasterWorld, spread, tid

GREATEST = 2**63 - 2**40


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_last_transaction_that_leaves_no_tids_costs_the_connection(
    beyond: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 15.9."""
    world = MasterWorld()
    storage = world.storage(1, 5, spread(1), nid=1)
    storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions({}))
    storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, tid(GREATEST + beyond)))
    assert storage.closed is bool(beyond)
    assert ("after which no tid is left" in caplog.text) is bool(beyond)
    state = ClusterState.RECOVERING if beyond else ClusterState.RUNNING
    assert world.master.cluster.state is state
