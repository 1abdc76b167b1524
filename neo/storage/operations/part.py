"""The engine of a storage node: its journal is in the database, its initiator is the primary master."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from neo.node.core import Core
from neo.node.peer import Peer
from neo.operations.engine import Engine, Journaled
from neo.operations.model import State, StepMark
from neo.protocol.errors import PeerError
from neo.protocol.packets import (
    FEATURE_OURS,
    AskRoom,
    NotifyOperation,
    NotifyOperationEnded,
    NotifyOperationMark,
    NotifyOperationState,
)
from neo.storage.backend.api import JournalStep
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.operations.room import Room
from neo.storage.operations.steps import StepFunction, StepRunner

logger = logging.getLogger("neo.storage")

#: Period in which an undo that failed is looked at.
TICK_SECONDS = 1.0


class Operations:
    """Implements Journal and StepMarks of :mod:`neo.operations.engine`."""

    def __init__(
        self,
        core: Core,
        database: Database,
        cluster: Cluster,
        functions: Mapping[str, StepFunction],
        room: Room,
    ) -> None:
        self._core = core
        self._database = database
        self._cluster = cluster
        self._room = room
        self._runner = StepRunner(core, functions)
        self._engine: Engine | None = None
        self._ticking = False

    @property
    def busy(self) -> bool:
        """Whether this node has a part in an operation."""
        return self._engine is not None and self._engine.busy

    def register(self, name: str, function: StepFunction) -> None:
        """Execute the steps of this name with a function."""
        self._runner.register(name, function)

    def _engine_of(self, nid: int) -> Engine:
        if self._engine is None or self._engine.me != nid:
            self._engine = Engine(nid, self, self._runner, self)
            self._runner.ends = self._engine
        return self._engine

    def known(self) -> list[tuple[list[Any], bool]]:
        """Return what RequestIdentification tells of the journal."""
        nid = self._cluster.nid
        return [] if nid is None else self._engine_of(nid).known()

    def master_lost(self) -> None:
        if self._engine is not None:
            self._engine.disconnected()

    # -- messages of the master --------------------------------------------------------------------

    def started(self, m: NotifyOperation) -> None:
        """Raise PeerError if the operation is malformed."""
        try:
            self._mine().started(m.id, m.operation)
        except ValueError as e:
            raise PeerError(f"operation {m.id}: {e}") from None

    def told(self, m: NotifyOperationState) -> None:
        """Raise PeerError for an unknown state."""
        try:
            state = State(m.state)
        except ValueError:
            raise PeerError(f"operation {m.id} is {m.state!r}") from None
        context = {(step, nid): data for step, nid, data in m.context_list}
        self._mine().told(self._core.host.monotonic(), m.id, state, m.complete, context)
        self._tick_later()

    def ended(self, m: NotifyOperationEnded) -> None:
        self._mine().ended(m.id)
        self._database.commit_soon()

    def measure(self, peer: Peer, message_id: int, m: AskRoom) -> None:
        """Answer how much room a backup needs and has."""

        async def answer() -> None:
            peer.answer(message_id, await self._room.measure(m))

        self._core.spawn(answer())

    def _mine(self) -> Engine:
        assert self._cluster.nid is not None
        return self._engine_of(self._cluster.nid)

    # -- timer -------------------------------------------------------------------------------------

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._database.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self._engine is not None and self._engine.busy:
            self._engine.tick(self._core.host.monotonic())
            self._tick_later()

    # -- Journal -----------------------------------------------------------------------------------

    def load(self) -> dict[int, tuple[bytes, list[Journaled]]]:
        return {
            id: (body, [Journaled(*step) for step in steps])
            for id, (body, steps) in self._database.backend.operations.journal().items()
        }

    def begin(self, id: int, body: bytes) -> None:
        self._database.backend.operations.begin_operation(id, body)

    def write(self, id: int, step: Journaled) -> None:
        self._database.backend.operations.write_step(id, JournalStep(*step))

    def forget(self, id: int) -> None:
        self._database.backend.operations.forget_operation(id)

    def sync(self, id: int, step: int) -> None:
        def durable() -> None:
            if self._engine is not None:
                self._engine.durable(self._core.host.monotonic(), id, step)

        self._database.backend.engine.stored(self._database.guard(durable))

    # -- StepMarks -------------------------------------------------------------------------------------

    def send(self, id: int, step: int, mark: StepMark, done: float, text: str, context: bytes) -> None:
        master = self._cluster.master
        if master is not None and FEATURE_OURS in master.features:
            master.peer.send(NotifyOperationMark(id, step, mark.value, done, text, context))
