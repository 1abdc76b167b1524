"""neoexport: the tables that Spark reads from NEO, as files; as they were after each export."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ZODB import DB
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import get_pickle_metadata, p64, u64

import neo.client
from examples.demo.stdlib import find_modules, load_library, standard_library
from neo.client.read.replicas import Feature
from neo.export import plan, reader, spill, tables
from neo.export.command import main
from neo.migrate import copy_from
from neo.protocol.ids import ZERO_TID
from neo.spark.tables import TABLES
from tests.pipelines.exporting import (
    ALL,
    Capture,
    Rows,
    change,
    copy_into,
    direct,
    export,
    exported,
    ordered,
    refused,
    same_as_cluster,
    uri,
)
from tests.pipelines.sample import Sample
from tests.zodb.fleet import Fleet

#: A tid of the year 5980.
LATER = "7fffffffffffff00"


def without(rows: Rows, *columns: str) -> Rows:
    return ordered([{k: v for k, v in row.items() if k not in columns} for row in rows])


# -- what is exported ----------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_cluster(sample: Sample, fleet: Fleet, tmp_path: Path, jobs: str) -> None:
    export(uri(fleet), tmp_path / "out", "--jobs", jobs)
    same_as_cluster(tmp_path / "out", sample.storage)


def test_a_folder_that_one_process_has_open_is_exported_by_one(tmp_path: Path, capsys: Capture) -> None:
    db = DB(neo.client.open(tmp_path / "data"))
    with db.transaction() as connection:
        connection.root()["greeting"] = "hello"
    db.close()
    source = f"neo+embedded://{tmp_path / 'data'}"
    assert "leave --jobs 2 out" in refused(capsys, source, tmp_path / "out", "--jobs", "2")
    assert main([source, "--parquet", str(tmp_path / "out"), "--quiet"]) == 0
    assert len(exported(tmp_path / "out", "objects")) == 1


def test_a_file_storage_has_the_same_rows(sample: Sample, copied: Path, tmp_path: Path) -> None:
    export(copied, tmp_path / "out")
    for table in TABLES:
        found = without(exported(tmp_path / "out", table), "partition")
        assert found == without(direct(sample.storage, table), "partition"), table


def test_columns_are_chosen(sample: Sample, fleet: Fleet, tmp_path: Path) -> None:
    export(uri(fleet), tmp_path / "all", "--columns", ",".join(ALL))
    same_as_cluster(tmp_path / "all", sample.storage, ALL)
    export(uri(fleet), tmp_path / "few", "--columns", "size, class")
    few = ("partition", "oid", "tid", "timestamp", "class", "size")
    same_as_cluster(tmp_path / "few", sample.storage, few)
    assert pq.read_schema(next((tmp_path / "few/objects").iterdir())).names == list(few)
    assert len(exported(tmp_path / "few", "references")) > 200


def test_references_are_those_of_zodb(copied: Path, tmp_path: Path) -> None:
    export(copied, tmp_path / "out")
    rows = exported(tmp_path / "out", "references")
    with closing(FileStorage(str(copied), read_only=True)) as storage:
        for row in exported(tmp_path / "out", "objects"):
            data, serial = storage.load(p64(row["oid"]))
            assert (row["tid"], row["size"]) == (u64(serial), len(data))
            if row["error"] is None:
                strong = [r["dst"] for r in rows if r["src"] == row["oid"] and r["kind"] == "s"]
                assert sorted(strong) == sorted(u64(oid) for oid in referencesf(data))


def test_a_cluster_whose_nodes_know_no_pages(
    sample: Sample, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feature, "_node_knows", lambda self, nid, backoff: False)
    for number in range(2):
        export(uri(fleet), tmp_path / "out")
        same_as_cluster(tmp_path / "out", sample.storage)
        change(sample.storage, number)


def test_a_storage_of_a_configuration_file(copied: Path, tmp_path: Path) -> None:
    config = tmp_path / "app.conf"
    config.write_text(f"<filestorage old>\n path {copied}\n</filestorage>\n")
    export("old", tmp_path / "out", "--config", str(config))
    export(copied, tmp_path / "whole")
    assert exported(tmp_path / "out", "history") == exported(tmp_path / "whole", "history")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the database were larger than memory."""
    monkeypatch.setattr(spill, "RUN_BYTES", 10_000)
    monkeypatch.setattr(spill, "PAGE_BYTES", 1500)
    monkeypatch.setattr(reader, "RUNS_MAX", 3)
    monkeypatch.setattr(tables, "GROUP_ROWS", 7)
    monkeypatch.setattr(plan, "GROUPS", 2)


