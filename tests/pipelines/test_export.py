"""neoexport: the tables that Spark reads from NEO, as files; as they were after each export."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
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

from neo.client.scan import Scanner
from neo.demo.stdlib import find_modules, load_library, standard_library
from neo.export import folder, main, plan, reader, spill, tables
from neo.export.plan import DEFAULT_COLUMNS
from neo.migrate import copy_from
from neo.protocol.ids import ZERO_TID
from neo.spark.reading import Query, read
from neo.spark.tables import TABLES, columns_of
from tests.pipelines.conftest import ROOT
from tests.pipelines.sample import Document, Sample
from tests.zodb.fleet import NAME, Fleet

#: A tid of the year 5980.
LATER = "7fffffffffffff00"
Capture = pytest.CaptureFixture[str]
Rows = list[dict[str, Any]]
#: Of revisions, what an export has by default, and all that is possible.
ALL = [column.name for column in TABLES["objects"]]


def exported(folder: Path, table: str) -> Rows:
    """Sorted rows of a table, as any reader of Parquet finds them."""
    found: Rows = pq.read_table(folder / table).to_pylist()
    return ordered(found)


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def direct(storage: Any, table: str, last: int | None = None, columns: Any = None) -> Rows:
    """What Spark's reader gives for a cluster, with the columns of an export."""
    scanner = Scanner(storage)
    left_out = set(ALL).difference(columns or DEFAULT_COLUMNS)
    names = [column.name for column in TABLES[table] if column.name not in left_out]
    last = last or u64(scanner.last_tid())
    query = Query(table, columns_of(table, names), last, packed=scanner.packed())
    batches = [b for p in range(scanner.partitions) for b in read(scanner, query, p)]
    return ordered([row for batch in batches for row in batch.to_pylist()])


def same_as_cluster(folder: Path, storage: Any, columns: Any = None) -> None:
    for table in TABLES:
        assert exported(folder, table) == direct(storage, table, columns=columns), table


def uri(fleet: Fleet) -> str:
    return f"neo://{NAME}@{fleet.masters}"


def export(source: object, folder: Path, *options: str) -> None:
    """In this process: with --jobs, others are started, which takes a second."""
    common = [str(source), "--parquet", str(folder), "--quiet", "--jobs", "1"]
    assert main([*common, *options]) == 0


@pytest.fixture
def copied(sample: Sample, tmp_path: Path) -> Path:
    """The sample in a FileStorage, with the same tids."""
    path = tmp_path / "copied.fs"
    copy_into(sample.storage, path)
    return path


def copy_into(source: Any, path: Path) -> None:
    with closing(FileStorage(str(path))) as file:
        last = file.lastTransaction()
        start = ZERO_TID if last == ZERO_TID else p64(u64(last) + 1)
        for _ in copy_from(start, source, file):
            pass


def without(rows: Rows, *columns: str) -> Rows:
    return ordered([{k: v for k, v in row.items() if k not in columns} for row in rows])


def change(storage: Any, number: int) -> None:
    """Documents written, made and made no more, in three transactions."""
    db = DB(storage)
    with db.transaction(f"change {number}") as connection:
        folder = connection.root()["folder"]
        for key in list(folder.documents)[:: 5 + number]:
            folder.documents[key].number += 1
        connection.root()[f"new {number}"] = Document(number)
    with db.transaction("soon undone") as connection:
        connection.root()["mistake"] = Document(998)
    with db.transaction("its undo") as connection:
        db.undo(db.undoLog(0, 1)[0]["id"], connection.transaction_manager.get())


# -- what is exported ----------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_cluster(sample: Sample, fleet: Fleet, tmp_path: Path, jobs: str) -> None:
    export(uri(fleet), tmp_path / "out", "--jobs", jobs)
    same_as_cluster(tmp_path / "out", sample.storage)


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
    monkeypatch.setattr(Scanner, "_node_knows_pages", lambda self, nid: False)
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
    assert "an object 0x8000000000000000" in refused(capsys, copied, tmp_path / "out")


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


def refused(capsys: Capture, source: object, folder: Path, *options: str) -> str:
    capsys.readouterr()
    assert main([str(source), "--parquet", str(folder), "--quiet", *options]) == 1
    return capsys.readouterr().err


