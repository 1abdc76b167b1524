"""The ports of the tests."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neo.simple.conf import HOST, is_free
from tests.support.ports import BLOCK_PORTS, FIRST_PORT, LAST_PORT, Ports, free_range

OTHER = "from tests.support.ports import free_range; print(free_range(1), flush=True); input()"
ROOT = Path(__file__).parents[3]


def test_processes_have_different_blocks_until_they_end(tmp_path: Path) -> None:
    first, second = Ports(folder=tmp_path), Ports(folder=tmp_path)
    assert (first.first, second.first) == (FIRST_PORT, FIRST_PORT + BLOCK_PORTS)
    own = free_range(1)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        other = int(process.stdout.readline())
        process.stdin.close()
    assert (own - FIRST_PORT) // BLOCK_PORTS != (other - FIRST_PORT) // BLOCK_PORTS
    assert FIRST_PORT <= other < LAST_PORT


def test_a_child_that_was_forked_has_a_block_of_its_own() -> None:
    own = free_range(1)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        child = pool.apply(free_range, (1,))
    assert (own - FIRST_PORT) // BLOCK_PORTS != (child - FIRST_PORT) // BLOCK_PORTS


def test_no_port_is_given_again_before_the_block_ends() -> None:
    ports = Ports(FIRST_PORT, lambda port: True)
    given = [ports.free_range(7) - FIRST_PORT for _ in range(BLOCK_PORTS // 7 + 1)]
    assert given == [*range(0, BLOCK_PORTS - 6, 7), 0]
    assert ports.free_range(BLOCK_PORTS) == FIRST_PORT
    assert ports.free_range(1) == FIRST_PORT


def test_ports_in_use_are_passed_over() -> None:
    taken = {FIRST_PORT + 1, FIRST_PORT + 4}
    ports = Ports(FIRST_PORT, lambda port: port not in taken)
    assert [ports.free_range(2) - FIRST_PORT for _ in range(2)] == [2, 5]
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_block_without_free_ports_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no 3 ports in a row of 10000 to 10199 are free"):
        Ports(FIRST_PORT, lambda port: port % 3 == 0).free_range(3)


def test_a_machine_without_a_block_is_an_error_that_names_the_locks(tmp_path: Path) -> None:
    for _ in range(FIRST_PORT, LAST_PORT, BLOCK_PORTS):
        Ports(folder=tmp_path)
    with pytest.raises(AssertionError, match="neo-test-ports-"):
        Ports(folder=tmp_path)
