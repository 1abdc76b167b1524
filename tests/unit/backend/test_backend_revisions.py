"""Undo and pack as pure functions on the revisions of an object."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neo.storage.backend.revisions import Packed, Revision, before, origin, pack


def test_the_origin_of_an_undo_of_an_undo() -> None:
    known = [Revision(1, 10, None), Revision(2, 20, None), Revision(3, 10, 1), Revision(4, 10, 3)]
    assert [origin(known, r.tid) for r in known] == [1, 2, 1, 1]
    assert origin(known[2:], 4) == 3, "what is packed away leads nowhere"


def test_an_origin_is_found_in_a_table_that_points_to_itself() -> None:
    assert origin([Revision(1, 10, 1)], 1) == 1
    assert origin([Revision(1, 10, 2), Revision(2, 10, 1)], 1) == 1


def test_before() -> None:
    known = [Revision(1, 10, None), Revision(3, 30, None)]
    assert before(known, 1) is None
    assert before(known, 3) == known[0]
    assert before(known, 9) == known[1]


def test_pack_before_the_first_revision_does_nothing() -> None:
    assert pack([Revision(5, 1, None)], 4) == Packed([], [])


def test_heirs_of_a_removed_origin() -> None:
    """Specification 12.2."""
    known = [
        Revision(1, 10, None),
        Revision(2, 10, 1),
        Revision(3, 30, None),
        Revision(4, 10, 2),
        Revision(5, 10, 1),
        Revision(6, 30, 3),
    ]
    assert pack(known, 3) == Packed(known[:2], [(4, None), (5, 4)])


@st.composite
def histories(draw: st.DrawFn) -> list[Revision]:
    known: list[Revision] = []
    for tid in range(1, draw(st.integers(1, 12)) + 1):
        sources = [r for r in known if r.data_id is not None]
        kind = draw(st.sampled_from(["store", "undo", "delete"]))
        if kind == "undo" and sources:
            source = draw(st.sampled_from(sources))
            known.append(Revision(tid, source.data_id, source.tid))
        else:
            known.append(Revision(tid, None if kind == "delete" else tid * 10, None))
    return known


@given(histories(), st.integers(0, 13))
def test_after_a_pack_every_revision_has_its_data_and_a_valid_origin(
    known: list[Revision], tid: int
) -> None:
    """Specification 12.2."""
    removed, changed = pack(known, tid)
    values = dict(changed)
    left = [r._replace(value_tid=values.get(r.tid, r.value_tid)) for r in known[len(removed) :]]
    by_tid = {r.tid: r for r in left}
    assert known[: len(removed)] == removed
    assert set(values) <= set(by_tid)
    for revision in left:
        if revision.value_tid is not None:
            assert revision.value_tid < revision.tid
            assert by_tid[revision.value_tid].data_id == revision.data_id
    kept = [r for r in left if r.tid <= tid]
    last = before(known, tid + 1)
    assert kept == ([by_tid[last.tid]] if last is not None and last.data_id is not None else [])
    # Revisions that shared an origin still do: one of them is the origin of the others.
    for data_id in {r.data_id for r in left} - {None}:
        assert len({origin(left, r.tid) for r in left if r.data_id == data_id}) == 1


def packed(known: list[Revision], tid: int) -> list[Revision]:
    """Return the revisions that are left."""
    removed, changed = pack(known, tid)
    values = dict(changed)
    left = [revision for revision in known if revision not in removed]
    return [r._replace(value_tid=values.get(r.tid, r.value_tid)) for r in left]


@given(histories(), st.integers(0, 13), st.integers(0, 13))
def test_revisions_that_come_later_change_nothing_of_what_a_pack_removes(
    known: list[Revision], tid: int, later: int
) -> None:
    """Specification 12.3."""
    before = [revision for revision in known if revision.tid <= max(tid, later)]
    assert pack(before, tid).removed == pack(known, tid).removed


@given(histories(), st.integers(0, 13), st.integers(0, 13))
def test_a_replica_that_missed_an_earlier_pack_ends_with_the_same_rows(
    known: list[Revision], tid: int, earlier: int
) -> None:
    """Specification 12.3."""
    assert packed(packed(known, min(earlier, tid)), tid) == packed(known, tid)
