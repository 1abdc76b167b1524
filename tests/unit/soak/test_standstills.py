"""A command stands still as a whole, and what was stopped before stays so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.soak import standstills
from tests.support.patience import wait_until

#: Says who it and its child are, and ends when its input does; the child with it.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """Yield the ids of a process and of its child."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


def test_a_process_and_its_child_stand_still_and_go_on(pair: tuple[int, int]) -> None:
    def wait() -> None:
        wait_until(lambda: {state(pid) for pid in pair} == {"T"}, "one goes on")

    assert standstills.stand_still(pair[0], wait) == 2
    wait_until(lambda: "T" not in {state(pid) for pid in pair}, "one stands still")


def test_a_process_that_was_stopped_stays_so(pair: tuple[int, int]) -> None:
    os.kill(pair[1], signal.SIGSTOP)
    wait_until(lambda: state(pair[1]) == "T", "it goes on")
    assert standstills.stand_still(pair[0], lambda: None) == 1
    assert state(pair[1]) == "T"
    os.kill(pair[1], signal.SIGCONT)


def test_the_exit_code_is_that_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(standstills, "BETWEEN_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(standstills, "STANDS_SECONDS", (0.0, 0.01))
    assert standstills.run([sys.executable, "-c", "raise SystemExit(3)"], Random(1)) == 3
    count, word = capfd.readouterr().out.split()
    assert int(count) > 0 and word == "standstills"
