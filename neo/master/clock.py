"""Tids are times, if the clock of the master is right."""

from __future__ import annotations

import logging
from typing import Protocol

from neo.node.task import Future
from neo.protocol.ids import time_from_tid

logger = logging.getLogger("neo.master")

#: Clocks of machines without NTP differ by so much soon; nobody minds it in the date of a transaction.
BEHIND_SECONDS = 60.0
#: How often the clock is compared.
CHECK_SECONDS = 60.0


class Shell(Protocol):
    def time(self) -> float: ...


class Master(Protocol):
    """What is watched. ``last_tid``: of the last transaction."""

    @property
    def last_tid(self) -> bytes: ...

    @property
    def shell(self) -> Shell: ...

    def sleep(self, seconds: float) -> Future[None]: ...


async def watch_clock(master: Master) -> None:
    """Warn when the clock is behind the last transaction: at the start, or because it jumped back. Once
    until it is right again: it may take days. Never returns."""
    told = False
    while True:
        behind = time_from_tid(master.last_tid) - master.shell.time()
        if behind > BEHIND_SECONDS and not told:
            logger.warning(
                "the clock of this machine is %.0f s behind the last transaction, %s: new ones get the"
                " time of that one until the clock is there; set the clock, and keep it with NTP",
                behind,
                master.last_tid.hex(),
            )
        told = behind > BEHIND_SECONDS
        await master.sleep(CHECK_SECONDS)
