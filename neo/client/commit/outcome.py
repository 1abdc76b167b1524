"""The tid of a transaction whose master was lost while it was being finished (specification 7.37 to 7.39,
27.99)."""

from __future__ import annotations

from contextlib import suppress
from math import gcd

from neo.client.connect.connections import Backoff
from neo.client.connect.master import MasterConnection, Partition
from neo.client.errors import NEOStorageError, RegroupedError
from neo.client.read.replicas import Replicas
from neo.protocol.ids import MAX_TID, u64
from neo.protocol.packets import FEATURE_OURS, AskCommitted, AskFinalTID


def final_tid(
    master: MasterConnection,
    replicas: Replicas,
    ttid: bytes,
    partitions: int,
    backoff: Backoff,
) -> bytes | None:
    """Return the tid; None if it was not committed. ``partitions``: how many there were when it voted.
    Raise ErrorAnswer, NEOStorageError. Any thread."""
    question = AskFinalTID(ttid)
    answer = master.ask(question, backoff)
    if answer.tid != MAX_TID:
        return answer.tid
    # Committed before this master was elected or started: ask a storage node.
    while True:
        with suppress(RegroupedError):  # then once more, by the other number
            if len(replicas.view().readable) != partitions:
                return _committed(replicas, ttid, partitions, backoff)
            partition = Partition(u64(ttid) % partitions, partitions)
            return replicas.read(partition, question, backoff).tid


def _committed(
    replicas: Replicas, ttid: bytes, partitions: int, backoff: Backoff
) -> bytes | None:
    """Look in all partitions that may have the tid: by the former number of partitions, tid and ttid have
    the same remainder. Raise RegroupedError."""
    knows = replicas.feature(FEATURE_OURS)
    for partition in replicas.view().all_partitions():
        if (u64(ttid) - partition.number) % gcd(partitions, partition.partitions):
            continue
        if not knows.known(partition):
            raise NEOStorageError(
                "the number of partitions was changed, and some storage nodes are of an earlier release:"
                " upgrade them"
            )
        question = AskCommitted(partition.number, ttid)
        if (tid := replicas.read(partition, question, backoff).tid) is not None:
            return tid
    return None
