"""The open database of a storage node, and what waits until it is durable.

A database that refuses a statement (specification 14.49)
---------------------------------------------------------
The node begins anew after each failure of its database. If the database works and refuses one statement,
a peer that asks again would end the node again, for ever. So a process whose database refused a statement
is *careful* from then on: requests of clients and storage nodes, and each step of the background, are
attempts, which are undone alone when a statement is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.packets import Message
from neo.storage.backend.api import Backend, BackendFailure, BackendRefused, StatementRefused

#: An unlocked transaction becomes durable with the next vote or lock, or after this time. Until then a
#: crash is repaired by verification, which takes longer the more transactions there are to replay.
COMMIT_SECONDS = 1.0

_NO_ATTEMPT = nullcontext()

logger = logging.getLogger("neo.storage")


def _nothing() -> None:
    pass


@dataclass
class Refusals:
    """Statements that the database refused this process. It outlives the cores. ``last``: the text of the
    last refusal, empty before the first one; ``count``: of those that did not end a core."""

    last: str = ""
    count: int = 0

    @property
    def careful(self) -> bool:
        return bool(self.last)


class Database:
    """The backend of a core, with callbacks that end with the core and report failures to it."""

    def __init__(self, core: Core, backend: Backend, refusals: Refusals | None = None) -> None:
        self.backend = backend
        self._engine = backend.engine
        self.refusals = refusals or Refusals()
        #: Whether requests and steps of the background are attempts.
        self.careful = self.refusals.careful
        self._core = core
        #: Whether the partition table is durable as it is.
        self.table_stored = True
        self._tables = 0
        self._commit_planned = False

    def failed(self, failure: BackendFailure) -> None:
        """End the core: its state in memory is worthless without the database."""
        self._core.fail(failure)

    def attempt(self) -> AbstractContextManager[None]:
        """Have a block undone alone, with BackendRefused, if this database is careful and refuses a
        statement of it."""
        return self._attempt() if self.careful else _NO_ATTEMPT

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            with self._engine.attempt():
                yield
        except StatementRefused as e:
            self.refusals.last = str(e)
            self.refusals.count += 1
            logger.error("what follows from one message is undone: %s", e)
            raise BackendRefused(f"the database of the node refuses it: {e}") from e

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._core.host.monotonic()

    # -- callbacks -------------------------------------------------------------------------------

    def guard(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Wrap a callback for the backend or a timer: it does nothing after the end of the core, and its
        BackendFailure ends the core."""

        def run() -> None:
            if self._core.stopped:
                return
            try:
                callback()
            except BackendFailure as e:
                self.failed(e)

        return run

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """Start a timer with a guarded callback."""
        self._core.call_later(delay, self.guard(callback))

    # -- durability ------------------------------------------------------------------------------

    def answer_stored(
        self,
        peer: Peer,
        message_id: int,
        answer: Message,
        before: Callable[[], None] | None = None,
        alone: bool = False,
    ) -> None:
        """Answer when everything that was written until now is durable; call ``before`` first. ``alone``:
        see :meth:`~neo.storage.backend.api.Durability.stored`."""

        def answer_now() -> None:
            if before is not None:
                before()
            peer.answer(message_id, answer)

        send = self.guard(answer_now)
        late = self._core.host.fault(FaultSite.STORED_ANSWER_LATE)
        self._engine.stored(partial(self._late, send) if late else send, alone)

    def _late(self, send: Callable[[], None]) -> None:
        self._core.call_later(LATE_SECONDS, send)

    def answer_written(self, peer: Peer, message_id: int, answer: Message) -> None:
        """Answer when what was written until now has its room on the disk. It becomes durable within
        COMMIT_SECONDS: until then a crash of the machine may lose it."""
        self._engine.written(self.guard(partial(peer.answer, message_id, answer)))
        self.commit_soon()

    def stored(self) -> Future[None]:
        """Return a future for a job: everything that was written until now is durable."""
        future: Future[None] = Future()
        self._engine.stored(self.guard(lambda: future.resolve(None)))
        return future

    def executed(self) -> Future[None]:
        """Return a future for a job: everything that was written until now can be read."""
        future: Future[None] = Future()
        self._engine.executed(self.guard(lambda: future.resolve(None)))
        return future

    def commit_soon(self) -> None:
        """Make what was written durable within COMMIT_SECONDS."""
        if not self._commit_planned:
            self._commit_planned = True
            self.call_later(COMMIT_SECONDS, self._commit)

    def _commit(self) -> None:
        self._commit_planned = False
        self._engine.stored(_nothing)

    def store_table(self) -> None:
        """Make the partition table durable soon, and before the next lock is answered: the master refuses
        to start with an older table than that of a transaction that all its nodes locked."""
        self.table_stored = False
        self._tables += 1
        version = self._tables

        def stored() -> None:
            if self._tables == version:
                self.table_stored = True

        self._engine.stored(self.guard(stored))
