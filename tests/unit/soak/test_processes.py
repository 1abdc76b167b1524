"""Rounds as real processes, and the command as a user runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.soak.processes import End, Processes, forget
from tests.soak.scheduler import Round
from tests.soak.search import ROOT, Command
from tests.support.patience import wait_until
from tests.unit.soak.virtual import a_search

CHILD = re.compile(r"^child (\d+)$", re.M)
ROUND = Round(a_search("real"), 0, 0.0)
#: A process that has a child in a session of its own, as nodes of a cluster are, and never ends.
STUCK = """
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
print("child", child.pid, flush=True)
def forever():
    threading.Event().wait()
forever()
"""


def run(machine: Processes, script: str, **environment: str) -> None:
    machine.start(ROUND, Command((sys.executable, "-c", script), environment))


def end_of(machine: Processes) -> End:
    ended: dict[Round, End] = {}

    def has_ended() -> bool:
        ended.update(machine.ended())
        return ROUND in ended

    wait_until(has_ended, "the round does not end")
    return ended[ROUND]


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def machine(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "output", 5)


def test_a_round_has_its_environment_and_its_own_folder(machine: Processes) -> None:
    run(machine, "import os, tempfile; print(os.environ['NEO_X'], tempfile.mkdtemp())", NEO_X="7")
    end = end_of(machine)
    value, folder = end.output.splitlines()[-1].split()
    assert (end.code, value) == (0, "7") and Path(folder).parent == end.folder
    # PostgreSQL refuses to run as root, so its user must reach its folder.
    assert end.folder.stat().st_mode & 0o777 == 0o711
    assert end.log.name == "real-0-5.log" and end.output.startswith("NEO_X=7 ")
    forget(end)
    assert not end.log.exists() and not end.folder.exists()


def test_the_output_of_a_round_that_failed_is_kept(machine: Processes) -> None:
    run(machine, "raise ValueError('wrong')")
    end = end_of(machine)
    assert end.code == 1 and "ValueError: wrong" in end.log.read_text()
    forget(end)


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_round_that_is_ended_leaves_no_process(
    machine: Processes, tmp_path: Path, way: str
) -> None:
    run(machine, STUCK)
    log = tmp_path / "output" / "real-0-5.log"
    wait_until(lambda: CHILD.search(log.read_text()), "no child is named")
    end = machine.kill(ROUND) if way == "kill" else machine.stop(ROUND)
    child = int(CHILD.findall(end.output)[0])
    wait_until(lambda: not exists(child), "the child lives")
    assert ("in forever" in end.output) == (way == "kill")
    assert machine.ended() == {}
    forget(end)


@contextmanager
def soak(output: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.soak", "--output", str(output), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def test_a_soak_from_the_command_line(tmp_path: Path) -> None:
    with soak(tmp_path, "--minutes", "9", "--rounds", "1", "--only", "fuzz-wire") as process:
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "fuzz-wire-0" in said and "no failure in 1 round," in said
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["state"] == "complete" and data["searches"]["fuzz-wire"]["rounds"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["summary.json", "summary.md"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_soak_that_is_interrupted_leaves_a_summary(
    tmp_path: Path, number: signal.Signals
) -> None:
    with soak(tmp_path, "--minutes", "9", "--only", "damage") as process:
        wait_until(lambda: any(tmp_path.glob("damage-0-*.log")), "no round begins")
        process.send_signal(number)
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "interrupted." in (tmp_path / "summary.md").read_text()
    assert not list(tmp_path.glob("*.log"))


def test_an_unknown_search_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak", "--only", "fuzz-roles,nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "'nonsense' is no search; they are simulator" in done.stderr
