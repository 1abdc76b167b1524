"""Start, watch and stop the processes of a small cluster, by their process ids only."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Time for a process to stop on request; then it is killed.
STOP_SECONDS = 10.0
#: Lines of a log that are shown when its process died.
TAIL_LINES = 8
TAIL_BYTES = 16 * 1024

# Reads "+ pid" and "- pid" lines. At the end of the stream it ends the processes that are left.
_GUARDIAN = """
pids=' '
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid ";;
    -) case $pids in *" $pid "*) pids="${pids%% $pid *} ${pids#* $pid }";; esac;;
  esac
done
[ "$pids" = ' ' ] || kill $pids
"""


class Guardian:
    """A shell that stops the children of this process if it dies without stopping them (``kill -9``)."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def tell(self, sign: str, pid: int) -> None:
        assert self._shell.stdin is not None
        try:
            os.write(self._shell.stdin.fileno(), f"{sign} {pid}\n".encode())
        except BrokenPipeError:
            return  # the shell was ended; the cluster works without it

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


def launch(command: Sequence[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that appends stderr to ``log`` and does not receive the terminal's Ctrl-C."""
    with open(log, "ab") as stderr:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )


def stop_all(processes: Iterable[subprocess.Popen[bytes]]) -> list[int]:
    """Ask all to stop, wait, then kill the rest. Return the ids of the killed processes."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    killed = []
    for process in running:
        try:
            process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed.append(process.pid)
    return killed


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - TAIL_BYTES, 0))
            lines = file.read().decode(errors="backslashreplace").splitlines()
    except OSError as e:
        return f"(log {log} cannot be read: {e.strerror})"
    return "\n".join(lines[-TAIL_LINES:]) or "(the log is empty)"
