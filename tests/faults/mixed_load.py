"""Clients with a mixed load (:mod:`tests.faults.mixed`), each one process for the whole test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.mixed import Journals
from tests.support.patience import wait_until

#: Time within which a cluster recovers after the end of all faults. It includes the time until a lost
#: connection is noticed, and allows for a busy machine.
HEAL_SECONDS = 150.0
STOP_SECONDS = 60.0


class Load:
    """A client for each of ``prefixes``, with which its command begins. ``folder``: logs and journals
    of the clients, and all other ``*.log`` that a failure shows."""

    def __init__(
        self, masters: str, name: str, folder: Path, prefixes: Sequence[Sequence[str]], seed: int = 0
    ) -> None:
        self.folder = folder
        self.journals = [Journals(folder, client) for client in range(len(prefixes))]
        self._processes = []
        for client, prefix in enumerate(prefixes):
            module = [*prefix, sys.executable, "-m", "tests.faults.mixed", masters, name]
            options = [str(client), str(len(prefixes)), str(folder), str(seed)]
            with open(self._log(client), "wb") as log:
                self._processes.append(
                    subprocess.Popen([*module, *options], stdout=log, stderr=log)
                )

    def _log(self, client: int) -> Path:
        return self.folder / f"client{client}.log"

    def _tail(self, client: int) -> str:
        return self._log(client).read_text()[-3000:]

    def logs(self) -> str:
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def check_alive(self) -> None:
        for client, process in enumerate(self._processes):
            code = process.poll()
            assert code is None, f"client {client} ended ({code}):\n{self._tail(client)}"

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, while all clients run."""

        def checked() -> bool:
            self.check_alive()
            return condition()

        wait_until(checked, lambda: f"{what}\n{self.logs()}", HEAL_SECONDS)

    def wait_progress(self) -> None:
        """Wait until every client has committed a transaction that began later than now."""
        goals = [len(journals.acknowledged) + 2 for journals in self.journals]
        self.wait(
            lambda: all(len(j.acknowledged) >= g for j, g in zip(self.journals, goals, strict=True)),
            "some client does not commit any more",
        )

    def stop(self) -> None:
        """Stop the clients. Each must end with exit code 0."""
        self.check_alive()
        for process in self._processes:
            process.terminate()
        for client, process in enumerate(self._processes):
            code = process.wait(STOP_SECONDS)
            assert code == 0, f"client {client} ended ({code}):\n{self._tail(client)}"

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
