"""The results of a run: figures of each round, medians, ratios to one process, targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.bench.report import environment
from tests.bench.spark.readers import KINDS
from tests.bench.spark.run import READERS, Figure, Measured


class Target(NamedTuple):
    """A target of Spark on two cores: so many times the rows per second of another reader."""

    kind: str
    reader: str
    ratio: float


#: "iterator" is that of any ZODB storage. "one process" reads the same pages as Spark does, which no
#: ordinary reader in one process does.
TARGETS = (
    Target("raw", "iterator", 5.0),
    Target("references", "iterator", 1.5),
    Target("json", "iterator", 1.7),
    Target("references", "one process", 1.5),
    Target("json", "one process", 1.7),
)
_SPARK = "local[2]"


class Figures:
    """The figures of one database."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def median(self, kind: str, reader: str, value: Callable[[Figure], float]) -> float:
        return statistics.median(value(f) for f in self._of(kind, reader))

    def rows_per_second(self, kind: str, reader: str) -> float:
        return self.median(kind, reader, lambda f: f.rows / f.seconds)

    def cpu_per_row(self, kind: str, reader: str) -> float:
        """Return the microseconds of processor time per row."""
        return self.median(kind, reader, lambda f: f.cpu / f.rows * 1e6)

    def bytes_per_row(self) -> float:
        return self._measured.size / self._measured.revisions

    def ratio(self, kind: str, reader: str, other: str) -> float:
        """Return the median of the ratios within each round, because the load of the machine changes
        slowly."""
        pairs = zip(self._of(kind, reader), self._of(kind, other), strict=True)
        return statistics.median(
            (one.rows / one.seconds) / (two.rows / two.seconds) for one, two in pairs
        )

    def _of(self, kind: str, reader: str) -> list[Figure]:
        return [f for f in self._measured.figures if (f.kind, f.reader) == (kind, reader)]


def to_json(found: dict[str, Measured]) -> dict[str, Any]:
    return {
        "environment": environment(),
        "databases": {
            name: {
                "revisions": measured.revisions,
                "bytes": measured.size,
                "figures": [figure._asdict() for figure in measured.figures],
                "targets": [
                    {**target._asdict(), "found": found_ratio, "met": found_ratio >= target.ratio}
                    for target, found_ratio in targets(measured)
                ],
            }
            for name, measured in found.items()
        },
    }


def targets(measured: Measured) -> Iterator[tuple[Target, float]]:
    figures = Figures(measured)
    for target in TARGETS:
        yield target, figures.ratio(target.kind, _SPARK, target.reader)


def markdown(found: dict[str, Measured]) -> str:
    lines = [environment()]
    for name, measured in found.items():
        lines += [
            "",
            f"**{name}: {measured.revisions:,} revisions, {measured.size / 1e6:,.0f} MB**",
        ]
        lines += ["", *_rates(Figures(measured)), "", *_ratios(Figures(measured))]
        lines += ["", "| target, on two cores | found |", "| --- | --- |"]
        for target, ratio in targets(measured):
            lines.append(
                f"| {target.kind}: {target.ratio} × {target.reader} |"
                f" {ratio:.2f}{'' if ratio >= target.ratio else ', missed'} |"
            )
    return "\n".join(lines) + "\n"


def _rates(figures: Figures) -> Iterator[str]:
    yield "| rows/s (MB/s) [µs of processors for a row] | " + " | ".join(READERS) + " |"
    yield "| --- " * (len(READERS) + 1) + "|"
    for kind in KINDS:
        cells = []
        for reader in READERS:
            rate = figures.rows_per_second(kind, reader)
            size = rate * figures.bytes_per_row() / 1e6
            cells.append(f"{rate:,.0f} ({size:.1f}) [{figures.cpu_per_row(kind, reader):.1f}]")
        yield f"| {kind} | " + " | ".join(cells) + " |"


def _ratios(figures: Figures) -> Iterator[str]:
    others = READERS[:2]
    yield f"| {_SPARK} divided by | " + " | ".join(others) + " |"
    yield "| --- " * (len(others) + 1) + "|"
    for kind in KINDS:
        ratios = (f"{figures.ratio(kind, _SPARK, other):.2f}" for other in others)
        yield f"| {kind} | " + " | ".join(ratios) + " |"
