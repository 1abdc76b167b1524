"""Plan which tests begin first, from the seconds that they took in a run before.

A process of the suite takes a *scope* after the other: a file's functions, a class (``--dist
loadscope``), or a folder whose tests share what is dear. The longest begin first, so that all processes
end at nearly the same time. The order of the tests in a scope is random, from a fixed seed.

    pytest --junitxml build/tests.xml && python -m tests.plan build/tests.xml

writes the seconds of a run to ``seconds.json``, and prints the table of kinds of docs/testing.md.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from xdist.scheduler import LoadScopeScheduling

Item = TypeVar("Item")

SECONDS = Path(__file__).with_name("seconds.json")
#: Seconds of a scope that is not in the table: it is new, and may be long.
UNKNOWN = 30.0
#: Scopes below are not in the table, and come last.
LEAST = 1.0


#: Folders whose tests run in one process: they share one JVM.
TOGETHER = ("tests/pipelines/spark",)


def scope_of(nodeid: str) -> str:
    """Return the folder, file or class of a test that one process takes as a whole."""
    folders = (folder for folder in TOGETHER if nodeid.startswith(f"{folder}/"))
    return next(folders, nodeid.rsplit("::", 1)[0])


class Scopes(LoadScopeScheduling):
    """Give each process the scopes of this module, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def known_seconds() -> dict[str, float]:
    """Return the seconds of each scope in a run before."""
    table: dict[str, float] = json.loads(SECONDS.read_text())
    return table


def longest_first(items: Iterable[Item], nodeid: Callable[[Item], str]) -> list[Item]:
    """Return the items scope by scope, the longest scope first."""
    known = known_seconds()
    files = {scope.partition("::")[0] for scope in known}
    scopes: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        scopes[scope_of(nodeid(item))].append(item)

    def seconds(scope: str) -> float:
        return known.get(scope, 0.0 if scope.partition("::")[0] in files else UNKNOWN)

    order = sorted(scopes, key=seconds, reverse=True)
    return [item for scope in order for item in scopes[scope]]


def measured(report: Path) -> dict[str, tuple[int, float]]:
    """Return the number of tests and the seconds of each scope in a report in JUnit's format."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        names = case.attrib["classname"].split(".")
        length = max(
            n for n in range(1, len(names) + 1) if Path(*names[:n]).with_suffix(".py").exists()
        )
        file = str(Path(*names[:length]).with_suffix(".py"))
        scope = scope_of("::".join([file, *names[length:], case.attrib["name"]]))
        tests[scope] += 1
        seconds[scope] += float(case.attrib["time"])
    return {scope: (tests[scope], seconds[scope]) for scope in tests}


def _kind(scope: str) -> str:
    """Return the folder below ``tests``, with two levels for ``unit``; a file of ``tests`` itself."""
    parts = scope.partition("::")[0].split("/")[1:]
    return "/".join(parts[: 2 if parts[0] == "unit" else 1])


def main(report: Path) -> None:
    """Write the seconds of a run, and print them by kind."""
    found = measured(report)
    table = {scope: round(seconds) for scope, (_, seconds) in found.items() if seconds >= LEAST}
    # Files whose tests are all short are known, too.
    table |= {scope: 0 for scope in found if scope not in table and "::" not in scope}
    SECONDS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    kinds: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for scope, (count, seconds) in found.items():
        before = kinds[_kind(scope)]
        kinds[_kind(scope)] = before[0] + count, before[1] + seconds
    print("| tests | number | seconds, added up |\n|---|---|---|")
    for kind, (count, seconds) in sorted(kinds.items(), key=lambda pair: -pair[1][1]):
        print(f"| `tests/{kind}` | {count:,} | {seconds:,.0f} |")
    count, seconds = (sum(values) for values in zip(*found.values(), strict=True))
    print(f"| all | {count:,} | {seconds:,.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
