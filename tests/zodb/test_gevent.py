"""Applications on gevent, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.zodb.conftest import GetFleet
from tests.zodb.fleet import NAME

SECONDS = 100
REFUSED = """
from gevent import monkey
monkey.patch_all({}=False)
from neo.client import NEOStorage
NEOStorage("127.0.0.1:1", "n", wait_timeout=0)
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_a_hundred_greenlets_share_one_storage(fleets: GetFleet) -> None:
    fleet = fleets(3, "sqlite", 0)
    fleet.start()
    run = python("-m", "tests.zodb.green_client", f"neo://{NAME}@{fleet.masters}?cache_size=100KB")
    assert (run.stdout, run.returncode) == ("all is well\n", 0), run.stderr


@pytest.mark.parametrize("module", ["socket", "thread", "select"])
def test_a_process_that_is_patched_in_part_is_refused_in_one_sentence(module: str) -> None:
    run = python("-c", REFUSED.format(module))
    assert run.returncode == 1
    assert "ConfigurationError: gevent has replaced " in run.stderr.splitlines()[-1]
    advice = "call gevent.monkey.patch_all() first thing in the process, and without exceptions\n"
    assert run.stderr.endswith(advice)
