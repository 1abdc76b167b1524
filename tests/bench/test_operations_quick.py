"""The benchmark of operations, at its smallest size."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.operations import main


def test_every_figure_is_there(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    assert main(["--quick", "--backends", "sqlite", "--json", str(result)]) == 0
    (rows,) = json.loads(result.read_text()).values()
    figures = {f"{row['title']}, {row['unit']}": row["value"] for row in rows}
    for title in ("neoctl backup", "cp of all databases", "repozo of a FileStorage"):
        assert figures[f"full copy: {title}, MB/s"] > 0
    for after in ("10% of the objects changed", "10% changed, and a pack"):
        assert 0 < figures[f"… increment after {after}, bytes, % of full"] < 50
    for when in ("without an operation", "during a full copy", "while a node is replaced"):
        assert figures[f"{when}: 4 clients, commits/s"] > 0
        assert 0 < figures[f"commit {when}, p50, ms"] <= figures[f"commit {when}, p99, ms"]
