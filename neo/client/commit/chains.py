"""Transactions of a client that are finished at the same time (specification 7.68 to 7.70)."""

from __future__ import annotations

from collections.abc import Sequence

from neo.client.commit.transaction import ClientTransaction
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.protocol.packets import FEATURE_CHAINS, FEATURE_OURS, NotifyChain


def chained(
    primary: MasterConnection,
    storages: StorageConnections,
    transactions: Sequence[ClientTransaction],
) -> bool:
    """Have the master commit each of these voted transactions only after the one before it. They may be
    finished at the same time then.

    Return False if the master does not know that, or if they are not all on one storage node of ours: of
    those on several, a loss of nodes could leave a later one without an earlier one.
    """
    joined, places = primary.current, {each.place for each in transactions}
    if joined is None or len(places) != 1 or FEATURE_CHAINS not in joined.handler.features:
        return False
    ((master, nid),) = places
    if nid is None or master is not joined.channel or FEATURE_OURS not in storages.announced(nid):
        return False
    if len(transactions) > 1:
        master.send(NotifyChain([each.ttid for each in transactions]))
    return True
