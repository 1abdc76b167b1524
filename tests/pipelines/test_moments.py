"""As of a moment: what the column ``timestamp`` says of a transaction brings this transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ZODB.utils import p64, u64

from neo.protocol.ids import time_from_tid
from neo.spark.options import parse_timestamp
from neo.spark.rows import Builder

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(MOMENTS)
def test_it_is_the_last_tid_of_its_microsecond(moment: datetime) -> None:
    builder = Builder(())
    tid = parse_timestamp(moment.isoformat())
    assert builder.timestamp(tid) == microseconds(moment)
    assert builder.timestamp(tid + 1) == microseconds(moment) + 1


@pytest.mark.parametrize("second", ["00", "59.999999"])
def test_also_at_the_border_of_a_minute(second: str) -> None:
    tid = parse_timestamp(f"2026-11-21T10:11:{second}")
    assert Builder(()).timestamp(tid + 1) - Builder(()).timestamp(tid) == 1


def test_zones_are_heeded() -> None:
    there = datetime(2026, 11, 21, 12, 0, 0, 5, timezone(timedelta(hours=2)))
    assert parse_timestamp(there.isoformat()) == parse_timestamp("2026-11-21T10:00:00.000005")
    assert u64(p64(parse_timestamp("2026-11-21"))) < parse_timestamp("2026-11-21T00:00:01")
    assert abs(time_from_tid(p64(parse_timestamp("2026-11-21"))) - 1795219200) < 1e-5
