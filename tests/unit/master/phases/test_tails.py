"""Comparison of the last rows of copies (neo/master/phases/tails.py)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from neo.master.phases.tails import Lack, Tail, judge, make_tail
from neo.protocol.ids import ZERO_TID, p64
from neo.storage.backend.revisions import Revision, pack

#: (oid, whether it is deleted) by transaction; its tid is its number.
Transactions = list[dict[int, bool]]
#: Transactions, and revisions (tid, oid).
Copy = tuple[list[int], set[tuple[int, int]]]


def copy_of(history: Transactions, numbers: set[int], packed: int = 0) -> Copy:
    """Return the rows of some of the transactions, packed."""
    rows: dict[int, list[Revision]] = {}
    for number in sorted(numbers):
        for oid, deleted in history[number - 1].items():
            rows.setdefault(oid, []).append(Revision(number, None if deleted else 1, None))
    kept: set[tuple[int, int]] = set()
    for oid, revisions in rows.items():
        gone = pack(revisions, packed).removed
        kept |= {(r.tid, oid) for r in revisions if r not in gone}
    return sorted(numbers), kept


def tail_of(copy: Copy, length: int = 10, proven: bool = True, packed: int = 0) -> Tail:
    transactions, revisions = copy
    keys = [(p64(tid), p64(oid)) for tid, oid in sorted(revisions)[-length:]]
    tids = [p64(tid) for tid in transactions[-length:]]
    return make_tail(length, p64(packed), (0, proven, tids, keys))


def judged(*copies: Copy, length: int = 10) -> tuple[set[int], dict[int, Lack]]:
    """Nodes are numbered from 0."""
    return judged_tails(*(tail_of(copy, length) for copy in copies))


def judged_tails(*tails: Tail) -> tuple[set[int], dict[int, Lack]]:
    verdict = judge(dict(enumerate(tails)))
    return set(verdict.references), verdict.lacks


SIX: Transactions = [{0: False}, {1: False}, {0: False}, {2: False}, {1: False}, {0: False}]
ALL = {1, 2, 3, 4, 5, 6}


def test_equal_copies_are_all_believed() -> None:
    assert judged(copy_of(SIX, ALL), copy_of(SIX, ALL)) == ({0, 1}, {})
    assert judged(copy_of([], set()), copy_of([], set())) == ({0, 1}, {})
    assert judged() == (set(), {})


def test_an_old_copy_is_behind() -> None:
    found = judged(copy_of(SIX, ALL), copy_of(SIX, {1, 2, 3}))
    assert found == ({0}, {1: Lack(p64(4), 3)})


def test_an_empty_copy_is_behind() -> None:
    assert judged(copy_of(SIX, ALL), copy_of(SIX, set())) == ({0}, {1: Lack(p64(1), 6)})


def test_a_gap_before_equal_last_transactions_is_found() -> None:
    found = judged(copy_of(SIX, {1, 2, 5, 6}), copy_of(SIX, ALL))
    assert found == ({1}, {0: Lack(p64(3), 2)})


def test_what_is_before_the_tails_is_not_seen() -> None:
    """Only neoctl check finds it (specification 5.15)."""
    assert judged(copy_of(SIX, ALL - {1}), copy_of(SIX, ALL), length=3) == ({0, 1}, {})


def test_revisions_are_compared_where_the_metadata_is_elsewhere() -> None:
    """Specification 5.15."""
    whole, old = copy_of(SIX, ALL), copy_of(SIX, {1, 2, 3})
    assert judged(([], whole[1]), ([], old[1])) == ({0}, {1: Lack(p64(4), 3)})
    assert judged((whole[0], set()), (old[0], set())) == ({0}, {1: Lack(p64(4), 3)})


def test_nobody_is_believed_where_each_has_what_the_other_has_not() -> None:
    found = judged(copy_of(SIX, {1, 2, 3, 5}), copy_of(SIX, {1, 2, 3, 4}))
    assert found == (set(), {0: Lack(p64(4), 1), 1: Lack(p64(5), 1)})


def test_a_third_copy_that_has_all_decides() -> None:
    copies = [copy_of(SIX, ALL - {4}), copy_of(SIX, ALL), copy_of(SIX, ALL - {5})]
    assert judged(*copies)[0] == {1}


def test_a_copy_that_was_never_complete_is_no_reference() -> None:
    """Specification 5.16."""
    whole, old = tail_of(copy_of(SIX, ALL)), tail_of(copy_of(SIX, {1}))
    unproven, nothing = tail_of(copy_of(SIX, ALL), proven=False), Lack(ZERO_TID, 0)
    assert judged_tails(unproven) == (set(), {0: nothing})
    assert judged_tails(unproven, whole) == ({1}, {0: nothing})
    assert judged_tails(unproven, old) == (set(), {0: nothing, 1: Lack(p64(2), 5)})


def test_a_pack_that_one_node_has_not_done_makes_no_difference() -> None:
    history = [*SIX, {0: True}, {5: False}]
    numbers = set(range(1, 9))
    for packed in range(9):
        late = tail_of(copy_of(history, numbers))
        early = tail_of(copy_of(history, numbers, packed), packed=packed)
        assert judged_tails(late, early) == ({0, 1}, {}), packed


def test_an_object_that_is_packed_away_is_not_missed_by_an_old_copy() -> None:
    """The old copy has it, and not its deletion (specification 5.16)."""
    history: Transactions = [{0: False}, {0: True}, {1: False}]
    packed = tail_of(([], copy_of(history, {1, 2, 3}, 2)[1]), packed=2)
    old = tail_of(([], copy_of(history, {1})[1]))
    assert judged_tails(packed, old) == ({0}, {1: Lack(p64(3), 1)})


def test_what_a_pack_left_is_missed_by_an_older_copy() -> None:
    packed = tail_of(([], copy_of(SIX, ALL, 6)[1]), packed=6)
    old = tail_of(([], copy_of(SIX, {1, 2, 3, 4, 5})[1]))
    assert judged_tails(packed, old) == ({0}, {1: Lack(p64(6), 1)})


# -- any history -----------------------------------------------------------------------------------

histories = st.lists(
    st.dictionaries(st.integers(0, 4), st.booleans(), min_size=1, max_size=3), max_size=20
)


@given(histories, st.integers(1, 8), st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_sound_copies_are_equal_however_they_are_packed(
    history: Transactions, length: int, packs: list[int]
) -> None:
    numbers = set(range(1, len(history) + 1))
    tails = [tail_of(copy_of(history, numbers, tid), length, packed=tid) for tid in packs]
    assert judged_tails(*tails) == (set(range(len(tails))), {})


@given(histories, st.integers(1, 8), st.integers(0, 20), st.data())
def test_a_sound_copy_is_believed_and_one_that_went_back_is_found(
    history: Transactions, length: int, packed: int, data: Any
) -> None:
    """The copy may know of packs before it was made, but of no later one (specification 5.15)."""
    numbers = set(range(1, len(history) + 1))
    first = data.draw(st.integers(1, len(history) + 1), "first transaction that is lost")
    last = data.draw(st.integers(first, len(history) + 1), "last one")
    known = data.draw(st.integers(0, first - 1), "pack that the old copy knows")
    lost = set(range(first, last + 1)) & numbers
    sound = copy_of(history, numbers, packed)
    old = copy_of(history, numbers - lost, known)
    tails = tail_of(sound, length, packed=packed), tail_of(old, length, packed=known)
    references, lacks = judged_tails(*tails)
    assert 0 in references
    begins = [copy[0][-length] for copy in (sound, old) if len(copy[0]) >= length]
    seen = {number for number in lost if number >= max(begins, default=0)}
    if seen:
        assert lacks[1].since <= p64(min(seen)) and lacks[1].transactions >= len(seen)
    if not lost:
        assert not lacks


@given(histories, st.lists(st.sets(st.integers(1, 20)), min_size=2, max_size=4))
def test_references_have_all_and_the_others_have_not(
    history: Transactions, losses: list[set[int]]
) -> None:
    numbers = set(range(1, len(history) + 1))
    kept = [numbers - lost for lost in losses]
    references, lacks = judged(*(copy_of(history, some) for some in kept), length=99)
    everything = set().union(*kept)
    assert references == {nid for nid, some in enumerate(kept) if some == everything}
    assert {nid: (lack.since, lack.transactions) for nid, lack in lacks.items()} == {
        nid: (p64(min(everything - some)), len(everything - some))
        for nid, some in enumerate(kept)
        if some != everything
    }
