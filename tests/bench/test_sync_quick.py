"""The benchmark of synchronous backups, at its smallest size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.sync import WAYS, Rows, Sizes, crowd_table, latency_table, main, think_table


@pytest.mark.timeout(300)
def test_every_figure_is_there(tmp_path: Path) -> None:
    result, tables = tmp_path / "result.json", tmp_path / "tables.md"
    assert main(["--quick", "--json", str(result), "--markdown", str(tables)]) == 0
    rows = json.loads(result.read_text())["rows"]
    far, alone = "synchronous, 10 ms", "without a backup"
    assert list(rows["commit"]) == [way.title for way in WAYS]
    assert 10 < rows["round trip"][far][0] < 100
    for name in ("vote", "finish"):
        assert rows[name][far][0] > max(10, rows[name][alone][0])
    assert rows["4"][alone][0] > rows["4"][far][0] > 0
    assert rows["only commit"][alone][0] > rows["think"][alone][0] > 0
    assert list(rows["think"]) == [way.title for way in WAYS]
    assert "| finish: more than without a backup, ms | – |" in tables.read_text()


def test_what_is_more_is_counted_in_round_trips() -> None:
    milliseconds = {
        "round trip": {"synchronous, 0 ms": 0.2, "synchronous, 2 ms": 2.0, "synchronous, 10 ms": 10.0},
        "commit": {},
        "vote": {"without a backup": 1.0, "synchronous, 10 ms": 12.0},
        "finish": {"without a backup": 1.0, "synchronous, 2 ms": 6.0},
    }
    rows: Rows = {
        name: {way.title: [values.get(way.title, 5.0)] for way in WAYS}
        for name, values in milliseconds.items()
    }
    lines = {line[0]: line[1:] for line in latency_table(rows)[-3:]}
    assert lines == {
        "finish: more than without a backup, ms": ["–", "4.00", "5.00", "4.00", "–"],
        "… in round trips": ["–", "–", "2.50", "0.40", "–"],
        "… without one round trip, ms": ["–", "3.80", "3.00", "-6.00", "–"],
    }


def test_ratios_are_those_of_each_round() -> None:
    rows: Rows = {
        "8": {
            "without a backup": [800.0, 400.0, 800.0],
            "synchronous, 10 ms": [200.0, 200.0, 80.0],
            "asynchronous, 10 ms": [800.0, 400.0, 400.0],
        }
    }
    line = crowd_table(rows, (8,))[1]
    assert line == ["8", "800", "10.00", "0.25 (0.10 to 0.50)", "1.00 (0.50 to 1.00)", "0.33"]


def test_other_work_makes_the_ratio_better() -> None:
    rates = {
        "only commit": [800.0, 400.0, 200.0, 200.0, 760.0],
        "think": [100.0, 100.0, 95.0, 80.0, 100.0],
    }
    rows: Rows = {
        name: {way.title: [value] for way, value in zip(WAYS, values, strict=True)}
        for name, values in rates.items()
    }
    lines = think_table(rows, Sizes())
    assert lines[1:] == [
        ["8 clients that only commit: commits/s", "800", "400", "200", "200", "760"],
        ["… ratio", "–", "0.50", "0.25", "0.25", "0.95"],
        ["… bound with 2 round trips", "–", "1.00", "0.71", "0.33", "–"],
        [
            "8 clients that do other work for 50 ms after each commit: commits/s",
            *("100", "100", "95", "80", "100"),
        ],
        ["… ratio", "–", "1.00", "0.95", "0.80", "1.00"],
        ["… bound with 2 round trips", "–", "1.00", "0.95", "0.80", "–"],
    ]
