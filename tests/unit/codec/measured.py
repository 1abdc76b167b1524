"""Records read in processes of their own, to see what memory they take, and whether they kill."""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from neo.codec import BudgetExceeded, decode, state_json

#: What docs/spark.md promises: so many times the size of a record, and so many bytes.
FACTOR = 64
BASE = 64 << 20

#: Address space of the process: what would take all memory of the machine fails sooner.
_ADDRESS_SPACE = 3 << 30


class Measured(NamedTuple):
    """``error``: of the record, or how its process ended. ``grown``: bytes of memory at its peak."""

    error: str | None
    grown: int


def bound(data: bytes) -> int:
    return FACTOR * len(data) + BASE


def measured(records: Sequence[bytes]) -> list[Measured]:
    """Read each of some records, and write its state as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps(list(records)),
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parents[3],
        timeout=300,
    )
    return [Measured(*json.loads(line)) for line in done.stdout.splitlines()]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _read(data: bytes) -> Measured:
    before = _peak()
    record = decode(data)
    error = record.error
    try:
        state_json(record)
    except BudgetExceeded as e:
        error = str(e)
    return Measured(error, _peak() - before)


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for data in pickle.load(sys.stdin.buffer):
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writer, json.dumps(_read(data)).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(pid, 0)
        print(answer.decode() or json.dumps(Measured(f"died: {status}", 0)), flush=True)


if __name__ == "__main__":
    _main()
