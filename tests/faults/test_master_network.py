"""Every set of masters is cut from every other: see :mod:`tests.faults.master_network`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.master_network import command

#: Of each cut: longer than it takes to replace a primary.
SECONDS = float(os.environ.get("NEO_CUT_SECONDS", "5"))


@pytest.mark.timeout(600)
def test_never_two_primaries_and_nothing_lost_whatever_is_cut(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, SECONDS),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert "never two at once" in done.stdout
