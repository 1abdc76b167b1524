"""Traces of commits, on simulated processes: the whole tree, at exact times (specification 17.52)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ZODB.POSException import ConflictError
from ZODB.utils import p64

from neo.node.tracing import Traces
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.process import Process
from tests.simulator.world import World
from tests.support.spans import Book, NodeRecorder, Recorded
from tests.unit.client.committing import Merging, finish, storing

OIDS = p64(2), p64(3)
#: How long another transaction keeps its lock.
HELD_SECONDS = 0.5


class Traced:
    """Two storage nodes with a partition each, and what is recorded. ``tracing``: nodes that trace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *tracing: str, replicas: int = 0) -> None:
        self.world = World(1)
        shape = Shape(storages=2, partitions=2, replicas=replicas)
        self.cluster = Cluster(self.world, shape, lambda name: MemoryDisk(self.world, name))
        self.book = Book(lambda: self.world.epoch + self.world.now)
        monkeypatch.setattr("neo.client.tracing.open_telemetry.open_tracer", lambda: self.book)
        for process in self.processes:
            if process.name in tracing:
                process.tracer = NodeRecorder(self.book, process.name)
        self.cluster.start()

    @property
    def processes(self) -> list[Process]:
        return [*self.cluster.masters.all, *self.cluster.storages]

    def run(self, *threads: Callable[[Any], None], **options: Any) -> None:
        """Run threads, each in a process of its own, with an open storage."""
        started = []
        for thread in threads:
            process = self.cluster.client()

            def work(thread: Callable[[Any], None] = thread, process: Any = process) -> None:
                storage = self.cluster.storage(process, tracing=True, **options)
                thread(storage)
                storage.close()

            started.append(process.spawn(work))
        done = lambda: all(thread.finished for thread in started)  # noqa: E731
        self.world.run_until(done, 60.0, "the clients end")
        self.world.run(1.0)

    def traces(self) -> list[Traces]:
        """Return the tables of contexts of the nodes that trace."""
        hosts = [host for host, _ in map(Process.life, self.processes) if host is not None]
        return [host.traces for host in hosts if host.traces is not None]

    def close(self) -> None:
        for disk in self.cluster.disks.values():
            disk.close()


ALL = "master", "storage1", "storage2"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    found = Traced(monkeypatch, *ALL)
    yield found
    found.close()


def test_the_whole_tree_of_a_commit_that_resolved_a_conflict(traced: Traced) -> None:
    """The second transaction is told with the lock that it conflicts with the first, stores again, and
    waits until that is unlocked (specification 8.32)."""
    ttids: list[bytes] = []

    def first(storage: Any) -> None:
        traced.book.active = False
        transaction = storing(storage, OIDS[0])
        ttids.append(storage._begun(transaction).ttid)
        storage._session.host.sleep(HELD_SECONDS)
        finish(storage, transaction)

    def second(storage: Any) -> None:
        Merging(storage)
        storage._session.host.sleep(HELD_SECONDS / 2)
        traced.book.active = True
        transaction = storing(storage, OIDS[0], b"two")
        storage.store(OIDS[1], None, b"beside", "", transaction)
        finish(storage, transaction)

    traced.run(first, second)
    (commit,) = traced.book.roots
    waits = [commit.find(who, "lock").children for who in ALL[1:]]
    assert sum(map(len, waits)) == 1, "that of the node with the metadata"
    for below in waits:
        below.clear()
    assert list(commit.lines()) == [
        "client neo.commit",
        "  client begin",
        "  client store",
        "  client vote",
        "  client finish",
        "  master begin",
        "  master finish",
        "    master lock S1",
        "    master lock S2",
        "  storage1 store",
        "  storage1 vote",
        "    storage1 wait for disk",
        "  storage1 lock",
        "  storage1 unlock",
        "  storage2 store",
        "    storage2 wait for lock",
        "    storage2 wait for lock",
        "  storage2 vote",
        "    storage2 wait for disk",
        "  storage2 lock",
        "  storage2 unlock",
    ]
    wait = (stores := commit.find("storage2", "store")).children[0]
    assert wait.attributes == {"neo.oid": OIDS[0].hex(), "neo.holders": ttids[0].hex()}
    assert stores.attributes == {"neo.stores": 2, "neo.bytes": 8, "neo.conflicts": 1}
    assert HELD_SECONDS / 3 < (wait.end or 0.0) - wait.begin < HELD_SECONDS
    store = commit.find("client", "store")
    assert store.attributes["neo.stores"] == 3  # one is stored again
    assert [(event, found["neo.oid"]) for event, found in store.events] == [("conflict", OIDS[0].hex())]
    assert commit.attributes["neo.conflicts_resolved"] == 1 and not commit.error
    assert all(_inside(child, commit) for child in commit.children if child.name != "unlock")
    assert not any(map(len, traced.traces()))


def _inside(child: Recorded, parent: Recorded) -> bool:
    assert child.end is not None and parent.end is not None
    return parent.begin <= child.begin <= child.end <= parent.end


def test_a_node_that_traces_not_gets_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced(monkeypatch, "master", "storage1")
    lost: list[str] = []

    def client(storage: Any) -> None:
        for number, oid in enumerate(OIDS):
            finish(storage, storing(storage, oid, b"%d" % number))
        lost.extend(c.lost for c in storage._session.connections.storages.values() if c.lost)

    traced.run(client)
    assert not lost, "an unexpected message ends a connection"
    assert {span.who for commit in traced.book.roots for span in commit.children} == {
        *("client", "master", "storage1"),
    }
    traced.close()


def test_nothing_is_told_and_recorded_without_a_span_of_the_application(traced: Traced) -> None:
    traced.book.active = False

    def client(storage: Any) -> None:
        finish(storage, storing(storage))
        assert storage.load(p64(1))

    traced.run(client, cache_size=0)
    assert not traced.book.spans


def test_a_load_from_a_node_and_an_aborted_transaction_are_spans(traced: Traced) -> None:
    def client(storage: Any) -> None:
        base = finish(storage, storing(storage))
        assert storage.load(p64(1))[1] == base
        stale = storing(storage, base=p64(1))
        with pytest.raises(ConflictError):
            storage.tpc_vote(stale)
        storage.tpc_abort(stale)

    traced.run(client, cache_size=0)
    names = [root.name for root in traced.book.roots]
    # Before a conflict is raised, its revision is loaded (specification 8.34).
    assert sorted(names) == ["neo.commit", "neo.commit", "neo.load", "neo.load"]
    aborted = next(root for root in traced.book.roots if root.error)
    (oid,) = {r.attributes["neo.oid"] for r in traced.book.roots if r.name == "neo.load"}
    assert oid == p64(1).hex()
    assert aborted.error.startswith("ConflictError: ") and aborted.end is not None
    assert aborted.find("client", "store").error == aborted.error
    assert "storage1 abort" in {f"{span.who} {span.name}" for span in aborted.children}
    assert [len(traces) for traces in traced.traces()] == [0, 0, 0]


def test_contexts_of_a_client_that_is_gone_are_forgotten(traced: Traced) -> None:
    known: list[int] = []

    def client(storage: Any) -> None:
        storage._begun(storing(storage)).settle()
        known.extend(map(len, traced.traces()))

    traced.run(client)
    assert sum(known) == 2, "the master and a storage node"
    assert [len(traces) for traces in traced.traces()] == [0, 0, 0]
