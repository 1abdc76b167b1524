"""How many calls of functions of this project a load and a commit cost, on any machine."""

from __future__ import annotations

import os
import threading
from math import inf

import pytest

from neo.storage.backend.sqlite import wal_sync
from tests.bench.calls import Counts, count, statements, total
from tests.bench.system_calls import Cost, Part, parse, processor_seconds
from tests.support.patience import wait_until

#: Upper bounds, by operation, of all processes together. Lower them when fewer steps are taken. A machine
#: that does nothing else takes most: on others messages come together.
LOAD_CALLS_MAX = 70
COMMIT_CALLS_MAX = 520
#: Statements of SQL of the storage node.
LOAD_STATEMENTS_MAX = 1.1
COMMIT_STATEMENTS_MAX = 13.1


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counts]:
    with pytest.MonkeyPatch.context() as patch:
        # On any disk the loop's thread syncs: another one for the same sync takes more calls.
        patch.setattr(wal_sync, "QUICK_SECONDS", inf)
        return count(tmp_path_factory.mktemp("calls"))


def test_a_cold_load(counted: dict[str, Counts]) -> None:
    load = counted["load"]
    assert load["storage"]["storage/serving/client.py:ServeClient.object"] == 1
    assert total(load, "client", "storage") <= LOAD_CALLS_MAX, load
    assert 1 <= statements(load, "storage") <= LOAD_STATEMENTS_MAX
    assert total(load, "master") < 1, "a load asks the master nothing"


def test_a_commit_of_one_object(counted: dict[str, Counts]) -> None:
    commit = counted["commit"]
    assert commit["storage"]["storage/commit/locks.py:Locks.lock"] == 1
    assert total(commit, "client", "master", "storage") <= COMMIT_CALLS_MAX, commit
    assert 0 < statements(commit, "storage") <= COMMIT_STATEMENTS_MAX, commit["storage"]


def test_the_table_of_strace_is_read_with_and_without_errors_of_calls() -> None:
    calls = parse(
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        " 60.00    0.000300           3       100        12 futex\n"
        " 40.00    0.000200           2        50           fdatasync\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        "100.00    0.000500           3       150        12 total\n"
    )
    assert calls == {"futex": 100, "fdatasync": 50}
    cost = Cost(1.0, calls, 0.0)
    assert (cost.calls, cost.syncs, cost.most()) == (150, 50, "futex 100.0, fdatasync 50.0")


def test_processor_time_of_all_threads_is_counted() -> None:
    before = processor_seconds(Part(os.getpid()))
    worker = threading.Thread(target=_work_until, args=(done := threading.Event(),))
    worker.start()
    try:
        wait_until(lambda: processor_seconds(Part(os.getpid())) - before > 0.1, "a thread has worked")
    finally:
        done.set()
        worker.join()


def _work_until(done: threading.Event) -> None:
    while not done.is_set():
        sum(range(1000))
