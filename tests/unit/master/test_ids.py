"""Generators of tids and oids (specification 15.6, 15.7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.master.ids import UNKNOWN_TIDS, OidGenerator, TidGenerator
from neo.protocol.ids import p64, tid_from_time, u64


@given(
    st.lists(st.floats(0, 4e9), min_size=1, max_size=20),
    st.integers(1, 1000),
    st.data(),
)
def test_tids_increase_and_keep_the_partition_whatever_the_clock_does(
    times: list[float], partitions: int, data: st.DataObject
) -> None:
    """Specification 15.5, 15.6, 15.7."""
    now = [times[0]]
    generator = TidGenerator(lambda: now[0])
    given_tids = [generator.last]
    ttids: list[bytes] = []
    for now[0] in times:
        if data.draw(st.booleans()) and ttids:
            ttid: bytes = data.draw(st.sampled_from(ttids))
            tid = generator.tid(ttid, partitions)
            assert u64(tid) % partitions == u64(ttid) % partitions
        else:
            tid = generator.ttid()
            ttids.append(tid)
        assert tid > given_tids[-1]
        given_tids.append(tid)


def test_ttid_is_the_time_when_the_clock_is_ahead() -> None:
    """Specification 15.6."""
    assert TidGenerator(lambda: 1e9).ttid() == tid_from_time(1e9)


def test_final_tid_is_the_nearest_of_its_partition() -> None:
    """Specification 15.7."""
    generator = TidGenerator(lambda: 0.0)
    generator.reset(p64(2**62 + 7))
    assert u64(generator.tid(p64(3), 10)) == next(
        n for n in range(2**62 + 8, 2**62 + 30) if n % 10 == 3
    )


def test_tids_that_are_left_out_are_never_given() -> None:
    generator = TidGenerator(lambda: 0.0)
    generator.reset(p64(2**62))
    generator.leave_out(1000)
    assert u64(generator.ttid()) == 2**62 + 1001


def test_tids_that_are_left_out_do_not_matter_when_the_clock_is_beyond_them() -> None:
    generator = TidGenerator(lambda: 1e9)
    generator.reset(tid_from_time(1e9 - 61))
    generator.leave_out(UNKNOWN_TIDS)
    assert generator.ttid() == tid_from_time(1e9)


def test_oids_are_consecutive_and_never_given_twice() -> None:
    """Specification 15.10."""
    generator = OidGenerator()
    assert generator.take(2) == [p64(1), p64(2)]
    generator.seen(p64(10))
    generator.seen(p64(5))
    assert generator.take(1) == [p64(11)]


def test_what_was_given_is_not_given_again_after_a_recovery() -> None:
    """Specification 15.8, 23.7."""
    tids = TidGenerator(lambda: 0.0)
    ttids = [tids.ttid(), tids.ttid()]
    tids.reset(ttids[0])
    assert tids.ttid() > ttids[1]
    oids = OidGenerator()
    given_oids = oids.take(5)
    oids.reset(given_oids[0])
    assert oids.take(1)[0] > given_oids[-1]


def test_exhausted_oids_are_an_error() -> None:
    generator = OidGenerator()
    generator.reset(p64(2**64 - 4))
    with pytest.raises(OverflowError):
        generator.take(3)
    assert generator.take(2)
