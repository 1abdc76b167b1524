"""The results of a run: values by figure and system, medians, ratios; as JSON and as tables."""

import dataclasses
import importlib.metadata
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tests.bench.figures import KINDS, Figure, Kind, Memory
from tests.bench.sizes import Sizes

REFERENCE = "zeo"  # the system by which every other one is divided
PARTIAL = "the time limit ended the work before its full size; rates are of what was done"
_PACKAGES = ("ZODB", "ZEO", "RelStorage", "zodb-neo", "msgpack", "uvloop", "mysqlclient")


@dataclasses.dataclass(slots=True)
class Cell:
    """One figure of one system over all rounds."""

    values: list[float] = dataclasses.field(default_factory=list)
    partial: bool = False  # in some round the time limit ended the work early
    error: str | None = None  # the last failure
    not_applicable: str | None = None  # the reason

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


class Report:
    """Collects figures during a run, and shows them afterwards."""

    def __init__(
        self, systems: list[str], sizes: Sizes, rounds: int, kinds: Sequence[Kind] = KINDS
    ) -> None:
        self._all_kinds = kinds
        self._systems = {name: {"title": name, "note": ""} for name in systems}
        self._sizes = sizes
        self._rounds = rounds
        self._cells: defaultdict[tuple[str, str], Cell] = defaultdict(Cell)
        self._memory: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._floors: defaultdict[str, list[float]] = defaultdict(list)

    # -- while the run goes on

    def describe(self, system: str, title: str, note: str) -> None:
        self._systems[system] = {"title": title, "note": note}

    def add_floor(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._floors[name].append(value)

    def add(self, system: str, figure: Figure) -> None:
        cell = self._cells[figure.name, system]
        cell.values.append(figure.value)
        cell.partial |= figure.partial

    def add_memory(self, system: str, memory: Memory) -> None:
        for process, value in memory.processes.items():
            self._memory[memory.work, system, process].append(value)

    def failed(self, system: str, workload: str, error: str, given: set[str]) -> None:
        """Record a failure: every figure of `workload` that is not in `given` has no value."""
        for cell in self._missing(system, workload, given):
            cell.error = error

    def not_applicable(self, system: str, workload: str, reason: str, given: set[str]) -> None:
        """Record that the system cannot do the workload by its nature; as `failed` otherwise."""
        for cell in self._missing(system, workload, given):
            cell.not_applicable = reason

    def _missing(self, system: str, workload: str, given: set[str]) -> list[Cell]:
        return [
            self._cells[kind.name, system]
            for kind in self._all_kinds
            if kind.workload == workload and kind.name not in given
        ]

    # -- afterwards

    def errors(self, systems: Iterable[str]) -> list[str]:
        """Return a line for each failure of `systems`: figure, system and message."""
        return [
            f"{name}, {system}: {cell.error}"
            for (name, system), cell in self._cells.items()
            if cell.error is not None and system in systems
        ]

    def floor(self, name: str) -> float | None:
        """Return the median of one floor, in µs."""
        return statistics.median(self._floors[name]) if self._floors[name] else None

    def to_reference(self, kind: Kind, system: str) -> float | None:
        """Return the median divided by that of the reference system."""
        return _ratio(self._median(kind, system), self._median(kind, REFERENCE))

    def to_floor(self, kind: Kind, system: str) -> float | None:
        """Return the median divided by the floor, or by the rate that the floor allows."""
        if kind.floor is None:
            return None
        floor = self.floor(kind.floor)
        if floor is not None and kind.unit == "/s":
            floor = 1e6 / floor
        return _ratio(self._median(kind, system), floor)

    def _median(self, kind: Kind, system: str) -> float | None:
        return self._cells[kind.name, system].median

    def to_json(self) -> dict[str, Any]:
        """Return everything as values that json can write."""
        return {
            "format": 1,
            "machine": _machine(),
            "rounds": self._rounds,
            "sizes": dataclasses.asdict(self._sizes),
            "reference": REFERENCE,
            "floor": {
                name: {"values": values, "median": statistics.median(values)}
                for name, values in self._floors.items()
            },
            "systems": self._systems,
            "figures": [self._figure(kind) for kind in self._kinds()],
            "memory_mb": [
                {
                    "work": work,
                    "system": system,
                    "process": process,
                    "values": values,
                    "median": statistics.median(values),
                }
                for (work, system, process), values in self._memory.items()
            ],
        }

    def _kinds(self) -> list[Kind]:
        """Return the figures of the workloads that were run, in the order of the table."""
        seen = {name for name, _ in self._cells}
        return [kind for kind in self._all_kinds if kind.name in seen]

    def _figure(self, kind: Kind) -> dict[str, Any]:
        return {
            "name": kind.name,
            "title": self.title(kind),
            "unit": kind.unit,
            "floor": kind.floor,
            "systems": {
                system: {
                    **dataclasses.asdict(self._cells[kind.name, system]),
                    "median": self._median(kind, system),
                    "to_reference": self.to_reference(kind, system),
                    "to_floor": self.to_floor(kind, system),
                }
                for system in self._systems
            },
        }

    def title(self, kind: Kind) -> str:
        return kind.title.format(**dataclasses.asdict(self._sizes))

    # -- tables: rows of text, rendered by rich or as Markdown

    def tables(self) -> list[tuple[str, list[list[str]]]]:
        """Return the caption and the rows of each table. The first row is the header."""
        notes = Notes()
        main = [["", *self._titles()]]
        floors = [["", *self._titles()]]
        for kind in self._kinds():
            cells = [self._text(kind, system, notes) for system in self._systems]
            main.append([f"{self.title(kind)}, {kind.unit}", *cells])
            if kind.floor is not None:
                ratios = [_number(self.to_floor(kind, system)) for system in self._systems]
                floors.append([self.title(kind), *ratios])
        memory = [["", *self._titles()]]
        for work in dict.fromkeys(work for work, _, _ in self._memory):
            memory.append(
                [work.replace("_", " "), *(self._processes(work, name) for name in self._systems)]
            )
        times = ", ".join(
            f"{name.removesuffix('_us')} {_number(self.floor(name))} µs" for name in self._floors
        )
        about = [
            ["system", "note"],
            *([entry["title"], entry["note"]] for entry in self._systems.values()),
        ]
        found = [
            (f"Medians, rounds: {self._rounds} (in brackets: divided by ZEO)", main),
            (f"Divided by the machine's floor ({times})", floors),
            ("Peak memory of each process above idle, MB", memory),
            ("What was measured", about),
            ("Marks", [["mark", "meaning"], *notes.rows()]),
        ]
        return [(caption, rows) for caption, rows in found if len(rows) > 1]

    def _titles(self) -> list[str]:
        return [entry["title"] for entry in self._systems.values()]

    def _text(self, kind: Kind, system: str, notes: "Notes") -> str:
        cell = self._cells[kind.name, system]
        if cell.median is None:
            if cell.error is not None:
                return f"failed {notes.mark(cell.error)}"
            reason = cell.not_applicable
            return f"– {notes.mark(reason)}" if reason is not None else "–"
        text = _number(cell.median)
        ratio = self.to_reference(kind, system)
        if ratio is not None and system != REFERENCE:
            text += f" ({_number(ratio)})"
        if cell.partial:
            text += f" {notes.mark(PARTIAL)}"
        if cell.error is not None:
            text += f" {notes.mark('failed in another round: ' + cell.error)}"
        return text

    def _processes(self, work: str, system: str) -> str:
        return (
            ", ".join(
                f"{process} {_number(statistics.median(values))}"
                for (done, owner, process), values in self._memory.items()
                if (done, owner) == (work, system)
            )
            or "–"
        )

    def markdown(self) -> str:
        """Return the tables for a document, after a line about the machine."""
        lines = [environment(), ""]
        for caption, rows in self.tables():
            header, *body = [[text.replace("|", "\\|") for text in row] for row in rows]
            lines += [f"**{caption}**", "", _row(header), _row(["---"] * len(header))]
            lines += [*(_row(row) for row in body), ""]
        return "\n".join(lines)

    def rich_tables(self) -> list[Table]:
        """Return the tables for a terminal."""
        found = []
        for caption, (header, *body) in self.tables():
            table = Table(title=caption, title_justify="left")
            for number, column in enumerate(header):
                table.add_column(column, justify="right" if number and not header[0] else "left")
            for row in body:
                table.add_row(*(Text(text) for text in row))
            found.append(table)
        return found


class Notes:
    """Numbered remarks below a table. Equal remarks share a number."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        return self._marks.setdefault(text, f"[{len(self._marks) + 1}]")

    def rows(self) -> list[list[str]]:
        return [[mark, " ".join(text.split())] for text, mark in self._marks.items()]


def _row(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference


def _number(value: float | None) -> str:
    """Return a number with three significant digits: 0.123, 1.23, 12.3, 123, 1,230."""
    if value is None:
        return "–"
    for bound, digits in ((0.9995, 3), (9.995, 2), (99.95, 1)):
        if abs(value) < bound:
            return f"{value:.{digits}f}"
    return f"{float(f'{value:.3g}'):,.0f}"


def environment() -> str:
    """Return a line with the machine and the versions."""
    machine = _machine()
    packages = (f"{name} {version}" for name, version in machine["packages"].items() if version)
    return (
        f"{machine['system']}, {machine['processors']} processors, "
        f"Python {machine['python']}; {', '.join(packages)}."
    )


def _machine() -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
    }
