"""A cluster reduced to its commits: real locks, simulated master, clients and links.

Every link keeps the order of its messages; the scheduler decides which link delivers next. The oracle is
in :meth:`Master.finish`: whoever commits must have seen what is current.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from neo.protocol.ids import ZERO_TID, p64, u64
from neo.storage.backend.api import Stored
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import CellMode, Client
from tests.unit.storage.lock_client import Event, SimClient


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
        self.last_serial = self.serials.get
        self.locks = Locks(self)

    def clock(self) -> float:
        return 0.0

    def watch(self) -> None:
        """Do nothing: no transaction is prepared here."""

    def cell_mode(self, oid: bytes) -> CellMode:
        if oid in self.gone:
            return CellMode.ABSENT
        return CellMode.LOCKLESS if oid in self.late else CellMode.NORMAL

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        master = self.cluster.master
        self.cluster.send(self, master, lambda: master.deadlock(ttid, locking_tid))

    def discard(self, stored: Stored) -> None:
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
        """A load by a client that knows all commits until now."""
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
        """Return one or more storages, not only one that is out of date."""
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
