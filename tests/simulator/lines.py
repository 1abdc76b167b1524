"""Measure which lines of the cores run under simulation, with coverage.py in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Percentage of the lines of each role that simulation must reach.
LEAST = 90
#: ``log``: the masters' log, which is the core of the transactor.
ROLES = {
    "master": ("neo/master/*",),
    "storage": ("neo/storage/*",),
    "client": ("neo/client/*", "neo/net/channel.py"),
    "log": tuple(
        f"neo/transactor/{module}.py"
        for module in (
            *("catchup", "consensus", "detector", "durable", "engine", "fairness", "learner"),
            *("members", "node", "outbox"),
        )
    ),
}
#: Hosts, and backends that need a server.
OMITTED = (
    "*/__main__.py",
    "neo/master/election/folder.py",
    "neo/storage/backend/*",
    "neo/client/config.py",
    "neo/client/uri.py",
    "neo/client/green.py",
    "neo/client/system.py",
)
_SETTINGS = """\
[run]
concurrency = {concurrency}
[report]
exclude_also =
    if TYPE_CHECKING:
    @overload
    class .*\\bProtocol\\):
"""


def cover(seeds: range, seconds: float, jobs: int) -> int:
    """Run the seeds and print a report of each role. Return exit code 0 if all seeds pass and reach
    enough lines of every role."""
    with tempfile.TemporaryDirectory(prefix="neo-sim-") as folder:
        settings = Path(folder) / "settings"
        settings.write_text(_SETTINGS.format(concurrency=_concurrency()))
        shares = [seeds[start::jobs] for start in range(min(jobs, len(seeds)))]
        processes = [
            subprocess.Popen(
                _coverage(
                    settings, "run", f"--data-file={folder}/data.{i}", f"--include={_included()}",
                    "-m", "tests.simulator.lines", f"{seconds:g}", *map(str, share),
                ),
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
            for i, share in enumerate(shares)
        ]  # fmt: skip
        failed = [process for process in processes if process.wait()]
        data = f"--data-file={folder}/data"
        subprocess.run(_coverage(settings, "combine", "--quiet", data, folder), check=True)
        poor = [role for role in ROLES if not _report(settings, data, role)]
        return int(bool(failed or poor))


def _report(settings: Path, data: str, role: str) -> bool:
    """Print the report of a role. Return whether enough of its lines ran."""
    print(f"\n{role}: at least {LEAST} % are wanted", flush=True)
    report = subprocess.run(
        _coverage(
            settings, "report", data, "--show-missing", f"--include={','.join(ROLES[role])}",
            f"--omit={','.join(OMITTED)}", f"--fail-under={LEAST}",
        ),
    )  # fmt: skip
    return report.returncode == 0


def _coverage(settings: Path, command: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "coverage", command, f"--rcfile={settings}", *arguments]


def _included() -> str:
    return ",".join(file for files in ROLES.values() for file in files)


def _concurrency() -> str:
    return "greenlet,thread" if "greenlet" in sys.modules else "thread"


def _run(seconds: float, seeds: list[int]) -> int:
    """Run the seeds. This is the process that runs under coverage."""
    from tests.simulator.run import Options
    from tests.simulator.trial import attempt

    failed = 0
    for seed in seeds:
        trial = attempt(seed, Options(seconds=seconds), twice=False)
        if trial.result is None:
            print(f"seed {seed} failed after {trial.describe()}")
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(_run(float(sys.argv[1]), list(map(int, sys.argv[2:]))))
