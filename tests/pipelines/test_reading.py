"""The four tables as Arrow, against what ZODB says is in the database."""

from __future__ import annotations

import io
import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from persistent.TimeStamp import TimeStamp
from ZODB.serialize import get_refs, referencesf
from ZODB.utils import p64, u64

from neo.client.history.scan import Revision, Scanner
from neo.spark.reading import Query, read, with_ends
from neo.spark.rows import Builder, UnreadableRecord
from neo.spark.tables import TABLES, columns_of
from tests.pipelines.sample import MISSING, Document, Sample, store

DOCUMENT = "tests.pipelines.sample.Document"


def rows(sample: Sample, table: str, *columns: str, **options: Any) -> list[dict[str, Any]]:
    scanner = Scanner(sample.storage)
    options.setdefault("last", u64(scanner.last_tid()))
    query = Query(table, columns_of(table, columns or None), **options)
    batches = [b for p in range(scanner.partitions) for b in read(scanner, query, p)]
    assert all(batch.num_rows for batch in batches)
    found: list[dict[str, Any]] = pa.Table.from_batches(
        batches, Builder(query.columns).schema
    ).to_pylist()
    return found


ALL = [column.name for column in TABLES["objects"]]


@pytest.mark.parametrize("page_bytes", [300, 1 << 20])
def test_objects_as_of_every_transaction(sample: Sample, page_bytes: int) -> None:
    for tid in sample.tids[::3]:
        found = rows(sample, "objects", *ALL, last=tid, page_bytes=page_bytes)
        assert {r["oid"]: (r["tid"], r["data"]) for r in found} == sample.snapshot(tid)
        for row in found:
            assert row["partition"] == row["oid"] % 12
            assert row["size"] == len(row["data"])
            if row["error"] is None:
                strong = sorted(u64(oid) for oid in referencesf(row["data"]))
                assert sorted(row["refs"]) == strong


@pytest.mark.parametrize("table", ["objects", "history", "changes", "references"])
def test_only_wanted_oids_are_read(sample: Sample, table: str) -> None:
    name = "src" if table == "references" else "oid"
    whole = rows(sample, table)
    oids = sorted({row[name] for row in whole})
    least, greatest = oids[1], oids[-2]
    inside = rows(sample, table, oid_range=(least, greatest))
    assert inside == [row for row in whole if least <= row[name] <= greatest] != whole
    some = frozenset([oids[0], oids[1], oids[-1]])
    assert rows(sample, table, oids=some) == [row for row in whole if row[name] in some]
    found = rows(sample, table, oids=some, oid_range=(least, greatest))
    assert found == [row for row in whole if row[name] == least] != []


def test_the_time_of_a_tid_is_that_of_zodb(sample: Sample) -> None:
    builder = Builder(())
    for tid in [*sample.tids, 1 << 40, 0x0285CBAC258BF266]:
        seconds = TimeStamp(p64(tid)).timeTime()
        assert abs(builder.timestamp(tid) / 1e6 - seconds) < 2e-5
    row = rows(sample, "objects", "tid", "timestamp")[0]
    assert abs(row["timestamp"] - datetime.now(UTC)).total_seconds() < 3600


def test_states_classes_and_errors(sample: Sample) -> None:
    found = {r["oid"]: r for r in rows(sample, "objects", "oid", "class", "state", "error")}
    states = [r["state"] for r in found.values() if r["class"] == DOCUMENT]
    assert '{"number":1,"text":"text of document 1 "}' in states
    assert found[5000]["class"] == "no.such.Class"
    assert found[5000]["state"] == f'{{"r":{{"$ref":{MISSING}}}}}'
    assert (found[5001]["class"], found[5001]["state"]) == (None, None)
    assert found[5001]["error"]


def test_classes_alone_are_read_without_decoding(sample: Sample) -> None:
    default = {r["oid"]: r["class"] for r in rows(sample, "objects")}
    assert default == {
        r["oid"]: r["class"] for r in rows(sample, "objects", "oid", "class", "error")
    }


def test_an_unreadable_record_fails_the_job_when_that_is_asked(sample: Sample) -> None:
    for table, columns in (
        ("objects", ["refs"]),
        ("objects", []),
        ("history", ["oid", "class"]),
        ("changes", ["error"]),
        ("references", []),
    ):
        with pytest.raises(UnreadableRecord, match="object 0x1389 at serial"):
            rows(sample, table, *columns, on_error="fail")
    with pytest.raises(UnreadableRecord, match="is larger than 100"):
        rows(sample, "references", on_error="fail", value_bytes=100)
    assert rows(sample, "objects", "oid", "tid", on_error="fail")


def test_a_state_beyond_its_budget_is_an_error_of_its_row(sample: Sample) -> None:
    found = rows(sample, "objects", "class", "state", "error", json_budget=2)
    assert any("budget" in (r["error"] or "") for r in found if r["class"] == DOCUMENT)


