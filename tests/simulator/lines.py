"""Measure which lines of the cores run under simulation, with coverage.py in separate processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.run import Options

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
    "neo/client/host/green.py",
    "neo/client/host/system.py",
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


def cover(seeds: Sequence[int], options: Options, jobs: int) -> int:
    """Run the seeds and print a report of each role. Return exit code 0 if all seeds pass and reach
    enough lines of every role."""
    with tempfile.TemporaryDirectory(prefix="neo-sim-") as folder:
        settings = Path(folder) / "settings"
        settings.write_text(_SETTINGS.format(concurrency=_concurrency()))
        shares = _shares(seeds, jobs)
        processes = [
            subprocess.Popen(
                _coverage(
                    settings, "run", f"--data-file={folder}/data.{i}", f"--include={_included()}",
                    "-m", "tests.simulator.lines", *_arguments(share, options),
                ),
            )
            for i, share in enumerate(shares)
        ]  # fmt: skip
        failed = [process for process in processes if process.wait()]
        data = f"--data-file={folder}/data"
        subprocess.run(_coverage(settings, "combine", "--quiet", data, folder), check=True)
        poor = [role for role in ROLES if not _report(settings, data, role)]
        return int(bool(failed or poor))


def _shares(seeds: Sequence[int], jobs: int) -> list[Sequence[int]]:
    """Return parts of about the same length, none of which is empty."""
    count = min(jobs, len(seeds))
    ends = [len(seeds) * index // count for index in range(count + 1)]
    return [seeds[start:end] for start, end in pairwise(ends)]


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


def _arguments(seeds: Sequence[int], options: Options) -> list[str]:
    return ["--seeds", ",".join(map(str, seeds)), *options.arguments().split()]


def _run() -> int:
    """Run the seeds of the command line. This is the process that runs under coverage."""
    from tests.simulator.command_line import options_of, parser
    from tests.simulator.trial import attempt

    arguments = parser(__doc__).parse_args()
    options, failed = options_of(arguments), 0
    for seed in arguments.seeds:
        trial = attempt(seed, options, twice=False)
        if trial.result is None:
            print(f"seed {seed} failed after {trial.describe()}")
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(_run())
