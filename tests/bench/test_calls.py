"""How many calls of functions of this project a load and a commit cost, on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.calls import Counts, count, total

#: Upper bounds, by operation, of all processes together. Lower them when fewer steps are taken.
LOAD_CALLS_MAX = 70
COMMIT_CALLS_MAX = 502


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counts]:
    folder: Path = tmp_path_factory.mktemp("calls")
    return count(folder)


def test_a_cold_load(counted: dict[str, Counts]) -> None:
    load = counted["load"]
    assert load["storage"]["storage/serving/client.py:ServeClient.object"] == 1
    assert total(load, "client", "storage") <= LOAD_CALLS_MAX, load
    assert total(load, "master") < 1, "a load asks the master nothing"


def test_a_commit_of_one_object(counted: dict[str, Counts]) -> None:
    commit = counted["commit"]
    assert commit["storage"]["storage/commit/locks.py:Locks.lock"] == 1
    assert total(commit, "client", "master", "storage") <= COMMIT_CALLS_MAX, commit
