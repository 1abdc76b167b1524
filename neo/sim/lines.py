"""Which lines of the cores run under simulation, by coverage.py in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Part of the lines of master, storage and client that simulation must reach, in percent.
LEAST = 90
INCLUDED = ("neo/master/*", "neo/storage/*", "neo/client/*", "neo/net/channel.py")
#: Shells, and backends that need a server.
OMITTED = (
    "*/__main__.py",
    "neo/storage/backend/*",
    "neo/client/config.py",
    "neo/client/uri.py",
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
    """Run the seeds and print the report. Exit code 0 if they pass and reach enough lines."""
    with tempfile.TemporaryDirectory(prefix="neo-sim-") as folder:
        settings = Path(folder) / "settings"
        settings.write_text(_SETTINGS.format(concurrency=_concurrency()))
        shares = [seeds[start::jobs] for start in range(min(jobs, len(seeds)))]
        processes = [
            subprocess.Popen(
                _coverage(
                    settings, "run", f"--data-file={folder}/data.{i}", f"--include={_included()}",
                    "-m", "neo.sim.lines", f"{seconds:g}", *map(str, share),
                ),
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
            for i, share in enumerate(shares)
        ]  # fmt: skip
        failed = [process for process in processes if process.wait()]
        data = f"--data-file={folder}/data"
        subprocess.run(_coverage(settings, "combine", "--quiet", data, folder), check=True)
        report = subprocess.run(
            _coverage(
                settings, "report", data, "--show-missing", f"--include={_included()}",
                f"--omit={','.join(OMITTED)}", f"--fail-under={LEAST}",
            ),
        )  # fmt: skip
        return int(bool(failed) or report.returncode != 0)


def _coverage(settings: Path, command: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "coverage", command, f"--rcfile={settings}", *arguments]


def _included() -> str:
    return ",".join(INCLUDED)


def _concurrency() -> str:
    return "greenlet,thread" if "greenlet" in sys.modules else "thread"


def _run(seconds: float, seeds: list[int]) -> int:
    """What runs under coverage."""
    from neo.sim.run import Options
    from neo.sim.trial import attempt

    failed = 0
    for seed in seeds:
        trial = attempt(seed, Options(seconds=seconds), twice=False)
        if trial.result is None:
            print(f"seed {seed} failed after {trial.describe()}")
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(_run(float(sys.argv[1]), list(map(int, sys.argv[2:]))))
