"""The benchmark of growing clusters, at its smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.scale import growing, large, main

Capture = pytest.CaptureFixture[str]


def test_rates_say_which_process_works(tmp_path: Path) -> None:
    rates = list(growing(tmp_path, [2], [2], 0.2, 200))
    assert [(rate.what, rate.storages, rate.clients) for rate in rates] == [
        ("load", 2, 2),
        ("commit", 2, 2),
    ]
    for rate in rates:
        assert rate.per_s > 0
        assert list(rate.micros) == ["clients", "master", "storage"]
        assert rate.micros["clients"] > 0


def test_each_size_has_each_figure_however_it_is_filled(tmp_path: Path) -> None:
    rows = list(large(tmp_path, [200, 300], 300))
    by_client = [row.title for row in rows if row.objects == 200]
    by_bulk = [row.title for row in rows if row.objects == 300]
    assert (by_client[0], by_bulk[0]) == ("written", "written to the databases")
    assert len(by_client) == len(by_bulk) == 10
    assert all(row.value > 0 for row in rows)


def test_a_line_comes_as_soon_as_it_is_known(capsys: Capture) -> None:
    options = ["--storages", "1", "--clients", "1", "--seconds", "0.1", "--population", "100"]
    assert main(["nodes", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["load", "commit"]
