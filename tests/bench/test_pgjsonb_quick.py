"""A storage that another interpreter measures: the driver's side, on a real server, with a storage of one
file in its place."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.pgjsonb import VARIABLE, PGJsonb
from tests.bench.report import Report
from tests.bench.runner import run
from tests.bench.sizes import QUICK

TINY = replace(QUICK, loads=20, commits=10, clients=2, commit_seconds=0.1)

_STORAGE = """
import psycopg
from ZODB.FileStorage import FileStorage

def PGJsonbStorage(dsn, history_preserving):
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert history_preserving
    return FileStorage({path!r})
"""


def measured(workloads: list[str]) -> Report:
    return run({"pgjsonb": PGJsonb}, 1, TINY, workloads, lambda text: None)


def test_another_interpreter_measures_in_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "zodb_pgjsonb"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "storage.py").write_text(_STORAGE.format(path=str(tmp_path / "Data.fs")))
    distribution = tmp_path / "zodb_pgjsonb-9.9.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: zodb-pgjsonb\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(VARIABLE, sys.executable)
    report = measured(["cold_load", "commit", "disjoint"])
    found = {each["name"]: each["systems"]["pgjsonb"] for each in report.to_json()["figures"]}
    assert all(found[name]["median"] > 0 for name in ("cold_load_p50", "commit_p99", "disjoint_1"))
    # Two processes cannot open that file.
    assert "LockError" in found["disjoint_many"]["error"]
    assert report.to_json()["systems"]["pgjsonb"]["note"].startswith("9.9, Python 3.")


def test_without_that_interpreter_the_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "python"))
    report = measured(["cold_load", "commit"])
    for figure in report.to_json()["figures"]:
        assert "not available" in figure["systems"]["pgjsonb"]["not_applicable"]
    assert report.errors(["pgjsonb"]) == []
