"""A client of a cluster that stops."""

from __future__ import annotations

from typing import Any

import pytest

from neo.client.errors import TransactionLostError
from neo.net.channel import Ticket
from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    AbortTransaction,
    AskBeginTransaction,
    AskFinishTransaction,
    AskStoreObject,
    Message,
    NotifyClusterInformation,
    Request,
)
from tests.unit.client.committing import TTID, begin, settle, storing
from tests.unit.client.scripted import Scripted, scripted

STOPPING = NotifyClusterInformation(ClusterState.STOPPING)


def aborts(cluster: Scripted) -> list[Message]:
    return cluster.master.asked(AbortTransaction)


@pytest.mark.parametrize("phase", ["begun", "waits for a lock", "stored"])
def test_a_transaction_in_its_first_phase_is_aborted_without_the_application(phase: str) -> None:
    """The application may compute for a long time before its next call (specification 4.33, 16.31)."""
    with scripted([1], [2]) as (cluster, storage):
        node = cluster.storages[2]
        if phase == "begun":
            t = begin(storage)
            storage.sync()
        else:
            if phase == "waits for a lock":
                node.answers[AskStoreObject] = lambda m: None
            t = storing(storage)
            node.wait_for(AskStoreObject)
            if phase == "stored":
                settle(storage, t)
        cluster.tell(STOPPING)
        involved = [] if phase == "begun" else [2]
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, involved)
        if phase != "waits for a lock":
            with pytest.raises(TransactionLostError, match="the cluster stops"):
                storage.tpc_vote(t)
        storage.tpc_abort(t)
        storage.sync()
        assert len(aborts(cluster)) == 1, "the master knows it no more"


def test_a_voted_transaction_is_finished() -> None:
    """Specification 16.31."""
    with scripted([1]) as (cluster, storage):
        t = storing(storage)
        storage.tpc_vote(t)
        cluster.tell(STOPPING)
        storage.sync()
        assert storage.tpc_finish(t) == cluster.last_tid
        assert not aborts(cluster) and cluster.master.asked(AskFinishTransaction)


def test_a_transaction_that_the_news_overtake_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both messages arrive before the application's thread has registered its transaction."""
    with scripted([1]) as (cluster, storage):
        master = storage._session.master.channel()
        ask = master.ask

        def late(message: Request[Any], *rest: Any) -> Ticket[Any]:
            ticket = ask(message, *rest)
            if isinstance(message, AskBeginTransaction):
                storage.sync()
                cluster.tell(STOPPING)
                storage.sync()
            return ticket

        monkeypatch.setattr(master, "ask", late)
        begin(storage)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [])
