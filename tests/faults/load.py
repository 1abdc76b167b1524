"""Writers in processes of their own, and the invariants of their work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ZODB.DB import DB

from tests.faults.writer import Ledger, values
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

WRITERS = 2


class Load:
    """Writers in processes of their own, which are started again when they are killed. ``module``: what
    a writer runs. ``prefix``: the words of a command that runs another one, as all writers are run."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        module: str = "tests.faults.writer",
        writers: int = WRITERS,
        prefix: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self._module = module
        self._prefix = prefix
        self.folder = folder
        self.ledgers = [Ledger(folder, writer) for writer in range(writers)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for writer in range(len(self.ledgers)):
            self._processes.append(self._launch(writer))

    def _launch(self, writer: int) -> subprocess.Popen[bytes]:
        simple = self.cluster.simple
        arguments = [simple.masters, simple.name, str(writer), str(self.folder)]
        with open(self.folder / f"writer{writer}.log", "ab") as log:
            return subprocess.Popen(
                [*self._prefix, sys.executable, "-m", self._module, *arguments],
                stdout=log,
                stderr=log,
            )

    def kill(self, writer: int) -> None:
        self._processes[writer].kill()
        self._processes[writer].wait()
        self._processes[writer] = self._launch(writer)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def check_alive(self) -> None:
        for writer, process in enumerate(self._processes):
            log = self.folder / f"writer{writer}.log"
            assert process.poll() is None, f"writer {writer} ended:\n{log.read_text()[-3000:]}"

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, while all writers run."""

        def checked() -> bool:
            self.check_alive()
            return condition()

        wait_until(checked, lambda: f"{what}\n{self.logs()}", poll=0.002)

    def logged(self, name: str, text: str) -> None:
        """Wait until the log of a node has the text."""
        log = self.cluster.simple.log(name)
        self.wait(lambda: text in log.read_text(), f"{name} does not say {text!r}")

    def logs(self) -> str:
        paths = [*self.folder.glob("*.log"), *self.cluster.simple.folder.glob("**/*.log")]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2500:]}" for path in paths)

    def wait_commits(self, count: int) -> None:
        """Wait until every writer has ``count`` more acknowledged commits."""
        goals = [ledger.acknowledged + count for ledger in self.ledgers]
        self.wait(
            lambda: all(
                ledger.acknowledged >= goal
                for ledger, goal in zip(self.ledgers, goals, strict=True)
            ),
            f"no {count} commits of each writer",
        )

    def wait_vote(self, writer: int) -> None:
        """Wait until a writer begins to vote."""
        ledger = self.ledgers[writer]
        last = ledger.voting
        self.wait(lambda: ledger.voting > last, f"writer {writer} does not vote")


def check(cluster: Cluster, load: Load) -> None:
    """Check that a new client sees complete transactions, and all acknowledged ones."""
    acknowledged = [ledger.acknowledged for ledger in load.ledgers]
    db = DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))
    try:
        connection = db.open()
        seen = [values(connection, writer) for writer in range(WRITERS)]
    finally:
        db.close()
    for writer, found in enumerate(seen):
        assert len(set(found)) == 1, f"half a transaction of writer {writer}: {found}"
        attempted = load.ledgers[writer].attempted
        assert acknowledged[writer] <= found[0] <= attempted, (
            f"writer {writer}: {acknowledged[writer]} was acknowledged, {found[0]} is there, "
            f"{attempted} was tried\n{load.logs()}"
        )
