"""How far the partitions of a node are packed: rows of ``config`` (specification 14.10).

``_packed.N`` has the tid of the last pack that is done in partition N; ``_packing`` the partition, the
tid and the next oid of one that was interrupted, or is in progress.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.protocol.ids import ZERO_OID
from neo.storage.backend.api import Tables

_PACKING = "_packing"


def packed_tid(tables: Tables, partition: int) -> int:
    """Return the tid of the last pack that is done, 0 if there was none."""
    return int(tables.get_config(_row(partition)) or 0)


def set_packed_tid(tables: Tables, partition: int, tid: int) -> None:
    """Note that a partition is packed; forget where an earlier pack was interrupted."""
    tables.set_config(_row(partition), str(tid) if tid else None)
    if begun_pack(tables)[0] == partition:
        tables.set_config(_PACKING, None)


def begun_pack(tables: Tables) -> tuple[int, int, bytes]:
    """Return (partition, tid, next oid) of a pack that was begun; partition -1 if there is none."""
    partition, tid, oid = (tables.get_config(_PACKING) or f"-1:0:{ZERO_OID.hex()}").split(":")
    return int(partition), int(tid), bytes.fromhex(oid)


def set_begun_pack(tables: Tables, partition: int, tid: int, oid: bytes) -> None:
    tables.set_config(_PACKING, f"{partition}:{tid}:{oid.hex()}")


def regroup_packed(tables: Tables, groups: Sequence[range]) -> None:
    """Take another number of partitions: ``groups`` has, for each, the former ones that it is made of. It
    is packed as far as all of them."""
    tables.set_config(_PACKING, None)
    former = {p: packed_tid(tables, p) for group in groups for p in group}
    for partition in former:
        tables.set_config(_row(partition), None)
    for partition, group in enumerate(groups):
        tid = min(former[p] for p in group)
        tables.set_config(_row(partition), str(tid) if tid else None)


def _row(partition: int) -> str:
    return f"_packed.{partition}"
