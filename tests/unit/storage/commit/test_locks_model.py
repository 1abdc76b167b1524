"""Object locks under random schedules: see :mod:`tests.unit.storage.lock_cluster` for the oracle."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.storage.lock_cluster import Cluster

#: Far above what the worst schedules need: only a livelock gets there.
STEPS_MAX = 20_000


def run(cluster: Cluster, crashes: bool) -> None:
    """Until everything is quiet; every transaction must have ended and left nothing behind."""
    for number in range(STEPS_MAX):
        if not cluster.step():
            break
        cluster.validate()
        if number == 40:
            for storage in cluster.storages:
                storage.replicate()
        if cluster.moves:
            for storage in cluster.storages:
                storage.tell_complete()
        if crashes and number == 60:
            cluster.random.choice(cluster.clients).crash()
        if number % 7 == 0:
            storage = cluster.random.choice(cluster.storages)
            storage.read(cluster.random.choice(list(cluster.cells)))
    else:
        raise AssertionError("livelock")
    for client in cluster.clients:
        assert not client.alive or not client.active, "a transaction waits for ever"
    for storage in cluster.storages:
        assert not storage.locks.shared()
        assert not storage.voted and not storage.reads
        assert not storage.data, "data that nothing refers to"
        for oid, cells in cluster.cells.items():
            if storage in cells:
                assert storage.serials.get(oid) == cluster.master.serials.get(oid)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    storages=st.integers(1, 4),
    objects=st.integers(1, 6),
    clients=st.integers(2, 5),
    late=st.booleans(),
    moves=st.booleans(),
    crashes=st.booleans(),
)
@example(333, 4, 3, 2, True, False, False)  # in deadlock again when it was rebased, with nothing asked
def test_every_transaction_ends_and_no_update_is_lost(
    seed: int, storages: int, objects: int, clients: int, late: bool, moves: bool, crashes: bool
) -> None:
    """Specification 8.3."""
    late = late and storages > 1
    run(Cluster(seed, storages, objects, clients, late, moves and late), crashes)


def test_no_update_is_lost_when_cells_move_between_a_deadlock_and_its_rebase() -> None:
    for seed in range(600):
        run(Cluster(seed, storages=2, objects=2, clients=4, late=True, moves=True), crashes=False)


class LargeTransactions(Cluster):
    """Each client writes all objects, in an order of its own."""

    def _plan(self, oids: list[bytes]) -> list[list[tuple[bytes, bool]]]:
        return [[(oid, True) for oid in self.random.sample(oids, len(oids))]]


@pytest.mark.parametrize("seed", range(10))
def test_the_number_of_deadlocks_does_not_grow_with_the_size_of_transactions(seed: int) -> None:
    cluster = LargeTransactions(seed, storages=2, objects=40, clients=2, late=False)
    run(cluster, crashes=False)
    assert cluster.deadlocks <= 10


def test_the_schedules_do_meet_deadlocks_conflicts_and_commits() -> None:
    """The test above would prove nothing if its transactions never met."""
    deadlocks = committed = aborted = 0
    for seed in range(30):
        cluster = Cluster(seed, storages=3, objects=3, clients=4, late=False)
        run(cluster, crashes=False)
        deadlocks += cluster.deadlocks
        committed += sum(client.ended["committed"] for client in cluster.clients)
        aborted += sum(client.ended["aborted"] for client in cluster.clients)
    assert deadlocks > 30 and committed > 100 and aborted > 10, (deadlocks, committed, aborted)
