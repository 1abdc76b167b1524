"""Increments of what was packed between them."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
from ZODB.utils import u64

from neo.export import folder, plan, spill
from neo.spark.tables import TABLES
from tests.pipelines.exporting import (
    Capture,
    change,
    copy_into,
    direct,
    export,
    exported,
    killed_at,
    refused,
    same_as_cluster,
    uri,
)
from tests.pipelines.sample import Sample
from tests.zodb.fleet import Fleet


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
