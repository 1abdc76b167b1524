"""Parse and check the options of ``spark.read.format("neo")``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from neo.client.scan import PAGE_BYTES, VALUE_BYTES
from neo.protocol.ids import MAX_TID, tid_from_time, u64
from neo.spark.reading import Connection
from neo.spark.rows import JSON_BUDGET
from neo.spark.tables import Column, columns_of

#: Tasks of one scan. More are slower, because each joins the cluster.
TASKS_MAX = 200
#: Zones that Spark writes as offsets: +01:00, GMT+1, UTC-03:30.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


class OptionError(ValueError):
    """An option is missing or wrong."""


@dataclass(frozen=True)
class Options:
    """Checked options; :data:`OPTIONS` documents them."""

    connection: Connection
    table: str = "objects"
    columns: tuple[Column, ...] = ()
    tid: int | None = None
    first: int = 0
    last: int | None = None
    page_bytes: int = PAGE_BYTES
    value_bytes: int = VALUE_BYTES
    json_budget: int = JSON_BUDGET
    on_error: str = "null"
    tasks: int = TASKS_MAX
    rows_per_batch: int | None = None
    #: ``tid`` was given as a time, which may be later than the last transaction.
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


#: name → (parser, expected value), in the documented spelling.
OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "masters": (str, "host:port of the masters, separated by spaces or commas"),
    "cluster": (str, "the name of the cluster"),
    "ca": (str, "a file, for TLS"),
    "cert": (str, "a file, for TLS"),
    "key": (str, "a file, for TLS"),
    "table": (str, "objects, history, changes, transactions or references"),
    "columns": (_names, "names of columns, separated by commas"),
    "tid": (parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "timestamp": (datetime.fromisoformat, "a moment in ISO 8601"),
    "timeZone": (parse_zone, "a zone such as Europe/Berlin, UTC or +01:00"),
    "startingTid": (parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "endingTid": (parse_tid, "a tid: an integer, 0x… or 16 hexadecimal digits"),
    "maxRowsPerBatch": (_positive, "a positive integer"),
    "pageBytes": (_positive, "a positive number of bytes"),
    "maxValueBytes": (_positive, "a positive number of bytes"),
    "jsonBudget": (_positive, "a positive number of values"),
    "onError": (_error_mode, "null or fail"),
    "maxTasks": (_positive, "a positive integer"),
    "waitTimeout": (float, "seconds"),
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
        convert, expected = OPTIONS[name]
        try:
            values[name] = convert(text)
        except (ValueError, OverflowError):
            raise OptionError(f"option {name!r}: {text!r} is not {expected}") from None
    for name in ("masters", "cluster"):
        if not values.get(name):
            raise OptionError(f"option {name!r} is missing: {OPTIONS[name][1]}")
    if "tid" in values and "timestamp" in values:
        raise OptionError("options 'tid' and 'timestamp' exclude each other")
    if "timestamp" in values:
        text = next(text for key, text in given.items() if key.lower() == "timestamp")
        values["timestamp"] = _last_tid(text, values.get("timeZone"), session_zone)
    table = values.get("table", "objects")
    if "startingTid" in values and table in ("objects", "references"):
        raise OptionError(
            f"option 'startingTid': {table} are as of one transaction and begin nowhere; use the tables"
            " changes, history or transactions"
        )
    try:
        columns = columns_of(table, values.get("columns"))
    except ValueError as e:
        raise OptionError(str(e)) from None
    connection = Connection(
        values["masters"],
        values["cluster"],
        values.get("ca"),
        values.get("cert"),
        values.get("key"),
        values.get("waitTimeout", Connection.wait_timeout),
    )
    renamed = {field: values[name] for name, field in _FIELDS.items() if name in values}
    return Options(connection, table, columns, by_time="timestamp" in values, **renamed)


def _last_tid(text: str, zone: tzinfo | None, session_zone: str | None) -> int:
    """Return the tid of option 'timestamp'. Raise OptionError."""
    if zone is None and datetime.fromisoformat(text).tzinfo is None:
        if session_zone is None:
            raise OptionError(
                f"option 'timestamp': {text!r} says no zone, and that of the session is not known "
                "without neo.spark.register(spark): write the zone, as in 2026-11-21T10:00:00+01:00, or "
                "set option 'timeZone'"
            )
        zone = parse_zone(session_zone)
    try:
        return parse_timestamp(text, zone or UTC)
    except (ValueError, OverflowError):
        raise OptionError(f"option 'timestamp': {text!r} is not a moment of a tid") from None


#: Options that are stored unchanged, and their fields in Options.
_FIELDS = {
    "tid": "tid",
    "timestamp": "tid",
    "startingTid": "first",
    "endingTid": "last",
    "pageBytes": "page_bytes",
    "maxValueBytes": "value_bytes",
    "jsonBudget": "json_budget",
    "onError": "on_error",
    "maxTasks": "tasks",
    "maxRowsPerBatch": "rows_per_batch",
}
