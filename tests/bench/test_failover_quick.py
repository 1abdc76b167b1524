"""The benchmark of failovers works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.failover import FOLLOWERS, main


@pytest.mark.timeout(300)
def test_it_measures_each_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    assert main(["--rounds", "1", "--ways", "kill -9,hand over", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert list(found) == ["kill -9", "hand over"]
    for who in FOLLOWERS:
        assert 1 < found["kill -9"][who][0] < 30  # the wait for the lease of the lost primary
    assert found["hand over"]["applications"][0] < found["kill -9"]["applications"][0]
    assert capsys.readouterr().out.count("\n") == 4
