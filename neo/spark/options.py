"""Parse and check the options of ``spark.read.format("neo")``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from inspect import signature
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from neo.protocol.ids import MAX_TID, tid_from_time, u64
from neo.spark.reading import Connection, Query
from neo.spark.tables import columns_of

_T = TypeVar("_T")

#: Tasks of one scan. More are slower, because each joins the cluster.
TASKS_MAX = 200
#: Zones that Spark writes as offsets: +01:00, GMT+1, UTC-03:30.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


class OptionError(ValueError):
    """An option is missing or wrong."""


@dataclass(frozen=True)
class Options:
    """Checked options; :data:`OPTIONS` documents them.

    ``query``: the read as far as the options decide it; ``last`` is the option 'endingTid'.
    ``by_time``: ``tid`` was given as a time, which may be later than the last transaction.
    """

    connection: Connection
    query: Query
    tid: int | None = None
    tasks: int = TASKS_MAX
    rows_per_batch: int | None = None
    by_time: bool = False


def parse_tid(text: str) -> int:
    """Return a tid that is given as an integer, as 0x…, or as 16 hexadecimal digits."""
    base = 16 if text[:2].lower() == "0x" or len(text) == 16 else 10
    tid = int(text, base)
    if not 0 <= tid <= u64(MAX_TID):
        raise ValueError(text)
    return tid


def parse_zone(text: str) -> tzinfo:
    """Return a zone that is named as in ``spark.sql.session.timeZone``. Raise ValueError."""
    if text == "Z":
        return UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        size = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(size if offset[1] == "+" else -size)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(text) from None


def parse_timestamp(text: str, zone: tzinfo) -> int:
    """Return the last tid of a time in ISO 8601. ``zone``: the zone if the text has none.

    A microsecond has about 71 tids, and all have the same value in the column ``timestamp``. So a load
    as of the timestamp of a transaction includes this transaction.
    """
    moment = datetime.fromisoformat(text)
    moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    minute = moment.replace(second=0, microsecond=0)
    microsecond = moment.second * 1_000_000 + moment.microsecond
    start: int = u64(tid_from_time(minute.timestamp()))
    # The first tid of the next microsecond, rounded up, is the first excluded one.
    return start - (-((microsecond + 1) << 32) // 60_000_000) - 1


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _error_mode(text: str) -> str:
    if text not in ("null", "fail"):
        raise ValueError(text)
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


#: name, in the documented spelling → (field, parser, expected value).
OPTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "masters": ("masters", str, "host:port of the masters, separated by spaces or commas"),
    "cluster": ("cluster", str, "the name of the cluster"),
    "ca": ("ca", str, "a file, for TLS"),
    "cert": ("cert", str, "a file, for TLS"),
    "key": ("key", str, "a file, for TLS"),
    "table": ("table", str, "objects, history, changes, transactions or references"),
    "columns": ("columns", _names, "names of columns, separated by commas"),
    "tid": ("tid", parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "timestamp": ("tid", datetime.fromisoformat, "a moment in ISO 8601"),
    "timeZone": ("zone", parse_zone, "a zone such as Europe/Berlin, UTC or +01:00"),
    "startingTid": ("first", parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "endingTid": ("last", parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "maxRowsPerBatch": ("rows_per_batch", _positive, "a positive integer"),
    "pageBytes": ("page_bytes", _positive, "a positive number of bytes"),
    "maxValueBytes": ("value_bytes", _positive, "a positive number of bytes"),
    "jsonBudget": ("json_budget", _positive, "a positive number of values"),
    "onError": ("on_error", _error_mode, "null or fail"),
    "maxTasks": ("tasks", _positive, "a positive integer"),
    "waitTimeout": ("wait_timeout", float, "seconds"),
}
_BY_LOWER_CASE = {name.lower(): name for name in OPTIONS}


def parse(given: Mapping[str, str], session_zone: str | None = None) -> Options:
    """Check options. Raise OptionError.

    Names may be in any case, because Spark passes them in lower case. ``session_zone``: the time zone of
    the session; None if it is unknown.
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = _BY_LOWER_CASE.get(key.lower())
        if name is None:
            raise OptionError(f"there is no option {key!r}; there are: {', '.join(OPTIONS)}")
        _, convert, expected = OPTIONS[name]
        try:
            values[name] = convert(text)
        except (ValueError, OverflowError):
            raise OptionError(f"option {name!r}: {text!r} is not {expected}") from None
    for name in ("masters", "cluster"):
        if not values.get(name):
            raise OptionError(f"option {name!r} is missing: {OPTIONS[name][2]}")
    if "tid" in values and "timestamp" in values:
        raise OptionError("options 'tid' and 'timestamp' exclude each other: give one of them")
    if "timestamp" in values:
        text = next(text for key, text in given.items() if key.lower() == "timestamp")
        values["timestamp"] = _last_tid(text, values.get("timeZone"), session_zone)
    table = values.get("table", "objects")
    if "startingTid" in values and table in ("objects", "references"):
        raise OptionError(
            f"option 'startingTid': table '{table}' is as of one transaction and has no beginning; use "
            "the table changes, history or transactions"
        )
    try:
        columns = columns_of(table, values.get("columns"))
    except ValueError as e:
        raise OptionError(str(e)) from None
    found = {OPTIONS[name][0]: value for name, value in values.items()}
    found |= {"table": table, "columns": columns, "by_time": "timestamp" in values}
    return _made(Options, found, connection=_made(Connection, found), query=_made(Query, found))


def _made(kind: Callable[..., _T], found: Mapping[str, Any], **more: Any) -> _T:
    """Return an object of a dataclass, with the values that are found for its fields."""
    return kind(
        **{name: found[name] for name in signature(kind).parameters if name in found}, **more
    )


def _last_tid(text: str, zone: tzinfo | None, session_zone: str | None) -> int:
    """Return the tid of option 'timestamp'. Raise OptionError."""
    if zone is None and datetime.fromisoformat(text).tzinfo is None:
        if session_zone is None:
            raise OptionError(
                f"option 'timestamp': {text!r} has no zone, and the zone of the session is unknown "
                "without neo.spark.register(spark): write the zone, as in 2026-11-21T10:00:00+01:00, or "
                "set option 'timeZone'"
            )
        zone = parse_zone(session_zone)
    try:
        return parse_timestamp(text, zone or UTC)
    except (ValueError, OverflowError):
        raise OptionError(f"option 'timestamp': {text!r} is no time that a tid can have") from None