def test_history_tells_what_replaced_each_revision(sample: Sample) -> None:
    found = rows(sample, "history", "oid", "tid", "end_tid", "seq", "deleted", page_bytes=400)
    assert [(r["oid"], r["tid"]) for r in sorted(found, key=lambda r: (r["oid"], r["tid"]))] == (
        sorted(sample.revisions)
    )
    by_oid: dict[int, list[int]] = {}
    for oid, tid in sorted(sample.revisions):
        by_oid.setdefault(oid, []).append(tid)
    for row in found:
        tids = by_oid[row["oid"]]
        index = tids.index(row["tid"])
        assert row["seq"] == index + 1
        assert row["end_tid"] == (tids[index + 1] if index + 1 < len(tids) else None)
        assert row["deleted"] == (sample.revisions[row["oid"], row["tid"]] is None)


def test_ends_are_found_across_pages() -> None:
    revisions = [
        Revision(o, t, False, 0, None, None) for o, t in [(1, 5), (1, 6), (2, 5), (3, 1), (3, 9)]
    ]
    expected = [(1, 5, 6, 1), (1, 6, None, 2), (2, 5, None, 1), (3, 1, 9, 1), (3, 9, None, 2)]
    for size in range(1, 6):
        pages = [revisions[i : i + size] for i in range(0, 5, size)]
        found = [(r.oid, r.tid, end, seq) for page in with_ends(pages) for r, end, seq in page]
        assert found == expected


def test_references_of_all_kinds(sample: Sample) -> None:
    found = rows(sample, "references")
    tid = sample.tids[-1]
    expected = []
    for oid, (_, data) in sample.snapshot(tid).items():
        if oid != 5001:
            expected += [(oid, u64(dst)) for dst, _ in get_refs(data)]
    strong = [(r["src"], r["dst"]) for r in found if r["kind"] == "s"]
    assert sorted(strong) == sorted(expected)
    assert [r["src_class"] for r in found if r["kind"] == "w"] == ["tests.pipelines.sample.Folder"]
    assert [r["src"] for r in found if r["dst"] == MISSING] == [5000]
    for column in ("partition", "src", "src_tid", "dst"):
        alone = rows(sample, "references", column)
        assert sorted(r[column] for r in alone) == sorted(r[column] for r in found)


def test_references_tell_what_they_refer_to(sample: Sample) -> None:
    """Its class, as far as the reference says; and another database of a multi-database."""
    other = object()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: object) -> object:
            return ["m", ("archive", p64(7), Document)] if value is other else None

    file = io.BytesIO()
    for value in (Document, {"original": other}):
        Pickler(file, 3).dump(value)
    store(sample.storage, 5002, file.getvalue())
    found = rows(sample, "references", "src", "kind", "dst", "dst_class", "dst_db")
    foreign = {"src": 5002, "kind": "m", "dst": 7, "dst_class": DOCUMENT, "dst_db": "archive"}
    assert [row for row in found if row["kind"] == "m"] == [foreign]
    classes = {row["oid"]: row["class"] for row in rows(sample, "objects", "oid", "class")}
    others = [row for row in found if row["kind"] != "m" and row["dst"] != MISSING]
    assert {row["dst_class"] for row in others} > {DOCUMENT, "tests.pipelines.sample.Folder"}
    assert all(row["dst_class"] in (None, classes[row["dst"]]) for row in others)
    assert all(row["dst_db"] is None for row in others)


def test_the_time_of_the_end_of_a_revision_is_that_of_its_tid(sample: Sample) -> None:
    times = {row["tid"]: row["timestamp"] for row in rows(sample, "transactions", "tid", "timestamp")}
    found = rows(sample, "history", "end_tid", "end_timestamp")
    assert {row["end_tid"] is None for row in found} == {True, False}
    assert all(row["end_timestamp"] == times.get(row["end_tid"]) for row in found)
    assert rows(sample, "history", "end_timestamp") == [
        {"end_timestamp": row["end_timestamp"]} for row in found
    ]


def test_transactions(sample: Sample) -> None:
    found = sorted(rows(sample, "transactions"), key=lambda r: r["tid"])
    assert [r["tid"] for r in found] == sample.tids
    assert found[1]["description"] == "batch 0"
    assert all(set(r["oids"]) == {o for o, t in sample.revisions if t == r["tid"]} for r in found)


def test_some_objects_alone(sample: Sample) -> None:
    wanted = frozenset([0, 3, 5000, 424242])
    found = rows(sample, "objects", "oid", "tid", oids=wanted)
    assert {r["oid"] for r in found} == {0, 3, 5000}
    history = rows(sample, "history", "oid", "tid", oids=wanted)
    assert {(r["oid"], r["tid"]) for r in history} == {
        k for k in sample.revisions if k[0] in wanted
    }


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [("nothing", None, "there is no table 'nothing'"), ("objects", ["x"], "no column 'x'")],
)
def test_unknown_tables_and_columns_are_refused(
    table: str, columns: list[str] | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        columns_of(table, columns)
