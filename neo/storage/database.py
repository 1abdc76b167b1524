"""The open database of a storage node, and what waits until it is durable."""

from __future__ import annotations

from collections.abc import Callable

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.packets import Message
from neo.storage.backend.api import Backend, BackendFailure

#: An unlocked transaction becomes durable with the next vote or lock, or after this time. Until then a
#: crash is repaired by verification, which takes longer the more transactions there are to replay.
COMMIT_SECONDS = 1.0


def _nothing() -> None:
    pass


class Database:
    """The backend of a core, with callbacks that end with the core and report failures to it."""

    def __init__(self, core: Core, backend: Backend) -> None:
        self.backend = backend
        self._core = core
        #: Whether the partition table is durable as it is.
        self.table_stored = True
        self._tables = 0
        self._commit_planned = False

    def failed(self, failure: BackendFailure) -> None:
        """End the core: its state in memory is worthless without the database."""
        self._core.fail(failure)

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
    ) -> None:
        """Answer when everything that was written until now is durable; call ``before`` first."""

        def answer_now() -> None:
            if before is not None:
                before()
            peer.answer(message_id, answer)

        send = self.guard(answer_now)
        if self._core.host.fault(FaultSite.STORED_ANSWER_LATE):
            self.backend.stored(lambda: self._late(send))
        else:
            self.backend.stored(send)

    def _late(self, send: Callable[[], None]) -> None:
        self._core.call_later(LATE_SECONDS, send)

    def stored(self) -> Future[None]:
        """Return a future for a job: everything that was written until now is durable."""
        future: Future[None] = Future()
        self.backend.stored(self.guard(lambda: future.resolve(None)))
        return future

    def executed(self) -> Future[None]:
        """Return a future for a job: everything that was written until now can be read."""
        future: Future[None] = Future()
        self.backend.executed(self.guard(lambda: future.resolve(None)))
        return future

    def commit_soon(self) -> None:
        """Make what was written durable within COMMIT_SECONDS."""
        if not self._commit_planned:
            self._commit_planned = True
            self.call_later(COMMIT_SECONDS, self._commit)

    def _commit(self) -> None:
        self._commit_planned = False
        self.backend.stored(_nothing)

    def store_table(self) -> None:
        """Make the partition table durable soon, and before the next lock is answered: the master refuses
        to start with an older table than that of a transaction that all its nodes locked."""
        self.table_stored = False
        self._tables += 1
        version = self._tables

        def stored() -> None:
            if self._tables == version:
                self.table_stored = True

        self.backend.stored(self.guard(stored))
