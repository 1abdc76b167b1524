"""A generated database of many small revisions, written by several clients in parallel."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBucket
from persistent import Persistent
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, z64
from zodbpickle import binary
from zodbpickle.fastpickle import Pickler

from tests.bench import clients
from tests.bench.workloads import session
from tests.support.cluster import Cluster

STORAGES = 4
REPLICAS = 1
PARTITIONS = 12
#: Mean number of revisions of an object, and of revisions in a transaction.
REVISIONS = 5
OBJECTS_PER_TRANSACTION = 45
WRITERS = 4
SECONDS_MAX = 3600.0

_WORDS = (
    "storage node master partition replica cell transaction object serial client pack vote lock"
    " commit read write page index table row record class state reference tree bucket key value"
).split()
_START = datetime(2026, 1, 1, tzinfo=UTC)


class Document(Persistent):
    """A document: seven of eight objects; the others are buckets of a tree of documents."""


class Target(NamedTuple):
    """A reference to write."""

    oid: bytes


def _persistent_id(value: object) -> object:
    return (binary(value.oid), Document) if type(value) is Target else None


def _pickled(*parts: object) -> bytes:
    """Return several pickles with one memo, as the serializer of ZODB writes them."""
    file = io.BytesIO()
    pickler = Pickler(file, 3)
    pickler.persistent_id = _persistent_id
    for part in parts:
        pickler.dump(part)
    return file.getvalue()


class Records:
    """Makes records of about 550 bytes with 7 references each, on average."""

    def __init__(self, seed: int, oids: range) -> None:
        self._rng = random.Random(seed)
        self._oids = oids

    def record(self, oid: int) -> bytes:
        return self._bucket() if oid % 8 == 0 else self._document(oid)

    def _targets(self, count: int) -> list[Target]:
        return [Target(p64(self._rng.choice(self._oids))) for _ in range(count)]

    def _document(self, oid: int) -> bytes:
        rng = self._rng
        state: dict[str, Any] = {
            "title": f"Document {oid}: {' '.join(rng.choices(_WORDS, k=4))}",
            "text": " ".join(rng.choices(_WORDS, k=10)),
            "modified": _START + timedelta(seconds=rng.randrange(10**7)),
            "size": rng.randrange(10**6),
            "weight": rng.random(),
            "tags": rng.sample(_WORDS, k=3),
            "related": self._targets(4),
            "parent": self._targets(1)[0],
        }
        return _pickled(Document, state)

    def _bucket(self) -> bytes:
        keys = sorted(self._rng.sample(range(10**6), k=20))
        pairs = zip(keys, self._targets(20), strict=True)
        items = tuple(part for key, target in pairs for part in (f"key-{key:06}", target))
        return _pickled(OOBucket, (items, self._targets(1)[0]))


def transactions(
    seed: int, oids: range, every: range, revisions: int
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield transactions as pairs (oid, record): creations of all oids, then changes of any of them."""
    rng = random.Random(seed)
    records = Records(seed, every)
    waiting = list(oids)[:revisions]
    while revisions:
        count = min(revisions, OBJECTS_PER_TRANSACTION)
        created, waiting = waiting[:count], waiting[count:]
        chosen = created + sorted(rng.sample(oids, count - len(created)))
        yield [(oid, records.record(oid)) for oid in chosen]
        revisions -= count


def fill(cluster: Cluster, revisions: int) -> None:
    """Write the database. Each writer has oids of its own, which are chosen here, so that none
    conflicts."""
    objects = max(revisions // REVISIONS, OBJECTS_PER_TRANSACTION * WRITERS)
    every = range(1, objects + 1)

    def write(index: int, ready: clients.Ready) -> None:
        oids = every[index::WRITERS]
        share = revisions // WRITERS + (index < revisions % WRITERS)
        storage = cluster.storage(cache_size=0)
        view = session(storage)
        serials: dict[int, bytes] = {}
        ready()
        for changes in transactions(index, oids, every, share):
            meta = TransactionMetaData("bench", "a transaction of the generated database")
            view.tpc_begin(meta)
            for oid, data in changes:
                view.store(p64(oid), serials.get(oid, z64), data, "", meta)
            view.tpc_vote(meta)
            tid = view.tpc_finish(meta)
            serials.update((oid, tid) for oid, _ in changes)
        storage.close()

    clients.run_many(WRITERS, write, SECONDS_MAX)
