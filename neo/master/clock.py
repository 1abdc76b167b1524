"""The clock of the master: tids are times only if it is right."""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.protocol.ids import time_from_tid

logger = logging.getLogger("neo.master")

#: Machines without NTP soon differ by less than this, which does not matter in the date of a transaction.
BEHIND_SECONDS = 60.0
#: How often the clock is compared.
CHECK_SECONDS = 60.0


async def watch_clock(cluster: Cluster, core: Core) -> None:
    """Warn when the clock is behind the last transaction: at the start, or because it jumped back. Warn
    once until it is right again, which may take days. Never returns."""
    warned = False
    while True:
        behind = time_from_tid(cluster.last_tid) - core.host.time()
        if behind > BEHIND_SECONDS and not warned:
            logger.warning(
                "the clock of this machine is %.0f s behind the last transaction, %s: new ones get the"
                " time of that one until the clock is there; set the clock, and keep it with NTP",
                behind,
                cluster.last_tid.hex(),
            )
        warned = behind > BEHIND_SECONDS
        await core.sleep(CHECK_SECONDS)
