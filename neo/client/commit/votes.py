"""The votes of a transaction: which nodes are asked, and whether those that answered suffice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neo.client.commit.participants import Change, Participants
from neo.client.connect.master import View
from neo.client.errors import TransactionLostError
from neo.protocol.ids import format_nids
from neo.protocol.packets import AskStoreTransaction, AskVoteSingle


def only_node(participants: Participants, keepers: Sequence[int]) -> int | None:
    """Return the storage node that alone takes part in a transaction; None if several do. ``keepers``:
    the nodes that are to keep its metadata."""
    alone = len(keepers) == 1 and {*participants.nids()} <= {*keepers}
    return keepers[0] if alone else None


def with_metadata(ttid: bytes, metadata: Any, stored: list[bytes]) -> AskStoreTransaction:
    """Return the vote for a node that keeps ZODB's metadata of the transaction."""
    extension = metadata.extension_bytes
    return AskStoreTransaction(ttid, metadata.user, metadata.description, extension, stored)


def single(
    ttid: bytes, metadata: Any, stored: list[bytes], checked: list[bytes], durable: bool
) -> AskVoteSingle:
    """Return the vote for the only node of the transaction. ``durable``: by itself, before the lock."""
    vote = with_metadata(ttid, metadata, stored)
    people = vote.user, vote.description, vote.extension
    return AskVoteSingle(ttid, *people, stored, checked, durable)


def failed_nodes(
    participants: Participants,
    view: View,
    changes: Mapping[bytes, Change],
    keepers: Iterable[int],
    lockless: bool,
) -> list[int]:
    """Return the lost nodes that are still running for this client. ``lockless``: whether a node
    accepted something without a lock.

    Raise TransactionLostError if the others do not suffice (specification 7.22).
    """
    alive, failed = frozenset(participants.alive()), participants.lost()
    if alive.isdisjoint(keepers):
        reasons = "; ".join(participants.reasons())
        raise TransactionLostError(f"no storage node has the transaction's metadata: {reasons}")
    if not failed and not lockless:
        return []
    complete: dict[int, frozenset[int]] = {}
    for oid, change in changes.items():
        partition = view.partition(oid)
        complete[partition] = complete.get(partition, alive) & change.locked
    if not all(complete.values()):
        reasons = "; ".join(participants.reasons())
        raise TransactionLostError(
            f"storage nodes {format_nids(failed)} were lost, and no other one "
            f"has locked all objects of a partition: {reasons}"
        )
    return [nid for nid in failed if nid in view.addresses]
