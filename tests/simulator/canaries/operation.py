"""Bugs that show at commands, truncations, clones and failures of disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from neo.client.commit.oids import NewOids
from neo.client.commit.participants import Asked, Change
from neo.client.commit.restore import Restorer
from neo.client.commit.transaction import ClientTransaction
from neo.client.maintenance.pack import _Collection
from neo.master.commit.coordinator import Coordinator
from neo.master.denial import denied
from neo.master.election.commands import done
from neo.master.phases import empty_database as blank
from neo.master.serving import identification
from neo.master.serving.admin import MAX_REPLICAS, ServeAdmin
from neo.node import backlog, peer
from neo.node.peer import Peer
from neo.protocol.blobs import Content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AnswerObject, AskObject, Message, SetNumReplicas, Truncate
from neo.storage import node as storage_node
from neo.storage.backend.api import BackendFailure
from neo.storage.database import Database
from neo.storage.maintenance.clone import clone
from neo.storage.node import StorageNode
from neo.storage.serving.client import ServeClient
from neo.storage.serving.master.recovery import Recovery
from tests.simulator.planting import Canary, Patch, plant

OPERATED: dict[str, Any] = {"faults": ("operate",), "disk": "memory", "seconds": 10.0}
BROKEN_DISKS: dict[str, Any] = {"faults": ("failing-disk",), "disk": "memory", "seconds": 5.0}
QUIET: dict[str, Any] = {"faults": ("none",), "disk": "memory", "seconds": 3.0}


def _changed_before_checked() -> list[Patch]:
    def set_num_replicas(
        self: ServeAdmin, peer: Peer, message_id: int, m: SetNumReplicas
    ) -> Message:
        self._serving("change the number of replicas")
        self._cluster.change_partitions([], m.num_replicas)
        if not 0 <= m.num_replicas <= MAX_REPLICAS:
            raise denied("invalid number of replicas")
        return done()

    return [(ServeAdmin, "set_num_replicas", set_num_replicas)]


def _drained_in_vain() -> list[Patch]:
    def drained(self: Peer) -> None:
        self._slow = False
        self.core.backlog.drained(self)

    # With these limits a few bytes count as many, so that requests wait all the time.
    limits = [(peer, "SLOW_BYTES", 1), (backlog, "SLOW_BYTES", 1), (backlog, "PEER_BYTES", 1)]
    return [(Peer, "drained", drained), *limits]


def _truncation_forgotten() -> list[Patch]:
    def truncate(self: Recovery, peer: Peer, message_id: int, m: Truncate) -> None: ...

    truncate.__dict__.update(Recovery.truncate.__dict__)
    return [(Recovery, "truncate", truncate)]


def _order_not_checked() -> list[Patch]:
    return [(Coordinator, "late", lambda self, tid: False)]


def _address_is_enough() -> list[Patch]:
    return [(module, "is_blank", lambda request: False) for module in (blank, identification)]


def _clone_without_id() -> list[Patch]:
    async def wrong(*shared: Any, database: Database, **parts: Any) -> None:
        set_config = database.backend.tables.set_config

        def keep(name: str, value: str | None) -> None:
            if name != "nid":
                set_config(name, value)

        with plant([(database.backend.tables, "set_config", keep)]):
            await clone(*shared, database=database, **parts)

    return [(storage_node, "clone", wrong)]


def _hint_believed() -> list[Patch]:
    def same(
        self: Restorer, oid: bytes, serial: bytes, data: bytes, content: Content | None
    ) -> bytes | None:
        try:
            answer = self._replicas.read(oid, AskObject(oid, serial, None))
        except ErrorAnswer:
            return None
        assert isinstance(answer, AnswerObject)
        return answer.data_serial or answer.serial

    return [(Restorer, "_same", same)]


def _oid_kept() -> list[Patch]:
    def new(self: NewOids) -> bytes:
        with self._lock:
            self._oids = self._oids or self._ask(self._connections.backoff())
            self._last = self._oids.pop()
            if self._oids and self._last[-1] % 8 == 0:
                self._oids.append(self._last)
            return self._last

    return [(NewOids, "new", new)]


def _unresolved_kept() -> list[Patch]:
    put, stored = ClientTransaction._put, ClientTransaction._stored
    originals: WeakKeyDictionary[ClientTransaction, dict[bytes, bytes | None]] = WeakKeyDictionary()

    def remember(self: ClientTransaction, oid: bytes, change: Change) -> None:
        originals.setdefault(self, {}).setdefault(oid, change.data)
        put(self, oid, change)

    def keep(self: ClientTransaction, asked: Asked, oid: bytes, *arguments: Any) -> None:
        stored(self, asked, oid, *arguments)
        data = originals[self][oid]
        if oid in self._cached and data is not None:
            self._cached[oid] = data

    return [(ClientTransaction, "_put", remember), (ClientTransaction, "_stored", keep)]


def _error_means_missing() -> list[Patch]:
    original: Callable[[ServeClient, AskObject], Message] = ServeClient._load

    def load(self: ServeClient, m: AskObject) -> Message:
        try:
            return original(self, m)
        except BackendFailure:
            raise ErrorAnswer(ErrorCode.OID_DOES_NOT_EXIST, m.oid.hex()) from None

    return [(ServeClient, "_load", load)]


def _collected_unseen() -> list[Patch]:
    return [(_Collection, "_in_use", lambda self, garbage: False)]


def _failure_survived() -> list[Patch]:
    return [(StorageNode, "backend_failed", lambda self, failure: None)]


CANARIES = (
    Canary(
        "changed-before-checked",
        "the number of replicas is changed before it is checked",
        "refusals: a command that is refused changes the partition table",
        _changed_before_checked,
        40,
        OPERATED | {"workloads": ("bank",), "storages": 2},
    ),
    Canary(
        "truncation-forgotten",
        "a storage does not remember what it is to truncate",
        "progress: recovery waits for ever",
        _truncation_forgotten,
        40,
        OPERATED | {"workloads": ("bank",), "storages": 1},
        first=9,
    ),
    Canary(
        "order-not-checked",
        "an imposed tid may be less than the last one",
        "history: a tid is not later than one that a client knows; the core's own assertions",
        _order_not_checked,
        20,
        QUIET | {"workloads": ("restore", "bank")},
    ),
    Canary(
        "clone-without-id",
        "a clone forgets to store the id that it was given, and comes with its original's",
        "progress: both claim to be one node",
        _clone_without_id,
        10,
        OPERATED | {"faults": ("clone",)},
    ),
    Canary(
        "hint-believed",
        "a copy takes the data of the revision that the hint names, without a comparison",
        "contents: a revision has other data than was stored",
        _hint_believed,
        20,
        QUIET | {"workloads": ("restore",)},
    ),
    Canary(
        "oid-kept",
        "some oids stay in the client's list when they are given",
        "ids: an oid is given twice",
        _oid_kept,
        10,
        QUIET | {"workloads": ("growth",)},
    ),
    Canary(
        "unresolved-kept",
        "the cache gets what the application stored, not what conflict resolution made of it",
        "contents: a revision has other data in a cache than in the database",
        _unresolved_kept,
        40,
        QUIET | {"workloads": ("counters",)},
    ),
    Canary(
        "read-error-means-missing",
        "a storage that cannot read an object says that there is none",
        "reads: nothing is found where a revision is",
        _error_means_missing,
        80,
        BROKEN_DISKS | {"workloads": ("bank",)},
    ),
    Canary(
        "failure-survived",
        "a storage whose database failed stays in the cluster",
        "progress: threads wait for it for ever",
        _failure_survived,
        20,
        BROKEN_DISKS | {"workloads": ("bank",)},
    ),
    Canary(
        "collected-unseen",
        "the garbage collection does not look again before it deletes",
        "workloads: objects that are referred to are missing",
        _collected_unseen,
        10,
        QUIET | {"workloads": ("pack",), "seconds": 4.0},
        first=186,
    ),
    Canary(
        "address-is-enough",
        "an empty database is taken for the one that was at its address",
        "workloads: money appears or vanishes; tables: a transaction is missing",
        _address_is_enough,
        20,
        {"faults": ("unmount", "kill-server"), "disk": "memory", "storages": 3, "replicas": 1}
        | {"seconds": 5.0, "workloads": ("bank",)},
    ),
    Canary(
        "drained-in-vain",
        "requests that wait until a peer has read its answers do not go on then",
        "progress: threads wait for it for ever",
        _drained_in_vain,
        5,
        QUIET | {"workloads": ("bank",)},
    ),
)
