"""The plugin that cuts a suite in parts, in pytest's own processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.search import ROOT

TESTS = "\n".join(f"def test_{number}(): print('test', {number}, 'ran')" for number in range(10))


def pytest_runs(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-s", "-c", "/dev/null", "-p", "no:cacheprovider"]
    command += ["-p", "tests.soak.slices", *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_slices_are_all_tests_once_in_whatever_order(tmp_path: Path) -> None:
    ran: list[int] = []
    for number in range(3):
        done = pytest_runs(tmp_path, "--slice", f"{number}/3", f"--randomly-seed={number}")
        assert done.returncode == 0, done.stdout
        mine = [int(found) for found in re.findall(r"test (\d+) ran", done.stdout)]
        assert 3 <= len(mine) <= 4
        ran += mine
    assert sorted(ran) == list(range(10))


@pytest.mark.parametrize("text", ["3/3", "-1/3", "one"])
def test_a_slice_that_does_not_exist_is_refused(tmp_path: Path, text: str) -> None:
    done = pytest_runs(tmp_path, f"--slice={text}")
    assert done.returncode == 4 and "--slice" in done.stderr
