"""The report says of a database what ZODB itself says of it."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import get_pickle_metadata, u64

from examples.report import Tables, main, make_report
from examples.report.charts import bars, human, stacked
from examples.report.figures import OTHERS, UNREADABLE, Report, Table, Wanted, continued
from examples.report.page import html
from examples.report.reachable import reached, unreachable
from neo.client import NEOStorage
from neo.migrate import copy_from
from neo.protocol.ids import ZERO_TID, tid_from_time, time_from_tid
from tests.pipelines.exporting import export
from tests.pipelines.sample import MISSING, fill
from tests.pipelines.spark.conftest import ROOT
from tests.zodb.fleet import NAME, Fleet

BEGIN = datetime(2024, 1, 20, tzinfo=UTC).timestamp()
DAY = 86_400
DOCUMENT = "tests.pipelines.sample.Document"


@pytest.fixture
def aged(tmp_path: Path) -> Path:
    """The sample as if its transactions were 20 days from each other."""
    young, old = tmp_path / "young.fs", tmp_path / "old.fs"
    with closing(FileStorage(str(young))) as source, closing(FileStorage(str(old))) as storage:
        fill(source)
        for number, transaction in enumerate(source.iterator()):
            tid = tid_from_time(BEGIN + number * 20 * DAY)
            storage.tpc_begin(transaction, tid, " ")
            for record in transaction:
                storage.restore(record.oid, tid, record.data, "", None, transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
    return old


class Truth:
    """What a walk through a storage finds."""

    def __init__(self, path: Path) -> None:
        self.transactions = 0
        self.revisions: Counter[int] = Counter()
        self.written: Counter[int] = Counter()
        self.current: dict[int, tuple[str, int, bytes]] = {}
        # By month: class → objects and bytes at its end.
        self.months: dict[str, dict[str, tuple[int, int]]] = {}
        with closing(FileStorage(str(path), read_only=True)) as storage:
            for transaction in storage.iterator():
                self.transactions += 1
                month = time.strftime("%Y-%m-01", time.gmtime(time_from_tid(transaction.tid)))
                for record in transaction:
                    self._take(u64(record.oid), record.data)
                self.months[month] = self.by_class()

    def _take(self, oid: int, data: bytes | None) -> None:
        self.revisions[oid] += 1
        self.current.pop(oid, None)
        if data is not None:
            self.written[oid] += len(data)
            self.current[oid] = class_of(data), len(data), data

    def by_class(self, oids: Any = None) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for oid in self.current if oids is None else oids:
            name, size, _ = self.current[oid]
            found[name] = found[name][0] + 1, found[name][1] + size
        return dict(found)

    def references(self, oid: int) -> list[int]:
        data = self.current[oid][2]
        return [] if class_of(data) == UNREADABLE else [u64(r) for r in referencesf(data)]

    def garbage(self) -> set[int]:
        waiting, seen = [0], {0}
        while waiting:
            for oid in self.references(waiting.pop()):
                if oid in self.current and oid not in seen:
                    seen.add(oid)
                    waiting.append(oid)
        return set(self.current) - seen

    def broken(self) -> list[tuple[int, int]]:
        found = ((src, dst) for src in self.current for dst in self.references(src))
        return sorted((src, dst) for src, dst in found if dst not in self.current)


def class_of(data: bytes) -> str:
    if data == b"this is no pickle":
        return UNREADABLE
    return ".".join(get_pickle_metadata(data))


def check(report: Report, truth: Truth) -> None:
    now, garbage = truth.by_class(), truth.garbage()
    assert report.totals == {
        "objects": len(truth.current),
        "bytes": sum(size for _, size, _ in truth.current.values()),
        "revisions": sum(truth.revisions.values()),
        "bytes of all revisions": sum(truth.written.values()),
        "transactions": truth.transactions,
        "unreadable objects": now[UNREADABLE][0],
        "broken references": len(truth.broken()),
        "unreachable objects": len(garbage),
        "bytes of unreachable objects": sum(truth.current[oid][1] for oid in garbage),
    }
    assert {row[0]: row[1:3] for row in report.classes.rows} == now
    assert [row[2] for row in report.classes.rows] == sorted(
        (size for _, size in now.values()), reverse=True
    )
    assert report.periods == list(truth.months)
    for index, classes in enumerate(truth.months.values()):
        found = {
            name: (report.objects[name][index], report.size[name][index]) for name in report.size
        }
        assert {name: sums for name, sums in found.items() if any(sums)} == classes
    assert [(row[0], row[2]) for row in report.hottest.rows] == sorted(
        truth.revisions.items(), key=lambda item: (-item[1], item[0])
    )[: len(report.hottest.rows)]
    for row in report.hottest.rows:
        assert row[3] == truth.written[row[0]]
    assert [(row[0], row[2]) for row in report.broken.rows] == truth.broken() == [(5000, MISSING)]
    assert {row[0]: row[1:3] for row in report.garbage.rows} == truth.by_class(garbage)
    # The deleted document, whose place in the tree is gone.
    assert len(garbage) == 3
    months = list(truth.months.values())
    for name, before, objects, size_before, size, more in report.growth.rows:
        assert (objects, size) == now[name]
        assert (before, size_before) == months[-3].get(name, (0, 0)) and more == size - size_before


def test_a_cluster_and_its_export_are_reported_as_zodb_sees_them(
    spark: SparkSession,
    fleet: Fleet,
    storage: NEOStorage,
    aged: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # which the program would set for good
    with closing(FileStorage(str(aged))) as source:
        for _ in copy_from(ZERO_TID, source, storage):
            pass
    truth = Truth(aged)
    direct = make_report(
        Tables.of_cluster(spark, masters=fleet.masters, cluster=NAME, maxTasks="2"), Wanted(days=45)
    )
    check(direct, truth)
    export(aged, tmp_path / "out")
    out, page = str(tmp_path / "out"), tmp_path / "page.html"
    assert main(["--parquet", out, "--days", "45", "--html", str(page)]) == 0
    assert page.read_text() == html(replace(direct, where=f"export {out}"))
    shown = capsys.readouterr().out
    questions = (ROOT / "docs" / "spark.md").read_text().split("# Who writes how much")[1]
    code = "#" + questions.split("```")[0].replace("shop.model.Article", DOCUMENT)
    exec(code.replace("30 days", "300 days"), {"tables": Tables.of_export(spark, out), "F": F})
    answers = capsys.readouterr().out
    assert "2024-01-20" in answers and "revisions" in answers and "price" in answers
    assert f"{len(truth.current)} objects" in shown
    assert "0x1388" in shown, "the object with the broken reference"


def test_the_joins_and_the_driver_reach_the_same(spark: SparkSession) -> None:
    chance = random.Random(5)
    objects = [0, *chance.sample(range(1, 1 << 40), 15)]
    pairs = [(chance.choice(objects), chance.choice([*objects, 77])) for _ in range(12)]
    pairs += [(0, objects[n]) for n in range(5, 8)]
    oids = spark.createDataFrame([(oid,) for oid in objects], "oid bigint")
    edges = spark.createDataFrame(pairs, "src bigint, dst bigint")
    expected = sorted(set(objects) - search(objects, pairs))
    assert 0 < len(expected) < 13
    for most in (0, 1000):
        found = unreachable(spark, oids, edges, most)
        assert sorted(row.oid for row in found.collect()) == expected


def search(objects: list[int], edges: list[tuple[int, int]]) -> set[int]:
    seen: set[int] = set()
    waiting = [0]
    while waiting:
        oid = waiting.pop()
        if oid in objects and oid not in seen:
            seen.add(oid)
            waiting += [dst for src, dst in edges if src == oid]
    return seen


@pytest.mark.parametrize("seed", range(30))
def test_what_can_be_reached(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 40)
    objects = sorted(
        {chance.randrange(60) for _ in range(count)} - ({0} if seed % 5 == 0 else set())
    )
    edges = [(chance.randrange(60), chance.randrange(60)) for _ in range(chance.randrange(80))]
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    seen = reached(np.array(objects, np.int64), src, dst)
    assert {oid for oid, is_seen in zip(objects, seen, strict=True) if is_seen} == (
        search(objects, edges)
    )


def test_a_long_list_is_followed_to_its_end() -> None:
    objects = np.arange(50_000)
    assert reached(objects, objects[:-1], objects[1:]).all()


# -- the page ------------------------------------------------------------------------------------


class Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.attributes: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def report_of(name: str) -> Report:
    table = Table(("class", "objects", "bytes"), [(name, 3, 4), ("m.C", None, 2)])
    series = {name: [1, 2], OTHERS: [0, 5]}
    return Report(
        name,
        datetime(2026, 1, 2, tzinfo=UTC),
        {"objects": 3},
        ["2026-01-01", "2026-02-01"],
        series,
        series,
        *([table] * 5),
    )


def test_the_page_needs_nothing_and_names_from_the_database_are_text() -> None:
    page = html(report_of("<script src='http://x/'>alert(1)</script>\"'&"))
    parser = Parser()
    parser.feed(page)
    assert not parser.tags & {"script", "link", "img", "iframe"}
    assert not parser.attributes & {"src", "href", "onload", "onclick"}
    assert "&lt;script" in page


@pytest.mark.parametrize("count", [1, 2, 40])
def test_charts_are_shapes_within_their_frame(count: int) -> None:
    chance = random.Random(count)
    labels = [f"<{n}>" for n in range(count)]
    series = {name: [chance.randrange(10**9) for _ in labels] for name in ("a&b", "<c>", "d")}
    svg = stacked(labels, series).split("<ul")[0]
    root = ElementTree.fromstring(svg)
    assert len(root.findall("polygon")) == 3
    for polygon in root.findall("polygon"):
        for point in polygon.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 720 and 0 <= y <= 260
    drawn = ElementTree.fromstring(bars([("a" * 100, 5.0), ("<b>", 0.0)]))
    assert len(drawn.findall("rect")) == 2


def test_nothing_at_all_is_drawn_without_error() -> None:
    ElementTree.fromstring(stacked(["x"], {"a": [0]}).split("<ul")[0])


def test_numbers_for_people() -> None:
    assert [human(n) for n in (0, 7, 999, 1234, 5_600_000, 2e15)] == [
        *("0", "7", "999", "1.23 k", "5.6 M", "2 P"),
    ]


@pytest.mark.parametrize("arguments", ["", "--masters x", "--parquet a --masters b --cluster c"])
def test_where_to_read_must_be_said(arguments: str) -> None:
    with pytest.raises(SystemExit):
        main(arguments.split())


@pytest.mark.parametrize(
    ("period", "days", "expected"),
    [
        ("day", ["2024-03-01", "2024-02-28"], ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("week", ["2024-12-23", "2025-01-06"], ["2024-12-23", "2024-12-30", "2025-01-06"]),
        (
            "month",
            ["2024-12-01", "2025-03-01"],
            ["2024-12-01", "2025-01-01", "2025-02-01", "2025-03-01"],
        ),
        ("year", ["2023-01-01", "2026-01-01"], [f"{y}-01-01" for y in range(2023, 2027)]),
        ("month", ["2024-12-01"], ["2024-12-01"]),
        ("month", [], []),
    ],
)
def test_periods_without_changes_are_on_the_axis(
    period: str, days: list[str], expected: list[str]
) -> None:
    assert continued(days, period) == expected
