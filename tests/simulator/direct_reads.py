"""Clients that read the nodes of one process directly, as the threads of an embedded database do.

The master must be in that process: a storage node that has lost its master may not know yet what a client
knows. A client of an embedded database ends with its nodes, so direct reads end with the life of the
process in which the client began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from neo.protocol.packets import A, Request
from neo.storage.node import StorageNode
from tests.simulator.one_process import OneProcess


class SimDirectReads:
    """Implements :class:`neo.net.host.DirectReads`. ``point``: lets an exception from outside come."""

    def __init__(self, group: OneProcess, point: Callable[[], None]) -> None:
        self._group = group
        self._life = group.lives
        self._point = point

    def answer(self, nids: Collection[int], message: Request[A]) -> A | None:
        self._point()
        group = self._group
        if group.lives != self._life:
            return None
        for member in group.members:
            _, core = member.life()
            if isinstance(core, StorageNode) and not member.paused and core.cluster.nid in nids:
                answer = core.direct.answer(message)
                if answer is not None:
                    self._point()
                    return answer
        return None
