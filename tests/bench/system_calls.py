"""Count what one load and one commit cost each process: processor time, system calls, and syncs.

``strace -c -f`` (Debian package strace) is attached to each process in turn while a client repeats an
operation. Processor time is measured in a run of its own, because strace multiplies it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ZODB.utils import p64

from neo.simple import Cluster
from tests.bench.calls import OPERATIONS, fill, measured
from tests.support.patience import Deadline
from tests.support.ports import free_range

#: System calls that wait until bytes are on a disk.
SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync")
#: A line of the table of strace: share, seconds, µs per call, calls, maybe errors, name.
_LINE = re.compile(
    r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<calls>\d+)\s+(?:\d+\s+)?(?P<name>\w+)$", re.MULTILINE
)


class NoTrace(Exception):
    """System calls cannot be counted here; the message says why, and what to do."""


def processor_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process that live."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            nanoseconds += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return nanoseconds / 1e9


def system_calls(pid: int, work: Callable[[], object]) -> dict[str, int]:
    """Return the system calls of all threads of a process while ``work`` runs, by name.

    Raise NoTrace if strace is not installed or may not trace the process.
    """
    program = shutil.which("strace")
    if program is None:
        raise NoTrace("strace is not installed: install the Debian package strace")
    with tempfile.TemporaryDirectory() as folder:
        table, said = Path(folder, "table"), Path(folder, "said")
        command = [program, "-c", "-f", "-o", str(table), "-p", str(pid)]
        with said.open("wb") as output:
            tracer = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_attached(tracer, said)
            work()
        finally:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.wait()
        return parse(table.read_text())


def parse(table: str) -> dict[str, int]:
    """Return the numbers of calls by name from a table of ``strace -c``."""
    return {m["name"]: int(m["calls"]) for m in _LINE.finditer(table) if m["name"] != "total"}


def _wait_until_attached(tracer: subprocess.Popen[bytes], said: Path) -> None:
    deadline = Deadline(30.0)
    while "attached" not in (words := said.read_text(errors="replace")):
        if tracer.poll() is not None or deadline.passed():
            raise NoTrace(
                f"strace may not trace another process: {words.strip() or 'it said nothing'}. Run this as"
                " the administrator, or set kernel.yama.ptrace_scope to 0"
            )
        deadline.pause()


def _let_trace() -> None:
    """Let any process of this user trace this one, where the system asks for that."""
    set_ptracer, any_process = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(set_ptracer, any_process, 0, 0, 0)


class Cost(NamedTuple):
    """What one operation costs one process. ``us``: microseconds of a processor, in all threads."""

    us: float
    by_name: Mapping[str, float]

    @property
    def calls(self) -> float:
        return sum(self.by_name.values())

    @property
    def syncs(self) -> float:
        return sum(self.by_name.get(name, 0) for name in SYNCS)

    def most(self) -> str:
        """Return the names of the most frequent ones, with their numbers."""
        ordered = sorted(self.by_name.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {n:.1f}" for name, n in ordered if n >= 0.05)


def costs(folder: Path) -> dict[str, dict[str, Cost]]:
    """Return the costs by operation and process: a master, a storage node on SQLite, and a client."""
    cluster = Cluster(folder, storages=1, partitions=1, port_base=free_range(3))
    with cluster:
        pids = {
            "client": os.getpid(),
            "master": cluster.processes["master1"].pid,
            "storage": cluster.processes["storage1"].pid,
        }
        _let_trace()
        oids = [p64(n) for n in range(1, OPERATIONS * (len(pids) + 1) + 2)]
        fill(cluster, oids)
        return measured(cluster, oids, partial(_costs, pids))


def _costs(
    pids: Mapping[str, int], work: Callable[[Any], object], items: list[Any]
) -> dict[str, Cost]:
    pieces = [items[i : i + OPERATIONS] for i in range(0, len(items), OPERATIONS)]

    def all_of(piece: list[Any]) -> None:
        for item in piece:
            work(item)

    before = {name: processor_seconds(pid) for name, pid in pids.items()}
    all_of(pieces[0])
    us = {name: (processor_seconds(pid) - before[name]) * 1e6 for name, pid in pids.items()}
    found = {}
    for (name, pid), piece in zip(pids.items(), pieces[1:], strict=True):
        calls = system_calls(pid, partial(all_of, piece))
        found[name] = Cost(us[name] / OPERATIONS, {call: n / OPERATIONS for call, n in calls.items()})
    return found
