"""A terminal in which a test types the commands of a page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(text: str) -> list[str]:
    """Return the commands of a page, or of a part of it."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Terminal:
    """A shell in an empty folder, which executes the commands of a page."""

    def __init__(self, folder: Path, port: int) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "-eu"],
            cwd=folder,
            env={**os.environ, "PATH": path, "PORT": str(port), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, commands: str) -> str:
        """Execute commands. Return their output. Raise AssertionError when one of them fails."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        # What runs in the background keeps the output open when the shell ends.
        ended = "trap 'echo ended: $?' EXIT"
        self._shell.stdin.write(f"{ended}\n{commands}\necho did: that\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line == "did: that\n":
                return "".join(said)
            said.append(line)
            if line.startswith("ended: "):
                break
        raise AssertionError(f"{commands}\n{''.join(said)}\nexit code {self._shell.wait()}")

    def close(self) -> None:
        """End all processes that were started here."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the shell ended, with all processes that it had started
        self._shell.wait()
        self._shell.stdin.close()
        self._shell.stdout.close()
