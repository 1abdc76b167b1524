"""What must be there before data is deleted on all nodes (specification, *RECOVERING*)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.master.serving.denial import denied
from neo.protocol.ids import format_nids, tid_from_time

if TYPE_CHECKING:
    from neo.master.core import MasterCore

#: No ZODB is so old. It is what a tid is before that was meant to be seconds, or lost some digits.
EARLIEST_TID = tid_from_time(0)


def check_tid(master: MasterCore, tid: bytes) -> None:
    """Raises ErrorAnswer unless the database can be as it was at ``tid``, and may be meant to."""
    last, packed = master.last_tid, master.packs.tid
    if tid > last:
        raise denied(f"the last transaction is {last.hex()}: nothing to delete")
    if tid < packed:
        raise denied(f"the database was packed at {packed.hex()}: what it was before is gone")
    # Tids of tests, and of tools that do not know that tids are dates, are all so small.
    if tid < EARLIEST_TID <= last:
        raise denied(
            f"the tid {tid.hex()} is before 1970: everything would be deleted; a time is written in"
            " seconds since 1970, with a dot"
        )


def check_all_there(master: MasterCore) -> None:
    """Raises ErrorAnswer unless all nodes that have cells run."""
    if absent := master.partitions.nodes() - master.running_storages():
        names = format_nids(absent)
        raise denied(f"{names} must run, or be dropped: what is deleted would come back with it")
