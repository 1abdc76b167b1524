"""Count what one load and one commit cost each process: processor time, system calls, syncs and waits.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ZODB.utils import p64

from neo.simple import Cluster
from tests.bench.calls import OPERATIONS, fill, measured, opener
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


class Part(NamedTuple):
    """A process, or some ``threads`` of it, by their ids in the system."""

    pid: int
    threads: Sequence[int] = ()

    def tasks(self) -> Iterator[Path]:
        """Yield the folder of each thread, which may have ended."""
        tasks = Path(f"/proc/{self.pid}/task")
        yield from (tasks / str(thread) for thread in self.threads) if self.threads else tasks.iterdir()


def processor_seconds(part: Part) -> float:
    """Return the processor time of all threads of a part that live."""
    return sum(int(text.split()[0]) for text in _read(part, "schedstat")) / 1e9


def waits(part: Part) -> int:
    """Return how often the threads of a part that live gave up their processor, because they waited."""
    return sum(
        int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in _read(part, "status")
    )


def _read(part: Part, name: str) -> Iterator[str]:
    for task in part.tasks():
        try:
            yield (task / name).read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended


def system_calls(part: Part, work: Callable[[], object]) -> dict[str, int]:
    """Return the system calls of all threads of a part while ``work`` runs, by name.

    Raise NoTrace if strace is not installed or may not trace the process.
    """
    program = shutil.which("strace")
    if program is None:
        raise NoTrace("strace is not installed: install the Debian package strace")
    with tempfile.TemporaryDirectory() as folder:
        table, said = Path(folder, "table"), Path(folder, "said")
        # -f: with threads that begin later.
        traced = [f"-p{thread}" for thread in part.threads] or ["-f", f"-p{part.pid}"]
        command = [program, "-c", "-o", str(table), *traced]
        with said.open("wb") as output:
            tracer = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_attached(tracer, said, max(1, len(part.threads)))
            work()
        finally:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.wait()
        return parse(table.read_text())


def parse(table: str) -> dict[str, int]:
    """Return the numbers of calls by name from a table of ``strace -c``."""
    return {m["name"]: int(m["calls"]) for m in _LINE.finditer(table) if m["name"] != "total"}


def _wait_until_attached(tracer: subprocess.Popen[bytes], said: Path, count: int) -> None:
    deadline = Deadline(30.0)
    while (words := said.read_text(errors="replace")).count("attached") < count:
        if tracer.poll() is not None or deadline.passed():
            raise NoTrace(
                f"strace may not trace another process: {words.strip() or 'it said nothing'}. Run this as"
                " the administrator, or set kernel.yama.ptrace_scope to 0"
            )
        deadline.pause()


def let_trace() -> None:
    """Let any process of this user trace this one, where the system asks for that."""
    set_ptracer, any_process = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(set_ptracer, any_process, 0, 0, 0)


class Cost(NamedTuple):
    """What one operation costs one process. ``us``: microseconds of a processor, in all threads.
    ``by_name``: system calls. ``waits``: how often a thread waited."""

    us: float
    by_name: Mapping[str, float]
    waits: float

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
        parts = {
            "client": Part(os.getpid()),
            "master": Part(cluster.processes["master1"].pid),
            "storage": Part(cluster.processes["storage1"].pid),
        }
        let_trace()
        oids = [p64(n) for n in range(1, OPERATIONS * (len(parts) + 1) + 2)]
        fill(opener(cluster), oids)
        return measured(opener(cluster), oids, partial(costs_of, parts))


def costs_of(
    parts: Mapping[str, Part], work: Callable[[Any], object], items: list[Any], trace: bool = True
) -> dict[str, Cost]:
    """Return what ``work`` costs each part. ``items``: for one run more than there are parts. ``trace``:
    count system calls, too."""
    count = len(items) // (len(parts) + 1)
    pieces = [items[i : i + count] for i in range(0, len(items), count)]

    def all_of(piece: list[Any]) -> None:
        for item in piece:
            work(item)

    before = {name: (processor_seconds(part), waits(part)) for name, part in parts.items()}
    all_of(pieces[0])
    after = {name: (processor_seconds(part), waits(part)) for name, part in parts.items()}
    found = {}
    for (name, part), piece in zip(parts.items(), pieces[1:], strict=False):
        calls: dict[str, int] = {}
        if trace:
            calls = system_calls(part, partial(all_of, piece))
        else:
            all_of(piece)
        seconds, waited = (b - a for a, b in zip(before[name], after[name], strict=True))
        by_name = {call: n / count for call, n in calls.items()}
        found[name] = Cost(seconds * 1e6 / count, by_name, waited / count)
    return found