@pytest.mark.usefixtures("small")
def test_what_does_not_fit_into_memory_is_sorted_and_merged_in_pieces(
    sample: Sample, fleet: Fleet, copied: Path, tmp_path: Path
) -> None:
    for number in range(3):
        for name, source in (("file", copied), ("cluster", uri(fleet))):
            export(source, tmp_path / name)
            for table in TABLES:
                found = without(exported(tmp_path / name, table), "partition")
                assert found == without(direct(sample.storage, table), "partition"), table
        change(sample.storage, number)
        copy_into(sample.storage, copied)


def test_rows_that_do_not_fit_into_a_column_are_told(
    copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    with closing(FileStorage(str(copied))) as storage:
        _store(storage, 1 << 63, b"cm\nC\n.N.")
    assert "object 0x8000000000000000 cannot be exported" in refused(capsys, copied, tmp_path / "out")


def test_hostile_records_and_metadata_are_rows_like_others(
    sample: Sample, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    system = f"\x80\x02cposix\nsystem\nX{chr(len(str(ran)) + 6)}\0\0\0touch {ran}\x85R.".encode(
        "latin-1"
    )
    record = b"cm\nC\n."
    lone = b"X\3\0\0\0\xed\xa0\x80"
    hostile = [
        system,
        record + system,
        b".",
        record,
        record + b"\x80\2]" + b"](" * 10_000,
        record + b"\x80\2r\xff\xff\xff\x7f.",
        record + b"\x80\3C\10" + b"\xff" * 8 + b"Q.",
        b"\x80\2" + lone + lone + b"\x86N\x86.\x80\2" + lone + b".",
        record + b"\x80\3](X\1\0\0\0m(" + lone + b"C\10" + bytes(8) + b"NteQ.",
        b"x" * 5000,
    ]
    path = tmp_path / "hostile.fs"
    monkeypatch.setattr(spill, "VALUE_BYTES", 4000)
    with closing(FileStorage(str(path))) as file:
        for number, data in enumerate(hostile):
            _store(file, 7000 + number, data, b"\xff\xfe", system)
        for _ in copy_from(ZERO_TID, file, sample.storage):
            pass
    export(uri(fleet), tmp_path / "cluster")
    same_as_cluster(tmp_path / "cluster", sample.storage)
    export(path, tmp_path / "file")
    rows = {row["oid"] - 7000: row for row in exported(tmp_path / "file", "objects")}
    assert len(rows) == len(hostile)
    assert {n for n, row in rows.items() if row["error"]} == {0, 2, 3, 4, 5, 6, 9}
    assert rows[9]["error"] == "the record of 5000 bytes is larger than 4000"
    assert "system" in rows[1]["state"]
    first = exported(tmp_path / "file", "transactions")[0]
    assert first["user"] == "\\xff\\xfe"
    assert "system" in first["extension"]
    assert not ran.exists()


def _store(storage: Any, oid: int, data: bytes, text: bytes = b"", extension: bytes = b"") -> None:
    meta = TransactionMetaData(text.decode("latin-1"), "")
    meta.user, meta.extension_bytes = text, extension
    storage.tpc_begin(meta)
    storage.store(p64(oid), p64(0), data, "", meta)
    storage.tpc_vote(meta)
    storage.tpc_finish(meta)


def test_the_demo_database_is_what_zodb_walks(tmp_path: Path) -> None:
    path = tmp_path / "demo.fs"
    files = dict(list(find_modules(standard_library()).items())[:60])
    with closing(DB(FileStorage(str(path)))) as db:
        load_library(db, files)
    export(path, tmp_path / "out")
    walked = {}
    with closing(FileStorage(str(path), read_only=True)) as storage:
        waiting = [bytes(8)]
        while waiting:
            oid = waiting.pop()
            if u64(oid) not in walked:
                data, serial = storage.load(oid)
                references = sorted(u64(r) for r in referencesf(data))
                name = ".".join(get_pickle_metadata(data))
                walked[u64(oid)] = (u64(serial), name, len(data), references)
                waiting += map(p64, references)
    objects = exported(tmp_path / "out", "objects")
    assert len(objects) > 1000
    assert walked == {
        r["oid"]: (r["tid"], r["class"], r["size"], sorted(r["refs"])) for r in objects
    }
    edges = Counter((r["src"], r["dst"]) for r in exported(tmp_path / "out", "references"))
    assert edges == Counter((oid, dst) for oid, row in walked.items() for dst in row[3])


# -- increments ----------------------------------------------------------------------------------


def test_the_same_command_appends_what_is_new(
    sample: Sample, fleet: Fleet, tmp_path: Path, capsys: Capture
) -> None:
    for number in range(4):
        export(uri(fleet), tmp_path / "out", *(["--full"] if number == 2 else []))
        same_as_cluster(tmp_path / "out", sample.storage)
        change(sample.storage, number)
    export(uri(fleet), tmp_path / "out", "--since", str(sample.tids[-1]))
    same_as_cluster(tmp_path / "out", sample.storage)
    export(uri(fleet), tmp_path / "out")
    assert "every transaction of the source already" in capsys.readouterr().out


def test_a_file_storage_grows(sample: Sample, copied: Path, tmp_path: Path) -> None:
    for number in range(3):
        export(copied, tmp_path / "out")
        export(copied, tmp_path / f"out {number}")
        for table in TABLES:
            assert exported(tmp_path / "out", table) == exported(tmp_path / f"out {number}", table)
        with closing(FileStorage(str(copied))) as storage:
            change(storage, number)


def test_an_increment_leaves_the_files_of_changes(copied: Path, tmp_path: Path) -> None:
    export(copied, tmp_path / "out")
    tables = ("changes", "transactions")
    before = {p.name: p.stat() for t in tables for p in (tmp_path / "out" / t).iterdir()}
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 0)
    export(copied, tmp_path / "out")
    after = {p.name: p.stat() for t in tables for p in (tmp_path / "out" / t).iterdir()}
    assert len(after) > len(before)
    for name, found in before.items():
        assert (after[name].st_ino, after[name].st_mtime) == (found.st_ino, found.st_mtime)


def test_an_empty_folder_begins_after_a_transaction(
    sample: Sample, fleet: Fleet, copied: Path, tmp_path: Path
) -> None:
    tid = sample.tids[2]
    for name, source in (("cluster", uri(fleet)), ("file", copied)):
        out = tmp_path / name
        export(source, out, "--since", hex(tid))
        for table in ("changes", "transactions"):
            expected = [row for row in direct(sample.storage, table) if row["tid"] > tid]
            assert without(exported(out, table), "partition") == without(expected, "partition")
        assert not (out / "history").exists()
    change(sample.storage, 1)
    export(uri(fleet), tmp_path / "cluster")
    expected = [row for row in direct(sample.storage, "changes") if row["tid"] > tid]
    assert exported(tmp_path / "cluster", "changes") == expected


def test_an_increment_that_would_leave_a_gap_is_refused(
    sample: Sample, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    export(copied, out)
    assert "would leave out what is after" in refused(capsys, copied, out, "--since", LATER)
    assert "later than the last" in refused(capsys, copied, tmp_path / "o", "--since", LATER)
    assert "an increment has the same" in refused(capsys, copied, out, "--columns", "oid,data")
    assert "no column 'wrong'" in refused(capsys, copied, out, "--columns", "oid,wrong")


def test_another_source_is_refused(
    sample: Sample, fleet: Fleet, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    export(copied, tmp_path / "out")
    assert "has 16 partitions" in refused(capsys, uri(fleet), tmp_path / "out")
    other = tmp_path / "other.fs"
    with closing(FileStorage(str(other))) as storage:
        assert "truncated" in refused(capsys, other, tmp_path / "out")
        DB(storage)
    assert "is not in the source" in refused(capsys, other, tmp_path / "out")
    assert "no storage" in refused(capsys, tmp_path / "nothing.fs", tmp_path / "out")
