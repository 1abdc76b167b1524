"""One run: rounds in which every system does the same work, one after the other."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import clients, floor
from tests.bench.figures import KINDS, Kind, Memory
from tests.bench.records import make_source
from tests.bench.report import Report
from tests.bench.sizes import Sizes
from tests.bench.systems import System
from tests.bench.workloads import WORKLOADS, Workload

Say = Callable[[str], None]


class Suite(NamedTuple):
    """Workloads, and the figures that they yield."""

    workloads: Mapping[str, Workload]
    kinds: Sequence[Kind]


def run(
    systems: Mapping[str, Callable[[], System]],
    rounds: int,
    sizes: Sizes,
    workloads: Sequence[str],
    say: Say,
    suite: Suite | None = None,
) -> Report:
    """Measure `systems` in `rounds`; each round starts with another one, to be fair to all.

    In a round a system is started on an empty folder, does every workload, and is stopped: no other
    system's servers run meanwhile. The report records failures; the run goes on. ``suite``: default
    is that of all storages.
    """
    suite = suite or Suite(WORKLOADS, KINDS)
    report = Report(list(systems), sizes, rounds, suite.kinds)
    names = list(systems)
    with tempfile.TemporaryDirectory(prefix="neo-bench-") as top:
        source = Path(top) / "source.fs"
        if "import" in workloads:
            say(f"writing a Data.fs of {sizes.imported} transactions to import")
            clients.run(lambda: make_source(source, sizes.imported), sizes.whole_seconds_max)
        for number in range(rounds):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=top) as folder:
                    say(f"round {number + 1} of {rounds}: {name}")
                    report.add_floor(floor.measure(Path(folder), sizes))
                    done = _System(name, systems[name], Path(folder), report, suite.workloads, say)
                    done.do(workloads, sizes, source)
    return report


class _System:
    """One system in one round."""

    def __init__(
        self,
        name: str,
        factory: Callable[[], System],
        folder: Path,
        report: Report,
        known: Mapping[str, Workload],
        say: Say,
    ) -> None:
        self._name, self._factory, self._folder = name, factory, folder
        self._report, self._known, self._say = report, known, say
        self._starts = 0

    def do(self, workloads: Sequence[str], sizes: Sizes, source: Path) -> None:
        """Do every workload. After a failed one start the system anew, because servers may be
        damaged."""
        remaining = list(workloads)
        while remaining:
            system: System | None = None
            try:
                system = self._factory()
                self._report.describe(self._name, system.title, system.note)
                self._starts += 1
                folder = self._folder / str(self._starts)
                folder.mkdir()
                system.start(folder)
                self._report.describe(self._name, system.title, system.note)
                while remaining:
                    if not self._workload(system, remaining.pop(0), sizes, source):
                        break
            except clients.NotApplicable as reason:
                for workload in remaining:
                    self._report.not_applicable(self._name, workload, str(reason), set())
                remaining = []
            except Exception as error:  # noqa: BLE001 - it is reported; the other systems go on
                self._failed(remaining, error, set())
                remaining = []
            finally:
                if system is not None:
                    system.stop()

    def _workload(self, system: System, workload: str, sizes: Sizes, source: Path) -> bool:
        """Do one workload. Return False if it failed."""
        self._say(f"  {workload}")
        given = set()
        try:
            work = system.elsewhere(workload) or self._known[workload]
            for figure in work(system, sizes, source):
                if isinstance(figure, Memory):
                    self._report.add_memory(self._name, figure)
                else:
                    self._report.add(self._name, figure)
                    given.add(figure.name)
        except clients.NotApplicable as reason:
            self._report.not_applicable(self._name, workload, str(reason), given)
        except Exception as error:  # noqa: BLE001 - it is reported; the other workloads go on
            self._failed([workload], error, given)
            return False
        return True

    def _failed(self, workloads: Sequence[str], error: Exception, given: set[str]) -> None:
        text = str(error)
        if not isinstance(error, clients.ClientFailed):
            text = f"{type(error).__name__}: {text}"
        self._say(f"  failed: {text}")
        for workload in workloads:
            self._report.failed(self._name, workload, text, given)
