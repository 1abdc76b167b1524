"""Any sequence of operations on a backend gives what a few dictionaries give."""

from __future__ import annotations

import pytest

from tests.unit.backend.harness import Harness
from tests.unit.backend.model import run_machine


@pytest.mark.parametrize("dedup", [False, True], ids=["plain", "dedup"])
def test_sqlite_behaves_as_the_model(sqlite: Harness, dedup: bool) -> None:
    run_machine(sqlite, dedup, 60)


@pytest.mark.parametrize("dedup", [False, True], ids=["plain", "dedup"])
def test_mariadb_behaves_as_the_model(mariadb: Harness, dedup: bool) -> None:
    run_machine(mariadb, dedup, 12)
