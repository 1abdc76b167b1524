"""Search for bugs for some minutes: ``make soak``.

Failures are in the summary, each with the command that repeats it. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

from tests.soak.processes import Processes, forget
from tests.soak.scheduler import Scheduler
from tests.soak.search import ROOT, Search, python
from tests.soak.soak import Soak
from tests.soak.summary import Summary
from tests.soak.table import searches


def _arguments() -> argparse.Namespace:
    table = searches()
    known = "\n".join(f"  {search.name:22} {search.purpose}" for search in table)
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        epilog=f"searches:\n{known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=40, help="how long, 40 by default")
    add("--only", metavar="NAMES", help="searches, separated by commas; default: all")
    add("--jobs", type=int, default=2, help="rounds at once, 2 by default")
    add("--rounds", type=int, help="at most so many rounds of each search")
    add("--seed", type=int, help="draw the same seeds as the soak that printed this number")
    add("--output", type=Path, default=Path("build/soak"), help="folder, build/soak by default")
    options = parser.parse_args()
    options.searches = table
    if options.only:
        by_name = {search.name: search for search in table}
        names = options.only.split(",")
        for name in names:
            if name not in by_name:
                parser.error(f"--only: {name!r} is no search; they are {', '.join(by_name)}")
        options.searches = [by_name[name] for name in names]
    if options.minutes <= 0 or options.jobs < 1:
        parser.error("--minutes and --jobs must be positive")
    if options.seed is None:
        options.seed = SystemRandom().randrange(1, 2**32)
    return options


def _commit() -> str:
    """Return the commit under test. Name changes that were not committed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _repeat(options: argparse.Namespace) -> str:
    arguments = ["--minutes", f"{options.minutes:g}", "--jobs", str(options.jobs)]
    arguments += ["--only", options.only] if options.only else []
    arguments += ["--rounds", str(options.rounds)] if options.rounds is not None else []
    return str(python("tests.soak", *arguments, "--seed", str(options.seed)))


def _save(summary: Summary, output: Path) -> None:
    """Replace the files of the summary. A soak that is killed at any moment leaves whole ones."""
    for name, text in (("summary.md", summary.markdown()), ("summary.json", summary.json())):
        new = output / f"{name}.new"
        new.write_text(text, "utf-8")
        os.replace(new, output / name)


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = _arguments()
    table: list[Search] = options.searches
    output: Path = options.output
    summary = Summary(options.seed, _commit(), _repeat(options))
    names = ", ".join(search.name for search in table)
    _say(f"soak: --minutes {options.minutes:g} --seed {options.seed}: {names}")
    machine = Processes(output, options.seed)
    machine.handle_signals()
    scheduler = Scheduler(table, 60 * options.minutes, options.jobs, options.rounds)
    Soak(
        *(scheduler, machine, summary),
        forget=forget,
        save=lambda summary: _save(summary, output),
        say=_say,
    ).run()
    _say(f"\n{summary.markdown()}\nwritten to {output / 'summary.md'}")
    return int(bool(summary.failures))


if __name__ == "__main__":
    sys.exit(main())
