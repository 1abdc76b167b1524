"""The search for the primary: the order of the masters and the pauses."""

from __future__ import annotations

from neo.protocol.packets import Address, NotPrimaryMaster
from neo.topology.masters import (
    FIRST_RETRY_SECONDS,
    RETRY_SECONDS,
    MasterCandidates,
    PrimarySearch,
)

A, B, C = MASTERS = [("127.0.0.1", port) for port in (2001, 2002, 2003)]


def search(*masters: Address) -> PrimarySearch:
    return PrimarySearch(MasterCandidates(masters))


def hint(primary: int | None) -> NotPrimaryMaster:
    return NotPrimaryMaster(primary, MASTERS)


def test_one_master_is_tried_once_a_second() -> None:
    """Specification 4.35."""
    one = search(A)
    assert not one.several
    for _ in range(3):
        assert one.next() == A
        assert one.pause() == RETRY_SECONDS


def test_pauses_among_several_masters_double_up_to_a_second_per_round() -> None:
    """Specification 4.35."""
    several = search(*MASTERS)
    pauses = []
    for address in (*MASTERS, *MASTERS):
        assert several.next() == address
        pauses.append(several.pause())
    assert pauses[:3] == [FIRST_RETRY_SECONDS * factor for factor in (1, 2, 4)]
    assert pauses[3:] == [RETRY_SECONDS / 3] * 3


def test_a_hint_is_followed_at_once() -> None:
    """Specification 4.37."""
    several = search(A)
    several.next()
    several.redirected(hint(2))
    assert several.pause() == 0
    assert several.several
    assert several.next() == C


def test_two_masters_that_point_to_each_other_are_not_dialed_in_a_tight_loop() -> None:
    """Specification 4.37."""
    several = search(A, B)
    pauses = []
    for primary in (1, 0, 1, 0):
        several.next()
        several.redirected(hint(primary))
        pauses.append(several.pause())
    assert pauses[0] == 0
    assert all(pauses[1:])


def test_a_secondary_that_knows_no_primary_is_no_hint() -> None:
    several = search(A, B)
    several.next()
    several.redirected(hint(None))
    assert several.pause() == FIRST_RETRY_SECONDS
    assert several.next() == B
