"""A cluster reduced to its commits: real locks, simulated master, clients and links.

Every link keeps the order of its messages; the scheduler decides which link delivers next. Clients
behave as the specification says: pipelined stores, resolution of conflicts, rebases, votes when all
is answered. The oracle is in :meth:`Master.finish`: whoever commits must have seen what is current.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial

from neo.protocol.ids import ZERO_TID, p64, u64
from neo.storage.backend.api import Stored
from neo.storage.locks import Locks
from neo.storage.transactions import (
    CellMode,
    Client,
    RebaseConflict,
    TransactionRefused,
    Unverifiable,
)

Event = Callable[[], None]
Reply = Callable[[Event], None]


class Storage:
    def __init__(self, cluster: Cluster, nid: int, late: frozenset[bytes]) -> None:
        self.cluster = cluster
        self.nid = nid
        self.late = late  # objects of cells that are still out of date
        self.complete = late  # the same, until the master knows that they are complete
        self.gone: frozenset[bytes] = frozenset()  # objects of cells that were taken away
        self.serials: dict[bytes, bytes] = {}
        self.voted: dict[bytes, list[Stored]] = {}
        self.data: set[int] = set()
        self.reads = 0
        self.closed: set[SimClient] = set()
        self.locks = Locks(self._mode, self.serials.get, self._deadlock, self._discard)

    def _mode(self, oid: bytes) -> CellMode:
        if oid in self.gone:
            return CellMode.ABSENT
        return CellMode.LOCKLESS if oid in self.late else CellMode.NORMAL

    def _deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        master = self.cluster.master
        self.cluster.send(self, master, lambda: master.deadlock(ttid, locking_tid))

    def _discard(self, stored: Stored) -> None:
        assert stored.data_id is not None
        self.data.remove(stored.data_id)

    def replicate(self) -> None:
        late, self.late = self.late, frozenset()
        self.locks.replicated(late.__contains__)

    def tell_complete(self) -> None:
        """The master takes the cells from others, once they are readable here."""
        if self.complete and not self.late and not self.locks.shared():
            oids, self.complete = self.complete, frozenset()
            master = self.cluster.master
            self.cluster.send(self, master, lambda: master.move(oids, self))

    def lose(self, oids: frozenset[bytes]) -> None:
        self.gone |= oids
        self.locks.lose(oids.__contains__)

    def read(self, oid: bytes) -> None:
        """A load by a client that was told of all that is committed by now."""
        if self not in self.cluster.cells[oid] or oid in self.late:
            return
        committed = self.cluster.master.announced.get(oid, ZERO_TID)

        def check() -> None:
            self.reads -= 1
            assert self.serials.get(oid, ZERO_TID) >= committed

        self.reads += 1
        self.locks.when_readable(oid, check)

    def lock(self, ttid: bytes, tid: bytes) -> None:
        if self.locks.lock(ttid, tid):
            master = self.cluster.master
            self.cluster.send(self, master, lambda: master.locked(ttid, self))

    def unlock(self, ttid: bytes) -> None:
        tid = self.locks.final_tid(ttid)
        assert tid is not None
        for stored in self.voted.pop(ttid):
            assert stored.data_id is not None
            self.data.remove(stored.data_id)
            assert self.serials.get(stored.oid, ZERO_TID) < tid
            self.serials[stored.oid] = tid
        self.locks.unlock(ttid)

    def abort(self, ttid: bytes, by: Client | None) -> None:
        if self.locks.abort(ttid, by):
            self.forget(ttid)

    def forget(self, ttid: bytes) -> None:
        for stored in self.voted.pop(ttid):
            assert stored.data_id is not None
            self.data.remove(stored.data_id)

    def client_down(self, client: SimClient) -> None:
        self.closed.add(client)
        self.locks.connection_lost(client.identity)
        for ttid in self.locks.client_down(client.identity.nid):
            self.forget(ttid)


class Master:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last = 0
        self.serials: dict[bytes, bytes] = {}  # current ones, including transactions being locked
        self.announced: dict[bytes, bytes] = {}  # what clients can know
        self.locking: dict[bytes, tuple[SimClient, bytes]] = {}
        self.finishing: dict[bytes, tuple[bytes, set[Storage], list[Storage]]] = {}

    def new_tid(self) -> bytes:
        self.last += 1
        return p64(self.last)

    def begin(self, client: SimClient) -> bytes:
        ttid = self.new_tid()
        self.locking[ttid] = client, ttid
        return ttid

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        client, current = self.locking.get(ttid, (None, ZERO_TID))
        if client is not None and current <= locking_tid:
            new = self.new_tid()
            self.locking[ttid] = client, new
            self.cluster.deadlocks += 1
            self.cluster.send(self, client, lambda: client.rebase(ttid, new))

    def finish(self, client: SimClient) -> None:
        """AskFinishTransaction. Here the locks must have kept their promise."""
        for oid, (serial, _) in client.work.items():
            assert self.serials.get(oid, ZERO_TID) == serial, "lost update"
        tid = self.new_tid()
        for oid, (_, stores) in client.work.items():
            if stores:
                self.serials[oid] = tid
        ttid = client.ttid
        del self.locking[ttid]
        nodes = sorted(client.involved, key=lambda storage: storage.nid)
        self.finishing[ttid] = tid, set(nodes), nodes
        for storage in nodes:
            self.cluster.send(self, storage, lambda s=storage: s.lock(ttid, tid))

    def locked(self, ttid: bytes, storage: Storage) -> None:
        self.finishing[ttid][1].remove(storage)
        while self.finishing:  # unlock in the order of tids
            first = next(iter(self.finishing))
            tid, waiting, nodes = self.finishing[first]
            if waiting:
                break
            del self.finishing[first]
            for node in nodes:
                self.cluster.send(self, node, lambda s=node, t=first: s.unlock(t))
            client = self.cluster.committing.pop(first)
            for oid, (_, stores) in client.work.items():
                if stores:
                    self.announced[oid] = tid
            self.cluster.send(self, client, client.finished)

    def move(self, oids: frozenset[bytes], to: Storage) -> None:
        moved = frozenset(oid for oid in oids if to in self.cluster.cells[oid])
        for storage in self.cluster.storages:
            if storage is not to:
                self.cluster.send(self, storage, lambda s=storage: s.lose(moved))
        self.cluster.cells |= dict.fromkeys(moved, [to])

    def abort(self, client: SimClient, ttid: bytes) -> None:
        if self.locking.pop(ttid, None) is not None:
            for storage in self.cluster.storages:
                self.cluster.send(self, storage, lambda s=storage: s.abort(ttid, None))

    def client_lost(self, client: SimClient) -> None:
        if self.locking.pop(client.ttid, None) is not None or client.ttid in self.finishing:
            for storage in self.cluster.storages:
                self.cluster.send(self, storage, lambda s=storage: s.client_down(client))


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
        self.answers: dict[object, Event] = {}  # that nobody has looked at
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
            self.abort()  # who could have locked it has lost its cell
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
                )

            self.ask(storage, request)

    def _stored(self, storage: Storage, oid: bytes, serial: bytes, locked: bytes | None) -> None:
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
            except Unverifiable:
                reply(self.abort)
            else:
                reply(lambda: self._rebase_objects(storage, oids))

        self.ask(storage, request)

    def _rebase_objects(self, storage: Storage, oids: list[bytes]) -> None:
        ttid = self.ttid
        for oid in oids:

            def request(storage: Storage, reply: Reply, oid: bytes = oid) -> None:
                def answer(conflict: RebaseConflict | Unverifiable | None) -> None:
                    def then() -> None:
                        if isinstance(conflict, Unverifiable):
                            self.abort()
                        elif conflict is not None:
                            self._conflict(oid, conflict.serial, conflict.conflict_serial)

                    reply(then)

                storage.locks.rebase_object(ttid, self.identity, oid, answer)

            self.ask(storage, request)

    def _vote(self, storage: Storage, reply: Reply, ttid: bytes) -> None:
        try:
            storage.voted[ttid] = storage.locks.vote(ttid, self.identity, metadata=False)
        except Unverifiable:
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


class Cluster:
    def __init__(
        self, seed: int, storages: int, objects: int, clients: int, late: bool, moves: bool = False
    ) -> None:
        """``moves``: what is late on one storage is taken from the others when it is complete there."""
        self.moves = moves
        self.random = random.Random(seed)
        self.links: dict[tuple[int, int], deque[Event]] = {}
        self.old: dict[bytes, bytes] = {}
        self.committing: dict[bytes, SimClient] = {}
        self.deadlocks = 0
        self._data = 0
        oids = [p64(number) for number in range(objects)]
        incomplete = frozenset(oids) if late else frozenset()
        self.storages = [
            Storage(self, nid, incomplete if nid == storages - 1 else frozenset())
            for nid in range(storages)
        ]
        self.cells = {oid: self._cells(u64(oid), late) for oid in oids}
        self.master = Master(self)
        self.clients = [SimClient(self, nid, self._plan(oids)) for nid in range(clients)]

    def _cells(self, number: int, late: bool) -> list[Storage]:
        """One or more storages; never only one that is out of date."""
        cells = [s for s in self.storages if self.random.random() < 0.5]
        first = self.storages[number % max(1, len(self.storages) - late)]
        return cells if first in cells else [first, *cells]

    def _plan(self, oids: list[bytes]) -> list[list[tuple[bytes, bool]]]:
        return [
            [
                (oid, self.random.random() < 0.75)
                for oid in self.random.sample(oids, self.random.randint(1, min(4, len(oids))))
            ]
            for _ in range(3)
        ]

    def new_data(self, storage: Storage) -> int:
        self._data += 1
        storage.data.add(self._data)
        return self._data

    def send(self, sender: object, receiver: object, event: Event) -> None:
        self.links.setdefault((id(sender), id(receiver)), deque()).append(event)

    def _choices(self) -> Iterator[Event]:
        for link in self.links.values():
            if link:
                yield link.popleft
        for client in self.clients:
            if client.can_act:
                yield lambda c=client: c.act

    def step(self) -> bool:
        """One delivery or one action of a client; False if there is nothing left to do."""
        choices = list(self._choices())
        if not choices:
            return False
        self.random.choice(choices)()()
        return True

    def validate(self) -> None:
        for storage in self.storages:
            storage.locks.validate()
