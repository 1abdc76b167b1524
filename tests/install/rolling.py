"""A rolling upgrade from an earlier state of the tree, in the order of docs/operating.md, under load.

    python -m tests.install.rolling [--from COMMIT]

The earlier state is the last tag; before the first one, a commit before the newest messages. It comes
from the history of the repository, which a copy of the tree does not have: this is no test of the gate.
The only error that an application may get is a TransactionLostError, which it retries, when the primary
master changes. Nothing that was acknowledged may be lost.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from neo.simple import Cluster
from neo.simple.conf import NodeConf
from tests.faults.load import Load, check
from tests.faults.operator import neoctl, wait_for
from tests.faults.writer import prepare
from tests.support import cluster as support
from tests.support.ports import free_range

ROOT = Path(__file__).parents[2]
#: There is no tag yet. After this commit came the disks of all nodes, and revisions with conflicts.
EARLIER = "35609179f75f646c991c9b095db835846c9e7725"
MASTERS, STORAGES = 3, 3


def say(text: str) -> None:
    print(text, flush=True)


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def earlier() -> str:
    """Return the state from which an operator would come."""
    return git("describe", "--tags", "--abbrev=0") or EARLIER


class Release:
    """The installed release: a link, which an installation changes under the running processes."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.path = folder / "release"
        old = folder / "old"
        old.mkdir()
        archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(old)], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit(f"commit {commit} is not in the history: clone the whole repository")
        self.path.symlink_to(old)

    def install(self) -> None:
        """Install this tree in the place of the earlier one."""
        self.path.unlink()
        self.path.symlink_to(ROOT)

    @property
    def prefix(self) -> list[str]:
        """Return the words of a command that runs Python with what is installed."""
        return ["env", f"PYTHONPATH={self.path}", "PYTHONSAFEPATH=1"]


class Installed(Cluster):
    """A cluster whose processes run what is installed when they start."""

    def __init__(self, folder: Path, release: Release) -> None:
        self._release = release
        ports = free_range(MASTERS + STORAGES + 1)
        super().__init__(
            folder, masters=MASTERS, storages=STORAGES, replicas=1, partitions=6, port_base=ports
        )

    def command(self, node: NodeConf) -> list[str]:
        return [*self._release.prefix, *super().command(node)]


class Upgrade:
    """The steps of the documentation, each while all writers work."""

    def __init__(self, folder: Path, commit: str) -> None:
        self._folder = folder
        self.release = Release(folder, commit)
        self.cluster = Installed(folder / "cluster", self.release)
        #: What tests of faults know of a cluster.
        self.known = support.Cluster()
        self.known.simple = self.cluster
        #: How often the primary master changed.
        self._primaries = 0
        (writers := folder / "writers").mkdir()
        self.load = Load(self.known, writers, prefix=self.release.prefix)

    def goes_on(self, what: str) -> None:
        """Check that all applications commit, and that none had an error that it may not have."""
        self.load.wait_commits(3)
        self.cluster.check()
        said = "".join(path.read_text() for path in self.load.folder.glob("*.log"))
        errors = re.findall(r"not acknowledged: (\w+)", said)
        allowed = ["TransactionLostError"] * len(self.load.ledgers) * self._primaries
        assert len(errors) <= len(allowed) and {*errors} <= {*allowed}, f"{what}: {said}"
        say(what)

    def storages(self) -> None:
        admin = self.cluster.admin_address
        neoctl(admin, "upgrade", "-n")
        done = neoctl(admin, "upgrade")
        assert done["state"] == "SUCCEEDED", done
        self.goes_on("storage nodes: upgraded by neoctl upgrade")

    def masters(self) -> None:
        """Restart the masters, the primary last, after it has handed over."""
        admin = self.cluster.admin_address
        primary = self._primary()
        others = [n for n in range(1, MASTERS + 1) if n != primary]
        for number in others:
            self._restart_master(number)
        self._primaries += 1
        neoctl(admin, "set", "primary", f"M{others[0]}")
        wait_for(lambda: self._primary() == others[0], lambda: "no other primary")
        self._restart_master(primary)

    def _primary(self) -> int:
        return int(neoctl(self.cluster.admin_address, "print", "primary")["primary"][1:])

    def _restart_master(self, number: int) -> None:
        self.cluster.restart(f"master{number}")
        wait_for(self._masters_vote, lambda: f"master{number} does not vote")
        self.goes_on(f"master{number}: restarted")

    def _masters_vote(self) -> bool:
        rows = neoctl(self.cluster.admin_address, "print", "masters")["masters"]
        return len(rows) == MASTERS and not any(row["note"] for row in rows)

    def admin(self) -> None:
        self.cluster.restart("admin")
        wait_for(lambda: neoctl(self.cluster.admin_address, "status") or True, lambda: "no status")
        self.goes_on("admin node: restarted")

    def run(self) -> None:
        """Go from one release to the other. Raise AssertionError if an application notices it."""
        with self.cluster:
            prepare(self.known.storage(), len(self.load.ledgers))
            self.load.start()
            try:
                self.goes_on("applications of the earlier release commit")
                self.release.install()
                self.goes_on("this release is installed, and nothing is restarted")
                self.storages()
                self.masters()
                self.admin()
                rows = neoctl(self.cluster.admin_address, "print", "disks")["disks"]
                assert len(rows) == STORAGES, f"storage nodes of this release tell their disks: {rows}"
                self.load.kill(1)
                self.goes_on("applications: of both releases")
                self.load.kill(0)
                self.goes_on("applications: restarted")
            finally:
                self.load.stop()
            check(self.known, self.load)
            say("nothing that was acknowledged is lost")


def main() -> int:
    """Upgrade. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.rolling", description=__doc__)
    parser.add_argument("--from", dest="commit", default=earlier(), help="a commit or a tag")
    options = parser.parse_args()
    say(f"from {options.commit} to {git('describe', '--always', '--dirty')}")
    with tempfile.TemporaryDirectory() as folder:
        Upgrade(Path(folder), options.commit).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
