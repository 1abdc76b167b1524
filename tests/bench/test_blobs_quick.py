"""The benchmark of blobs, at its smallest size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench import blobs
from tests.bench.blob_systems import SYSTEMS, FileStorageBlobs
from tests.bench.blobs import KINDS, WORKLOADS, main
from tests.bench.clients import ClientFailed
from tests.bench.runner import Suite, run
from tests.bench.sizes import QUICK

TINY = replace(QUICK, objects=40, blobs=4, blob_batch=2, upload_mib=1, upload_seconds=0.1,
               blob_huge_mib=2, echoes=20, syncs=5)  # fmt: skip


def silent(text: str) -> None:
    """Drop progress messages."""


def test_every_figure_is_there() -> None:
    chosen = {name: SYSTEMS[name] for name in ("filestorage", "zeo", "neo-sqlite")}
    report = run(chosen, 1, TINY, list(WORKLOADS), silent, Suite(WORKLOADS, KINDS))
    assert report.errors(SYSTEMS) == []
    found = report.to_json()
    cells = {figure["name"]: figure["systems"] for figure in found["figures"]}
    assert list(cells) == [kind.name for kind in KINDS]
    for name, by_system in cells.items():
        for system in ("zeo", "neo-sqlite"):
            median = by_system[system]["median"]
            assert median >= 0 if name.endswith("_mb") else median > 0, (name, system)
        if name in [kind.name for kind in KINDS if kind.workload == "upload"]:
            assert by_system["filestorage"]["not_applicable"], name
    processes = {(row["system"], row["process"]) for row in found["memory_mb"]}
    assert {("zeo", "runzeo"), ("neo-sqlite", "storage1"), ("filestorage", "client")} <= processes
    assert "store one blob of 2 MiB, MB/s" in report.markdown()


def test_a_blob_with_another_content_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = FileStorageBlobs()
    system.start(tmp_path)
    write = blobs._write

    def writes_less(connection: Any, number: int, size: int) -> bytes:
        return write(connection, number, size - (number == 1))

    monkeypatch.setattr(blobs, "_write", writes_less)
    with pytest.raises(ClientFailed, match="blob 1 of 10240 bytes was read with another content"):
        list(blobs.small(system, TINY, tmp_path))


def test_the_command_writes_its_tables(tmp_path: Path) -> None:
    result, tables = tmp_path / "result.json", tmp_path / "tables.md"
    options = ["--quick", "--systems", "filestorage", "--only", "huge"]
    assert main([*options, "--json", str(result), "--markdown", str(tables)]) == 0
    names = [figure["name"] for figure in json.loads(result.read_text())["figures"]]
    assert names == ["huge_store", "huge_store_client_mb", "huge_read", "huge_read_client_mb"]
    assert "| store one blob of 8 MiB, MB/s |" in tables.read_text()
