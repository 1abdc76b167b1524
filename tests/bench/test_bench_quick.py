"""The benchmark driver at its smallest size reports all figures, and survives failures."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench import clients, workloads
from tests.bench.__main__ import main
from tests.bench.figures import KINDS, Figure, Memory
from tests.bench.report import Report
from tests.bench.runner import run
from tests.bench.sizes import QUICK
from tests.bench.systems import FileStorageSystem, System, SystemFailed, ZEOSystem
from tests.bench.workloads import WORKLOADS, Results

TINY = replace(QUICK, imported=20, objects=40, loads=20, commits=10, commit_seconds=0.1,
               stored=50, big_mb=2, prefetched=20, threads=2, clients=2)  # fmt: skip
SERVERLESS = {kind.name for kind in KINDS if kind.name.endswith("_server_mb")}


class Broken(FileStorageSystem):
    title = "Broken"

    def start(self, folder: Path) -> None:
        raise SystemFailed("no such luck")


def silent(text: str) -> None:
    """Drop progress messages."""


def figures(report: Report) -> dict[str, dict[str, Any]]:
    """Return the cells by figure and system, as another program would read them from the file."""
    found = json.loads(json.dumps(report.to_json()))
    return {figure["name"]: figure["systems"] for figure in found["figures"]}


def test_a_run_over_three_systems_reports_every_figure_and_the_one_that_broke() -> None:
    systems = {"filestorage": FileStorageSystem, "zeo": ZEOSystem, "broken": Broken}
    report = run(systems, 1, TINY, list(WORKLOADS), silent)

    found = figures(report)
    assert list(found) == [kind.name for kind in KINDS]
    for name, cells in found.items():
        assert cells["zeo"]["error"] is None
        assert cells["zeo"]["median"] >= 0 if name.endswith("_mb") else cells["zeo"]["median"] > 0
        assert not cells["zeo"]["partial"]
        assert cells["broken"]["error"] == "SystemFailed: no such luck"
        assert cells["broken"]["median"] is None
        if cells["zeo"]["median"]:
            assert cells["zeo"]["to_reference"] == 1.0
        filestorage = cells["filestorage"]
        assert filestorage["error"] is None
        if name in ("disjoint_many", "counter_many"):
            assert filestorage["not_applicable"] == "only one process can open a FileStorage"
        elif name not in SERVERLESS:
            assert filestorage["median"] is not None
    assert found["cold_load_p50"]["filestorage"]["to_reference"] < 1.0  # no socket in between
    processes = {
        (entry["system"], entry["process"])
        for entry in report.to_json()["memory_mb"]
        if entry["work"] == "big_transaction"
    }
    assert processes == {("filestorage", "client"), ("zeo", "client"), ("zeo", "runzeo")}
    assert report.to_json()["floor"]["echo_us"]["median"] > 0
    text = report.markdown()
    assert "SystemFailed: no such luck" in text and "one object of 2 MB, write, MB/s" in text


def test_ratios_are_of_medians_and_rates_are_compared_with_the_floors_rate() -> None:
    report = Report(["neo", "zeo"], TINY, 3)
    for system, values in (("neo", (10.0, 50.0, 900.0)), ("zeo", (100.0, 200.0, 300.0))):
        for value in values:
            report.add(system, Figure("cold_load_p50", value))
            report.add(system, Figure("loads_1", value))
    for value in (20.0, 25.0, 99.0):
        report.add_floor({"echo_us": value})
    found = figures(report)
    assert found["cold_load_p50"]["neo"]["median"] == 50.0
    assert found["cold_load_p50"]["neo"]["to_reference"] == 0.25
    assert found["cold_load_p50"]["neo"]["to_floor"] == 2.0
    assert found["loads_1"]["zeo"]["to_floor"] == 200.0 / 40_000


def test_a_run_without_zeo_has_no_ratios_to_it() -> None:
    report = Report(["neo"], TINY, 1)
    report.add("neo", Figure("prefetch_ms", 3.0))
    cell = figures(report)["prefetch_ms"]["neo"]
    assert (cell["median"], cell["to_reference"], cell["to_floor"]) == (3.0, None, None)


def test_partial_and_failed_figures_are_marked_in_the_table() -> None:
    report = Report(["neo", "zeo"], TINY, 1)
    report.add("zeo", Figure("prefetch_ms", 4.0, partial=True))
    report.add_memory("zeo", Memory("big_transaction", {"client": 1.5}))
    report.failed("neo", "prefetch", "ClientFailed:\nno | answer", set())
    text = report.markdown()
    assert "| failed [1] | 4.00 [2] |" in text
    assert "| [1] | ClientFailed: no \\| answer |" in text
    assert "| [2] | the time limit ended the work" in text
    assert report.errors(["zeo"]) == []
    assert report.errors(["neo"]) == ["prefetch_ms, neo: ClientFailed:\nno | answer"]


def test_a_failed_workload_keeps_its_first_figures_and_the_next_gets_a_fresh_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = []

    def breaks(system: System, sizes: Any, source: Path) -> Results:
        yield Figure("commit_p50", 7.0)
        raise clients.ClientFailed("it broke in the middle")

    def works(system: System, sizes: Any, source: Path) -> Results:
        assert isinstance(system, FileStorageSystem)
        folders.append(system._path)
        yield Figure("prefetch_ms", 8.0)

    monkeypatch.setattr("tests.bench.runner.WORKLOADS", {"commit": breaks, "prefetch": works})
    report = run({"filestorage": FileStorageSystem}, 1, TINY, ["commit", "prefetch"], silent)
    found = figures(report)
    assert found["commit_p50"]["filestorage"]["median"] == 7.0
    assert found["commit_p50"]["filestorage"]["error"] is None
    assert found["commit_p99"]["filestorage"]["error"] == "it broke in the middle"
    assert found["prefetch_ms"]["filestorage"]["median"] == 8.0
    assert [path.parent.name for path in folders] == ["2"]


def test_a_time_limit_gives_partial_results(tmp_path: Path) -> None:
    system = FileStorageSystem()
    system.start(tmp_path)
    late = replace(TINY, seconds=0.0)
    found = list(workloads.commits(system, late, tmp_path))
    assert [type(figure) for figure in found] == [Figure, Figure]
    assert all(figure.partial for figure in found if isinstance(figure, Figure))


def test_a_client_that_hangs_is_killed_and_one_that_raises_ends_the_others() -> None:
    with pytest.raises(clients.ClientFailed, match="no result within 0 s"):
        clients.run(threading.Event().wait, 0.2)

    def work(index: int, ready: clients.Ready) -> None:
        if index == 1:
            raise ValueError("my own error")
        ready()

    with pytest.raises(clients.ClientFailed, match="ValueError: my own error"):
        clients.run_many(3, work, 60)


def test_the_peak_memory_of_a_process_is_what_it_rose_above_idle() -> None:
    def rise() -> float:
        import mmap
        import os

        memory = clients.PeakMemory({"client": os.getpid()})
        # Not from the heap, where memory of other tests may be free.
        with mmap.mmap(-1, 50_000_000) as held:
            for place in range(0, len(held), mmap.PAGESIZE):
                held[place] = 1
        return memory.rise()["client"]

    assert 49 < clients.run(rise, 60) < 60


def test_an_unknown_system_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--systems", "zeo,gadfly"])
    assert stop.value.code == 2
    assert "'gadfly' is none of filestorage, zeo" in capsys.readouterr().err
