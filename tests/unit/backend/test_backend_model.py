"""Any sequence of operations on a backend gives what a few dictionaries give."""

from __future__ import annotations

import pytest

from tests.unit.backend.harness import Harness
from tests.unit.backend.model import run_machine


@pytest.mark.parametrize("dedup", [False, True], ids=["plain", "dedup"])
def test_a_backend_behaves_as_the_model(node: Harness, dedup: bool) -> None:
    run_machine(node, dedup, {"SQLite": 60, "MySQL": 12}[node.adapter])
