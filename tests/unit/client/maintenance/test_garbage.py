"""The order in which garbage is deleted."""

from __future__ import annotations

from random import Random

from neo.client.maintenance.garbage import Garbage
from neo.protocol.ids import ZERO_TID, add64, p64, u64


def components(references: dict[int, list[int]]) -> list[set[int]]:
    garbage = Garbage()
    for oid, referred in references.items():
        garbage.add(p64(oid), add64(ZERO_TID, oid), map(p64, referred))
    found = list(garbage.components())
    for component in found:
        assert all(u64(oid) == u64(serial) for oid, serial in component)
        assert len(set(component)) == len(component)
    return [{u64(oid) for oid, _ in component} for component in found]


def test_nothing_is_no_component() -> None:
    assert components({}) == []


def test_what_refers_to_an_object_comes_before_it() -> None:
    """Specification 12.14."""
    assert components({1: [], 2: [1], 3: [2, 1]}) == [{3}, {2}, {1}]


def test_objects_that_refer_to_each_other_in_a_circle_are_together() -> None:
    """Specification 12.14."""
    assert components({1: [2], 2: [3], 3: [1, 4], 4: [4]}) == [{1, 2, 3}, {4}]


def test_references_to_what_is_no_garbage_do_not_matter() -> None:
    assert components({5: [7, 2**63], 6: [5, 0]}) == [{6}, {5}]


def test_a_chain_may_be_long() -> None:
    length = 20_000  # a recursive search would fail
    chain = {n: [n + 1] for n in range(length)}
    assert components(chain) == [{n} for n in range(length)]


def test_any_garbage_is_divided_into_all_its_circles_referrers_first() -> None:
    for seed in range(200):
        random = Random(seed)
        count = random.randrange(1, 12)
        references = {
            oid: random.sample(range(count), random.randrange(min(4, count))) for oid in range(count)
        }
        found = components(references)
        reached = {oid: _reached(references, oid) for oid in references}
        place = {oid: i for i, component in enumerate(found) for oid in component}
        assert sorted(oid for component in found for oid in component) == list(references)
        for oid, referred in references.items():
            assert all(place[oid] <= place[r] for r in referred), seed
            for other in references:
                together = other in reached[oid] and oid in reached[other]
                assert (place[oid] == place[other]) is together, seed


def _reached(references: dict[int, list[int]], oid: int) -> set[int]:
    reached, waiting = {oid}, [oid]
    while waiting:
        new = set(references[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached
