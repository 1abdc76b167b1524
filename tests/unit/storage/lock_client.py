"""A client of :mod:`tests.unit.storage.lock_cluster`, as the specification describes it: it pipelines
its stores, resolves conflicts, rebases, and votes when all is answered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from neo.protocol.ids import ZERO_TID
from neo.storage.backend.api import Stored
from neo.storage.commit.transactions import Client, Hopeless, RebaseConflict, TransactionRefused

if TYPE_CHECKING:
    from tests.unit.storage.lock_cluster import Cluster, Storage

Event = Callable[[], None]
Reply = Callable[[Event], None]


class SimClient:
    """Runs its transactions one after the other; each is a list of (oid, stores or checks)."""

    def __init__(self, cluster: Cluster, nid: int, plan: list[list[tuple[bytes, bool]]]) -> None:
        self.cluster = cluster
        self.identity = Client(nid, nid)
        self.plan = plan
        self.ended: Counter[str] = Counter()
        self.alive = True
        self.next()

    def next(self) -> None:
        self.todo: deque[tuple[bytes, bool]] = deque(self.plan.pop() if self.plan else ())
        self.active = bool(self.todo)
        self.work: dict[bytes, tuple[bytes, bool]] = {}  # oid: (base serial, stores)
        self.locking = ZERO_TID
        self.pending: dict[object, None] = {}  # questions, in the order in which they were asked
        self.answers: dict[object, Event] = {}  # not taken yet
        self.involved: set[Storage] = set()
        self.locked_by: dict[bytes, set[Storage]] = {}
        self.phase = "store"
        if self.active:
            self.ttid = self.cluster.master.begin(self)

    @property
    def can_act(self) -> bool:
        return self.alive and self.active and (bool(self.todo) or self._votable)

    @property
    def _votable(self) -> bool:
        return self.phase == "store" and not self.todo and not self.pending

    def act(self) -> None:
        if self.todo:
            oid, stores = self.todo.popleft()
            serial = self.cluster.master.announced.get(oid, ZERO_TID)
            if self.cluster.random.random() < 0.3:  # it read this object a while ago
                serial = self.cluster.old.get(oid, ZERO_TID)
            self.cluster.old[oid] = serial
            self.store(oid, serial, stores)
        elif not all(self.locked_by.get(oid) for oid in self.work):
            assert self.cluster.moves, "only lockless"
            self.abort()  # the node that could have locked it has lost its cell
        else:
            self.phase = "vote"
            for storage in self.involved:
                self.ask(storage, partial(self._vote, ttid=self.ttid))

    def ask(self, storage: Storage, request: Callable[[Storage, Reply], None]) -> None:
        """``request(storage, reply)`` runs there; ``reply(then)`` sends the answer: run ``then``."""
        token, ttid = object(), self.ttid
        self.pending[token] = None

        def reply(then: Event) -> None:
            def arrive() -> None:
                if self.alive and self.active and self.ttid == ttid:
                    self.answers[token] = then
                    self._look()

            self.cluster.send(storage, self, arrive)

        def deliver() -> None:
            if self not in storage.closed:
                request(storage, reply)

        self.cluster.send(self, storage, deliver)

    def _look(self) -> None:
        """A thread that waits for the answer to its oldest question sees no other one."""
        ttid = self.ttid
        if next(iter(self.pending)) not in self.answers:
            return
        answers, self.answers = self.answers, {}
        for token, then in answers.items():
            if self.active and self.ttid == ttid:
                del self.pending[token]
                then()

    def store(self, oid: bytes, serial: bytes, stores: bool) -> None:
        self.work[oid] = serial, stores
        self.locked_by.pop(oid, None)
        ttid = self.ttid
        for storage in self.cluster.cells[oid]:
            if storage not in self.involved:
                self.involved.add(storage)
                if self.locking != ZERO_TID:
                    self._send_rebase(storage)

            def request(storage: Storage, reply: Reply) -> None:
                stored = None
                if stores:
                    stored = Stored(oid, self.cluster.new_data(storage), None)
                storage.locks.store(
                    ttid,
                    self.identity,
                    oid,
                    serial,
                    stored,
                    lambda locked: reply(lambda: self._stored(storage, oid, serial, locked)),
                    tell=self.identity.nid % 2 == 0,
                )

            self.ask(storage, request)

    def _stored(
        self, storage: Storage, oid: bytes, serial: bytes, locked: bytes | Hopeless | None
    ) -> None:
        assert not isinstance(locked, Hopeless), "nothing is prepared"
        if locked is None:
            if self.work[oid][0] == serial:
                self.locked_by.setdefault(oid, set()).add(storage)
        elif locked != ZERO_TID:
            self._conflict(oid, serial, locked)

    def _conflict(self, oid: bytes, serial: bytes, current: bytes) -> None:
        assert serial != current <= self.cluster.master.serials[oid], "no such conflict"
        base, stores = self.work[oid]
        if current <= base:
            return  # the answer to a store that was already resolved
        if stores:
            self.store(oid, current, stores)
        else:
            self.abort()

    def rebase(self, ttid: bytes, locking_tid: bytes) -> None:
        if self.alive and self.active and self.ttid == ttid:
            if self.phase != "store":
                assert self.cluster.moves, "deadlock of a transaction that votes"
                return  # its question was answered because a cell was taken away; its vote is refused
            self.locking = locking_tid
            for storage in self.involved:
                self._send_rebase(storage)

    def _send_rebase(self, storage: Storage) -> None:
        ttid, locking = self.ttid, self.locking

        def request(storage: Storage, reply: Reply) -> None:
            try:
                oids = storage.locks.rebase(ttid, self.identity, locking)
            except Hopeless:
                reply(self.abort)
            else:
                reply(lambda: self._rebase_objects(storage, oids))

        self.ask(storage, request)

    def _rebase_objects(self, storage: Storage, oids: list[bytes]) -> None:
        ttid = self.ttid
        for oid in oids:

            def request(storage: Storage, reply: Reply, oid: bytes = oid) -> None:
                def answer(conflict: RebaseConflict | Hopeless | None) -> None:
                    def then() -> None:
                        if isinstance(conflict, Hopeless):
                            self.abort()
                        elif conflict is not None:
                            self._conflict(oid, conflict.serial, conflict.conflict_serial)

                    reply(then)

                storage.locks.rebase_object(ttid, self.identity, oid, answer)

            self.ask(storage, request)

    def _vote(self, storage: Storage, reply: Reply, ttid: bytes) -> None:
        try:
            storage.voted[ttid] = storage.locks.vote(ttid, self.identity, metadata=False)
        except Hopeless:
            reply(self.abort)
        except TransactionRefused:
            assert self.ttid != ttid, "it was refused, and not aborted before"
        else:
            reply(self._voted)

    def _voted(self) -> None:
        if not self.pending:
            self.phase = "finish"
            self.cluster.committing[self.ttid] = self
            self.cluster.send(self, self.cluster.master, lambda: self.cluster.master.finish(self))

    def finished(self) -> None:
        self.ended["committed"] += 1
        self.next()

    def abort(self) -> None:
        ttid, master = self.ttid, self.cluster.master
        for storage in self.involved:
            self.cluster.send(self, storage, lambda s=storage: s.abort(ttid, self.identity))
        self.cluster.send(self, master, lambda: master.abort(self, ttid))
        self.ended["aborted"] += 1
        self.next()

    def crash(self) -> None:
        """Its connections end: what it sent still arrives, then the ends."""
        self.alive = False
        master = self.cluster.master
        for storage in self.cluster.storages:
            self.cluster.send(
                self, storage, lambda s=storage: s.locks.connection_lost(self.identity)
            )
        self.cluster.send(self, master, lambda: master.client_lost(self))
