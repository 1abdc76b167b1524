"""Operations that are begun while something fails, and how they ended."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.faults.operator import neoctl, wait_for
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

#: Part of the moments that are near the begin of an operation, and how near.
EARLY_CHANCE, EARLY_SECONDS = 0.25, 1.0


@contextmanager
def begun(cluster: Cluster, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Begin an operation in another process, which is waited for."""
    admin = cluster.simple.admin_address
    command = [sys.executable, "-m", "neoctl", "-a", admin, "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        found = [neoctl(admin, "print", *what) for what in (("operations",), ("node",), ("pt",))]
        raise AssertionError(f"{' '.join(words)} goes on: {found}") from None
    finally:
        process.kill()
        process.wait()


def wait_moment(
    cluster: Cluster, process: subprocess.Popen[bytes], chance: random.Random
) -> None:
    """Wait for a random moment of the operation that a process has ordered: usually until a random part
    of its steps is done, however fast the machine is. Return if the process ends before."""
    admin, early, part = cluster.simple.admin_address, chance.random() < EARLY_CHANCE, chance.random()
    if early:
        time.sleep(part * EARLY_SECONDS)
        return

    def reached() -> bool:
        rows = neoctl(admin, "print", "operations")["operations"]
        running = [row for row in rows if row["state"] not in ("SUCCEEDED", "FAILED")]
        return process.poll() is not None or any(row["done"] >= part for row in running)

    wait_until(reached, "the operation neither goes on nor ends", excuses=(AssertionError,), poll=0.002)


def ended(cluster: Cluster, id: int | None = None) -> Any:
    """Wait until no operation is in progress. Return the one with this id, or the last one; None if the
    master has forgotten it."""

    def over() -> tuple[list[Any]] | None:
        rows = neoctl(cluster.simple.admin_address, "print", "operations")["operations"]
        return (rows,) if all(row["state"] in ("SUCCEEDED", "FAILED") for row in rows) else None

    (rows,) = wait_for(over, lambda: "an operation does not end")
    wanted = [row for row in rows if id in (None, row["id"])]
    return wanted[-1] if wanted else None
