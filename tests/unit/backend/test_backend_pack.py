"""What a pack leaves does not depend on when it is done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neo.storage.backend.revisions import Revision, pack
from tests.unit.backend.test_backend_revisions import histories


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
