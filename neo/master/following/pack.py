"""Packs of the upstream cluster are done in its backups, too.

The primary master of the upstream cluster announces a pack that was asked for (NotifyPack), at once and
to each backup that joins later. The backup packs at the same tid when it has everything until then. A
pack that fails because a storage node is away is tried again. Only the latest pack matters, because it
does what all earlier ones would do.
"""

from __future__ import annotations

import logging

from neo.master.maintenance.pack import Packs
from neo.node.core import Core
from neo.node.task import Task
from neo.protocol.ids import ZERO_TID

logger = logging.getLogger("neo.master")

#: Pause before a pack that failed, or found another one running, is tried again.
RETRY_SECONDS = 10.0


class Packer:
    def __init__(self, core: Core, packs: Packs) -> None:
        self._core = core
        self._packs = packs
        #: Tids of three packs: the last one upstream, the last one that is possible here, the last one
        #: that was done here.
        self._wanted = self._possible = self._done = ZERO_TID
        self._task: Task[None] | None = None

    def wanted(self, tid: bytes) -> None:
        """Note a pack of the upstream cluster (NotifyPack)."""
        if tid > max(self._wanted, self._done):
            self._wanted = tid

    def advanced(self, tid: bytes, last: bytes) -> None:
        """Pack if all data up to the tid of the pack is here. ``tid``: all cells are complete up to it.
        ``last``: the last transaction that is known."""
        if tid >= min(self._wanted, last):
            self._possible = self._wanted
        if self._possible > self._done and (self._task is None or self._task.done):
            self._task = self._core.spawn(self._pack())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _pack(self) -> None:
        while (tid := self._possible) > self._done:
            failure = "another pack is at work"
            if not self._packs.running:
                outcome = await self._packs.run(tid)
                failure = outcome.lost or outcome.failure
            if failure:
                logger.warning("the pack at %s is tried again: %s", tid.hex(), failure)
                await self._core.sleep(RETRY_SECONDS)
            else:
                self._done = tid
                logger.info("packed at %s, as the upstream cluster", tid.hex())
                self._packs.announce(tid)
