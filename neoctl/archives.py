"""The verb that verifies an archive, on the machine where it is given: it needs no cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from neo.admin import facts
from neo.archive.chain import select
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError
from neo.archive.manifest import Manifest
from neo.archive.verify import verify_partition
from neo.protocol.words import counted
from neoctl.verbs import Arguments, CommandError, Reply, local_verb, tid

#: Problems that are printed. One damaged disk may have a million.
PRINTED_MAX = 1000


@local_verb("verify PATH [TID]", "read the files of a backup that restore TID, and compare digests", 1, 2)
def verify(arguments: Arguments) -> Reply:
    """Data: ``copies`` (tids of the chain), ``moment`` (tid), ``problems`` (texts). Exit code 1 if there
    is a problem."""
    path, *words = arguments.words
    moment = tid(words[0]) if words else None
    folder = ArchiveFolder(path)
    try:
        chain = select(folder.complete(), moment)
    except (ArchiveError, OSError) as e:
        raise CommandError(str(e)) from None
    problems = []
    for problem in _problems(folder, chain.copies):
        problems.append(problem)
        if len(problems) == PRINTED_MAX:
            break
    copies = [facts.hex_id(copy.tid) for copy in chain.copies]
    data = {"copies": copies, "moment": facts.hex_id(chain.until), "problems": problems}
    lost = sum(file.lost for copy in chain.copies for file in copy.files)
    what = counted(lost, "content of a blob was", "contents of blobs were")
    hint = f"{what} lost already before the copy" if lost else ""
    if problems:
        return Reply("\n".join(problems), data, 1, hint)
    count = counted(len(copies), "copy", "copies")
    return Reply(f"{count}, intact: the database as it was at {data['moment']}", data, 0, hint)


def _problems(folder: ArchiveFolder, copies: list[Manifest]) -> Iterator[str]:
    """Yield all problems, and show a bar if stderr is a terminal."""
    total = sum(file.size for copy in copies for file in copy.files)
    columns = TextColumn("verify"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)
        for number in range(len(copies)):
            chain = copies[: number + 1]
            for file in chain[-1].files:
                yield from verify_partition(
                    folder, chain, file, lambda size: bar.advance(task, size)
                )
