"""How large a node's database is, and about how many objects it has."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest

from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import AnswerSize, AskSize, AskStoreObject, NotifyPartitionChanges
from neo.storage.maintenance.size import GOOD_SECONDS, READS_MAX, RUN, estimate
from tests.unit.storage.requests import commit, finish, vote
from tests.unit.storage.world import OUT, UP, End, World


def guess(oids: list[int]) -> tuple[int, int]:
    return estimate(lambda oid, n: oids[(i := bisect_left(oids, oid)) : i + n], oids[-1])


def thinned(count: int) -> list[int]:
    """A garbage collection deleted half of them."""
    return sorted(Random(0).sample(range(2 * count), count))


@pytest.mark.parametrize("count", [1, RUN - 1, RUN, RUN + 1, 2 * RUN])
def test_few_objects_are_counted(count: int) -> None:
    assert guess(list(range(0, 12 * count, 12)))[0] == count


@pytest.mark.parametrize(
    "oids",
    [
        list(range(5, 1_200_000, 12)),
        thinned(50_000),
        # Imported with oids of its own, far away; one object that was restored, at the very end.
        [*range(0, 600_000, 12), *range(2**40, 2**40 + 1_200_000, 12)],
        [*range(0, 1_200_000, 12), 2**62],
        [5, *range(2**50, 2**50 + 600_000, 3)],
        # Twice as dense from the middle on.
        [*range(0, 1_000_000, 20), *range(1_000_000, 2_000_000, 10)],
    ],
    ids=["dense", "thinned", "two ranges", "one far away", "one before", "denser"],
)
def test_many_objects_are_estimated_with_few_reads(oids: list[int]) -> None:
    count, reads = guess(oids)
    assert 0.7 * len(oids) <= count <= 1.4 * len(oids)
    assert reads < 120


def test_the_reads_are_bounded_whatever_the_oids_are() -> None:
    """Many small ranges: less is found, in a bounded time."""
    oids = [(block << 30) + n for block in range(2_000) for n in range(100)]
    count, reads = guess(oids)
    assert READS_MAX <= reads <= READS_MAX + 64 and 0.1 * len(oids) < count < len(oids)


# -- the node ------------------------------------------------------------------------------------


def test_a_client_is_told_size_cells_and_objects(world: World, master: End, client: End) -> None:
    """Specification 21.11."""
    assert client.ask(AskSize()) == AnswerSize(world.backend.engine.size(), 2, 0, 2)
    for number in range(1, 8):
        commit(master, client, 10 * number, 10 * number + 1, number)
    commit(master, client, 100, 101, 1, serial=11)
    assert client.ask(AskSize()).objects == 0  # of the same minute
    world.host.advance(GOOD_SECONDS)
    assert client.ask(AskSize()) == AnswerSize(world.backend.engine.size(), 2, 7, 2)


def test_objects_are_counted_where_they_can_be_read(world: World) -> None:
    master = world.operate([[(1, UP)], [(1, UP)], [(2, UP)]])
    client = world.client(master)
    commit(master, client, 12, 13, 3)
    commit(master, client, 15, 16, 4)
    master.send(NotifyPartitionChanges(2, 0, [(1, 2, UP), (1, 1, OUT)]))
    answer = client.ask(AskSize())
    assert answer == AnswerSize(world.backend.engine.size(), 2, 1, 1)


def test_partitions_beyond_the_budget_are_left_to_the_client(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.maintenance.size.BUDGET", 1)
    commit(master, client, 10, 11, 2)
    size = client.ask(AskSize())
    assert (size.objects, size.partitions) == (1, 1)


def test_a_deleted_object_of_which_a_pack_keeps_the_oid_does_not_count(
    world: World, master: End, client: End
) -> None:
    """Otherwise one object too many in each partition, for ever."""
    commit(master, client, 10, 11, 2)
    commit(master, client, 20, 21, 4)
    deletion = AskStoreObject(p64(4), p64(21), 0, ZERO_HASH, b"", None, p64(30))
    assert client.ask(deletion).locked is None
    vote(client, 30, 4)
    finish(master, 30, 31)
    assert client.ask(AskSize()).objects == 1
