"""Packs of the upstream cluster are done in its backups, too.

The primary master of the upstream cluster tells of a pack that was asked for (NotifyPack), at once and
to each backup that joins later. The backup packs at the same tid when it has everything until then.
A pack that fails, since a storage node is away, is tried again. Only the latest matters: it does what
all earlier ones would.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.node.task import Task
from neo.protocol.enums import NodeState
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AskPack

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")

#: A pack that failed, or finds another one at work, is tried again after this time.
RETRY_SECONDS = 10.0


class Packer:
    def __init__(self, master: MasterCore) -> None:
        self._master = master
        #: The tids of the last pack upstream, of that for which everything is here, of that done.
        self._wanted = self._possible = self._done = ZERO_TID
        self._task: Task[None] | None = None

    def wanted(self, tid: bytes) -> None:
        """NotifyPack."""
        if tid > max(self._wanted, self._done):
            self._wanted = tid

    def advanced(self, tid: bytes, last: bytes) -> None:
        """All cells are complete up to ``tid``; ``last``: the last transaction that is known."""
        if tid >= min(self._wanted, last):
            self._possible = self._wanted
        if self._possible > self._done and (self._task is None or self._task.done):
            self._task = self._master.spawn(self._pack())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _pack(self) -> None:
        while (tid := self._possible) > self._done:
            failure = "another pack is at work"
            if not self._master.packs.running:
                failure = await self._ask(tid)
            if failure:
                logger.warning("the pack at %s is tried again: %s", tid.hex(), failure)
                await self._master.sleep(RETRY_SECONDS)
            else:
                self._done = tid
                logger.info("packed at %s as the upstream cluster", tid.hex())
                self._master.packed(tid)

    async def _ask(self, tid: bytes) -> str:
        """Why it is not complete; empty if it is."""
        self._master.packs.running = True
        try:
            futures = [
                storage.ask(AskPack(tid))
                for storage in self._master.storages()
                if storage.node is not None and storage.node.state is NodeState.RUNNING
            ]
            failure = ""
            for future in futures:
                try:
                    await future
                except (ConnectionLost, ErrorAnswer) as e:
                    failure = failure or str(e)
            return failure
        finally:
            self._master.packs.running = False
