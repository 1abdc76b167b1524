"""As of a moment: what the column ``timestamp`` says of a transaction brings this transaction."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from ZODB.utils import p64, u64

from neo.protocol.ids import time_from_tid
from neo.spark import check_pyspark, register
from neo.spark.options import OptionError, parse, parse_timestamp, parse_zone
from neo.spark.plan import past
from neo.spark.rows import Builder

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(MOMENTS)
def test_it_is_the_last_tid_of_its_microsecond(moment: datetime) -> None:
    builder = Builder(())
    tid = parse_timestamp(moment.isoformat(), UTC)
    assert builder.timestamp(tid) == microseconds(moment)
    assert builder.timestamp(tid + 1) == microseconds(moment) + 1


@pytest.mark.parametrize("second", ["00", "59.999999"])
def test_also_at_the_border_of_a_minute(second: str) -> None:
    tid = parse_timestamp(f"2026-11-21T10:11:{second}", UTC)
    assert Builder(()).timestamp(tid + 1) - Builder(()).timestamp(tid) == 1


def test_zones_are_heeded() -> None:
    there = datetime(2026, 11, 21, 12, 0, 0, 5, timezone(timedelta(hours=2)))
    assert parse_timestamp(there.isoformat(), UTC) == utc("2026-11-21T10:00:00.000005")
    assert u64(p64(utc("2026-11-21"))) < utc("2026-11-21T00:00:01")
    assert abs(time_from_tid(p64(utc("2026-11-21"))) - 1795219200) < 1e-5


def utc(text: str) -> int:
    return parse_timestamp(text, UTC)


def as_of(session: str | None = None, **options: str) -> int:
    tid = parse({"masters": "m", "cluster": "c", **options}, session).tid
    assert tid is not None
    return tid


def test_a_moment_without_zone_is_of_the_session() -> None:
    """As the column shows it: an option that says another moment gives another snapshot in silence."""
    noon = "2026-07-21T12:00:00"
    assert as_of("Europe/Berlin", timestamp=noon) == utc("2026-07-21T10:00:00")
    assert as_of("-03:30", timestamp=noon) == utc("2026-07-21T15:30:00")
    assert as_of("Asia/Tokyo", timestamp=noon, timeZone="Europe/Berlin") == utc("2026-07-21T10:00")
    assert as_of("Asia/Tokyo", timestamp=noon + "+01:00") == utc("2026-07-21T11:00:00")
    with pytest.raises(OptionError, match=r"has no zone, .* neo\.spark\.register\(spark\)"):
        as_of(None, timestamp=noon)
    assert as_of(None, timestamp=noon + "Z") == utc(noon)
    assert as_of(None, timestamp=noon, timeZone="GMT+2") == utc("2026-07-21T10:00:00")
    with pytest.raises(OptionError, match="'timeZone': 'Nowhere/No' is not a zone such as"):
        as_of(None, timestamp=noon, timeZone="Nowhere/No")


@pytest.mark.parametrize(
    ("name", "hours"), [("UTC", 0), ("Z", 0), ("+05:30", 5.5), ("GMT-8", -8), ("UTC+0100", 1)]
)
def test_zones_are_written_as_for_spark(name: str, hours: float) -> None:
    assert parse_zone(name).utcoffset(datetime(2026, 1, 1)) == timedelta(hours=hours)


def test_a_moment_of_the_future_is_refused() -> None:
    now = datetime(2026, 7, 21, 12, 0, 0, tzinfo=UTC)
    last = utc("2026-07-21T11:59:00")
    assert past(utc("2026-07-21T11:58:00"), last, now) == utc("2026-07-21T11:58:00")
    assert past(utc("2026-07-21T11:59:59"), last, now) == last
    with pytest.raises(OptionError, match="2026-07-21 12:00:05 UTC is in the future, it is 2026"):
        past(utc("2026-07-21T12:00:05"), last, now)
    # The master's clock may be ahead of this one: what the column shows can be asked for.
    ahead = utc("2026-07-21T12:00:10")
    assert past(utc("2026-07-21T12:00:05"), ahead, now) == utc("2026-07-21T12:00:05")


def test_an_old_pyspark_is_refused_in_a_sentence() -> None:
    for good in ("4.2.0", "4.3.0.dev1", "5.0"):
        check_pyspark(good)
    for old in ("3.5.1", "4.1.2"):
        with pytest.raises(ImportError, match=f"needs PySpark 4.2 or newer, this is {old}"):
            check_pyspark(old)


@pytest.mark.parametrize(
    ("master", "python", "chosen", "said"),
    [
        ("local[2]", "python3", sys.executable, False),
        ("local", "/opt/python", "/opt/python", False),
        ("spark://host:7077", "python3", "python3", True),
        ("yarn", "/opt/python", "/opt/python", False),
    ],
)
def test_tasks_here_run_this_python_and_of_others_it_is_named(
    master: str, python: str, chosen: str, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    registered: list[Any] = []
    context = SimpleNamespace(master=master, pythonExec=python)
    spark = SimpleNamespace(
        sparkContext=context,
        conf=SimpleNamespace(set=lambda name, value: None, get=lambda name: "Asia/Tokyo"),
        dataSource=SimpleNamespace(register=registered.append),
    )
    register(cast(SparkSession, spark))
    assert context.pythonExec == chosen
    assert [source.session_zone for source in registered] == ["Asia/Tokyo"]
    assert ("set PYSPARK_PYTHON" in caplog.text) == said
