"""The benchmark of replication, at its smallest size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import replication
from tests.bench.clients import ClientFailed
from tests.bench.replication import Row, Sample, Window, main


def test_every_figure_is_there(tmp_path: Path) -> None:
    result, table = tmp_path / "result.json", tmp_path / "table.md"
    options = ["--quick", "--backends", "sqlite"]
    assert main([*options, "--json", str(result), "--markdown", str(table)]) == 0
    found = json.loads(result.read_text())
    assert list(found) == ["sqlite"]
    for rows in found.values():
        by_title = {f"{row['title']}, {row['unit']}": row["value"] for row in rows}
        for what in ("while no client works", "while clients work"):
            assert by_title[f"copied {what}, MB/s"] > 0
        for kind in ("commit", "load"):
            for when in ("without replicas", "with a replica"):
                p50, p99 = (by_title[f"{kind} {when}, {p}, ms"] for p in ("p50", "p99"))
                assert 0 < p50 <= p99
        assert by_title["catching up after 0.5 s away, s"] > 0
        assert by_title["packed while clients work, revisions/s"] > 0
        assert by_title["… transactions missed after 0.5 s away, "] > 0
    assert "| commit with a replica, p50, ms |" in table.read_text()


def test_only_what_began_in_a_window_counts_for_it() -> None:
    window = Window()
    window.begin, window.end = 10.0, 20.0
    samples = [Sample(9.9, 5.0), Sample(10.0, 0.001), Sample(19.9, 0.003), Sample(20.0, 5.0)]
    assert list(window.rows("then", "load", samples)) == [
        Row("load then, p50", "ms", 2.0),
        Row("load then, p99", "ms", 3.0),
    ]


def test_a_wait_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "SECONDS_MAX", 0.05)
    with pytest.raises(ClientFailed, match="the moon"):
        replication.wait(lambda: False, "the moon")
