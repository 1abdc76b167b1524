"""Preconditions of a truncation, which deletes data on all nodes (specification 4)."""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.denial import denied
from neo.master.maintenance.pack import Packs
from neo.protocol.ids import format_nids, tid_from_time

#: No ZODB is older. A smaller tid was meant to be a number of seconds, or lost some digits.
EARLIEST_TID = tid_from_time(0)


def check_tid(cluster: Cluster, packs: Packs, tid: bytes) -> None:
    """Raise ErrorAnswer unless the database can be truncated to ``tid``, and ``tid`` is plausible."""
    last, packed = cluster.last_tid, packs.tid
    if tid > last:
        raise denied(f"the last transaction is {last.hex()}: nothing to delete")
    if tid < packed:
        raise denied(f"the database was packed at {packed.hex()}: what it was before is gone")
    # A last tid below this is no time: tests and some tools use small numbers as tids.
    if tid < EARLIEST_TID <= last:
        raise denied(
            f"the tid {tid.hex()} is before 1970: everything would be deleted; a time is written in"
            " seconds since 1970, with a dot"
        )


def check_all_there(cluster: Cluster) -> None:
    """Raise ErrorAnswer unless all nodes that have cells run."""
    if absent := cluster.partitions.nodes() - cluster.running_storages():
        names = format_nids(absent)
        raise denied(f"{names} must run, or be dropped: what is deleted would come back with it")
