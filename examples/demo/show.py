"""Output of the demonstration: coloured on a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TextIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 100
# In plain text, progress is one line per tenth of the work.
PLAIN_STEPS = 10
# Width of cells in a table with several columns, so that a row fits on a line.
CELL_WIDTH = 52


class Show:
    """Titles, sentences, tables and progress, on the standard output or another file."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.console = Console(file=file, highlight=False)
        self.plain = not self.console.is_terminal
        if self.plain:
            self.console = Console(file=file, highlight=False, width=PLAIN_WIDTH, color_system=None)
        self._scenes = 0

    def scene(self, title: str) -> None:
        """Begin a numbered scene."""
        self._scenes += 1
        self.console.print()
        self.console.print(Text(f"{self._scenes}. {title}", style="bold cyan"))

    def say(self, text: str, style: str = "") -> None:
        """Print one sentence."""
        self.console.print(Text(f"   {text}", style=style))

    def quote(self, command: str, output: str) -> None:
        """Print the output of a program."""
        self.console.print()
        self.console.print(Text(f"   $ {command}", style="bold"))
        for line in output.splitlines():
            self.console.print(Text.assemble("   ", Text.from_ansi(line)), soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a titled table; align numbers to the right."""
        table = Table(
            box=None if self.plain else box.SIMPLE_HEAD,
            header_style="dim",
            pad_edge=False,
            padding=(0, 3, 0, 0),
        )
        lines = [tuple(row) for row in rows]
        for position, name in enumerate(columns):
            numbers = all(isinstance(line[position], int) for line in lines)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        width = CELL_WIDTH if len(columns) > 1 else None
        for line in lines:
            table.add_row(*(cell(value, width) for value in line))
        self.console.print()
        self.say(title, "bold")
        if lines:
            self.console.print(Padding(table, (0, 0, 0, 3), expand=False))
        else:
            self.say("none")

    @contextmanager
    def progress(self, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        """Show progress during the block: call the value with (done so far, last item)."""
        if self.plain:
            yield self._plain_progress(total, unit)
            return
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task(unit, total=total)
            yield lambda done, last: bar.update(
                task, completed=done, description=f"{unit} {last:30.30}"
            )

    def _plain_progress(self, total: int, unit: str) -> Callable[[int, str], None]:
        step = max(1, total // PLAIN_STEPS)
        shown = 0

        def advance(done: int, last: str) -> None:
            nonlocal shown
            if done // step > shown or done == total:
                shown = done // step
                self.say(f"{done:,} of {total:,} {unit}{last and f', up to {last}'}")

        return advance

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Print the duration of the block if it succeeds."""
        start = perf_counter()
        yield
        self.say(f"{what} in {readable(perf_counter() - start)}", "green")


def cell(value: object, width: int | None) -> Text:
    """Format a value for a table, cut to ``width`` characters."""
    text = Text(f"{value:,}" if isinstance(value, int) else str(value))
    if width is not None:
        text.truncate(width, overflow="ellipsis")
    return text


def readable(seconds: float) -> str:
    """Format a duration."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