def test_an_increment_that_would_leave_a_gap_is_refused(
    sample: Sample, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    export(copied, out)
    assert "would leave out what is after" in refused(capsys, copied, out, "--since", LATER)
    assert "later than the last" in refused(capsys, copied, tmp_path / "o", "--since", LATER)
    assert "an increment the same" in refused(capsys, copied, out, "--columns", "oid,data")
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


# -- packs ---------------------------------------------------------------------------------------


def pack(storage: Any) -> None:
    storage.pack(time.time() + 1, referencesf, gc=False)


def test_a_pack_between_exports_is_refused_and_full_starts_anew(
    sample: Sample, fleet: Fleet, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    file, cluster = tmp_path / "file", tmp_path / "cluster"
    for source, out in ((copied, file), (uri(fleet), cluster)):
        export(source, out)
    change(sample.storage, 1)
    copy_into(sample.storage, copied)
    pack(sample.storage)
    with closing(FileStorage(str(copied))) as storage:
        pack(storage)
    for source, out in ((copied, file), (uri(fleet), cluster)):
        before = {table: exported(out, table) for table in TABLES}
        assert "start anew with --full" in refused(capsys, source, out)
        assert before == {table: exported(out, table) for table in TABLES}
        export(source, out, "--full")
    same_as_cluster(cluster, sample.storage)
    current = {row["oid"] for row in exported(file, "objects")}
    with closing(FileStorage(str(copied), read_only=True)) as storage:
        left = {u64(r.oid) for t in storage.iterator() for r in t if r.data is not None}
    assert current == left


def test_increments_go_on_after_a_pack_of_what_was_exported(
    sample: Sample, fleet: Fleet, copied: Path, tmp_path: Path
) -> None:
    """The export keeps what the pack removed."""
    out = tmp_path / "out"
    export(uri(fleet), out)
    before = exported(out, "history")
    seconds = exported(out, "transactions")[3]["timestamp"].timestamp()
    sample.storage.pack(seconds, referencesf, gc=False)
    change(sample.storage, 1)
    export(uri(fleet), out)
    kept = {(row["oid"], row["tid"]) for row in exported(out, "history")}
    assert kept >= {(row["oid"], row["tid"]) for row in before}
    assert exported(out, "objects") == direct(sample.storage, "objects")
    assert exported(out, "references") == direct(sample.storage, "references")


def test_a_pack_while_a_cluster_is_exported_is_noticed(
    sample: Sample, fleet: Fleet, tmp_path: Path, capsys: Capture
) -> None:
    """It may remove what was current at the transaction as of which is exported."""
    out = folder.Folder(tmp_path / "out")
    begun = plan.make_plan(sample.storage, None)
    assert begun is not None
    with out.locked():
        out.recover()
        out.begin(begun)
    change(sample.storage, 1)
    pack(sample.storage)
    assert "packed since the last export, or during" in refused(capsys, uri(fleet), out.path)
    assert not (out.path / "objects").exists()
    export(uri(fleet), out.path, "--full")
    same_as_cluster(out.path, sample.storage)


def test_a_pack_between_a_kill_and_its_resumption_is_noticed(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(spill, "RUN_BYTES", 10_000)
    monkeypatch.setattr(plan, "GROUPS", 2)
    out, moment = tmp_path / "out", 0
    progress = out / "unfinished" / "_runs" / "progress.json"
    while not progress.exists():
        moment += 1
        shutil.rmtree(out, ignore_errors=True)
        assert killed_at(moment, copied, out, monkeypatch)
    with closing(FileStorage(str(copied))) as storage:
        pack(storage)
    assert "start anew with --full" in refused(capsys, copied, out)
    export(copied, out, "--full")
    export(copied, tmp_path / "whole")
    for table in TABLES:
        assert exported(out, table) == exported(tmp_path / "whole", table)


# -- what readers see ----------------------------------------------------------------------------


def test_a_reader_of_a_snapshot_keeps_it_while_the_next_one_is_made(
    copied: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(copied, out)
    kept = out / os.readlink(out / "current")
    before = {table: exported(kept, table) for table in TABLES}
    names = [path.name for path in (out / "history").iterdir()]
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 0)
    export(copied, out)
    assert {table: exported(kept, table) for table in TABLES} == before
    # Who listed the files before and opens them now finds none of another snapshot.
    assert not any((out / "history" / name).exists() for name in names)
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 1)
    export(copied, out)
    assert not kept.exists()
    assert len(list((out / "snapshots").iterdir())) == 2


def test_two_exports_at_once_are_refused(copied: Path, tmp_path: Path, capsys: Capture) -> None:
    with folder.Folder(tmp_path / "out").locked():
        assert "another neoexport writes" in refused(capsys, copied, tmp_path / "out")


def test_a_folder_of_something_else_is_refused(
    copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    export(copied, tmp_path / "out")
    (tmp_path / "out/current/manifest.json").write_text("{}")
    assert "is no manifest of an export" in refused(capsys, copied, tmp_path / "out")


# -- kills ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Takes the place of a signal: nothing of what comes after it is done."""


#: All that changes what is on disk, besides the bytes of files with temporary names.
MOMENTS = ("fsync", "rename", "replace", "link", "symlink", "unlink", "mkdir", "rmdir")


def killed_at(number: int, source: Path, folder: Path, patch: pytest.MonkeyPatch) -> bool:
    """Whether an export was killed at a moment; False if it ended before."""
    left = number

    def dying(do: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return do(*arguments, **options)

        return call

    with patch.context() as context:
        for name in MOMENTS:
            context.setattr(os, name, dying(getattr(os, name)))
        try:
            export(source, folder)
        except Killed:
            return True
    return False


def test_an_export_killed_at_any_moment_goes_on_and_readers_see_all_or_nothing(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "RUN_BYTES", 10_000)
    monkeypatch.setattr(plan, "GROUPS", 2)
    base, whole = tmp_path / "base", tmp_path / "whole"
    export(copied, base)
    before = {table: exported(base, table) for table in TABLES}
    with closing(FileStorage(str(copied))) as storage:
        change(storage, 0)
    export(copied, whole)
    after = {table: exported(whole, table) for table in TABLES}
    moment = 0
    while True:
        out = tmp_path / f"out {moment}"
        shutil.copytree(base, out, symlinks=True)
        if not killed_at(moment, copied, out, monkeypatch):
            break
        assert {table: exported(out, table) for table in TABLES} in (before, after)
        export(copied, out)
        assert {table: exported(out, table) for table in TABLES} == after
        left = {path.name for path in out.iterdir()} - {".lock", "current", "snapshots"}
        assert left == set(TABLES)
        shutil.rmtree(out)
        moment += 2
    assert moment > 40


def children(pid: int) -> list[int]:
    """The processes that work for another one; it also has one that watches over its resources."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [n for n in found if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def test_kill_9_of_the_command_ends_its_processes_and_costs_only_what_they_were_at(
    tmp_path: Path,
) -> None:
    path, out = tmp_path / "many.fs", tmp_path / "out"
    with closing(DB(FileStorage(str(path)))) as db, db.transaction() as connection:
        for number in range(8_000):
            connection.root()[number] = Document(number)
    arguments = [sys.executable, "-m", "neo.export", str(path), "--parquet", str(out), "--quiet"]
    changes = out / "unfinished" / "changes"

    def started(files: int) -> tuple[subprocess.Popen[str], list[int]]:
        """The command and its processes, when so many files are finished."""
        process = subprocess.Popen(
            [*arguments, "--jobs", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        until(lambda: len(list(changes.glob("0*"))) >= files, "no file was finished")
        return process, children(process.pid)

    process, workers = started(1)
    os.kill(workers[0], signal.SIGKILL)
    assert "a process ended with code -9" in process.communicate()[1]
    assert process.returncode == 1
    process, workers = started(len(list(changes.glob("0*"))) + 1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert workers and not (out / "current").exists()
    until(lambda: not any(map(alive, workers)), "processes outlive the command")
    finished = {path.name: path.stat().st_ino for path in changes.glob("0*")}
    assert 0 < len(finished) < 16
    export(path, out)
    for name, inode in finished.items():
        assert (out / "changes" / name).stat().st_ino == inode
    export(path, tmp_path / "whole")
    for table in TABLES:
        assert exported(out, table) == exported(tmp_path / "whole", table)


def alive(pid: int) -> bool:
    """Zombies of other parents count as gone."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
