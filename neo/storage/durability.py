"""What a storage node says when its data is on disk: the part of the core that waits for the backend."""

from __future__ import annotations

from collections.abc import Callable

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.core import Core
from neo.node.host import Host
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.packets import Message
from neo.storage.backend.api import Backend, BackendFailure


def _nothing() -> None:
    pass


class Durability(Core):
    def __init__(self, shell: Host, backend: Backend) -> None:
        super().__init__(shell)
        self.backend = backend
        #: Whether the partition table is durable as it is.
        self.table_stored = True

    def guard(self, callback: Callable[[], None]) -> Callable[[], None]:
        """For callbacks of the backend and timers: nothing happens after the end of the core, and a
        failure of the database ends it."""

        def run() -> None:
            if self.stopped:
                return
            try:
                callback()
            except BackendFailure as e:
                self.fail(e)

        return run

    def answer_stored(
        self,
        peer: Peer,
        message_id: int,
        answer: Message,
        before: Callable[[], None] = _nothing,
    ) -> None:
        """Answer when everything that was written until now is durable; call ``before`` first."""

        def answer_now() -> None:
            before()
            peer.answer(message_id, answer)

        send = self.guard(answer_now)
        if self.shell.fault(FaultSite.STORED_ANSWER_LATE):
            self.backend.stored(lambda: self._later(send))
        else:
            self.backend.stored(send)

    def _later(self, callback: Callable[[], None]) -> None:
        self.call_later(LATE_SECONDS, callback)

    def stored(self) -> Future[None]:
        """To await in a job: everything written until now is durable."""
        future: Future[None] = Future()
        self.backend.stored(self.guard(lambda: future.resolve(None)))
        return future

    def store_table(self) -> None:
        """Soon, and before the next lock is answered: the master refuses to start with an older table
        than that of a transaction that all its nodes locked."""
        table, ptid = self.partitions, self.partitions.ptid
        self.table_stored = False

        def stored() -> None:
            if self.partitions is table and table.ptid == ptid:
                self.table_stored = True

        self.backend.stored(self.guard(stored))
