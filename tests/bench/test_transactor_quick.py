"""The benchmark of the transactor works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.transactor import main


def test_it_measures_with_and_without_delay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    options = ["--peers", "3", "--delays", "0,20", "--decisions", "20", "--json", str(path)]
    assert main(options) == 0
    near, far = json.loads(path.read_text())
    assert (near["peers"], near["delay"], far["delay"]) == (3, 0, 20)
    assert far["median_ms"] > 40  # there and back
    assert near["packets_per_peer"] > 2
    assert capsys.readouterr().out.count("\n") == 4
