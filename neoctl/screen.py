"""The screen of ``neoctl status``."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neo.admin import facts
from neo.admin.facts import Data, duration
from neo.protocol.words import counted
from neoctl import render

#: More partitions than this are shown as counts instead of letters.
LETTERS_MOST = 64
#: Columns if the output is not a terminal, so that no line is broken.
FILE_WIDTH = 200

COLOURS = {
    "RUNNING": "green",
    "BACKINGUP": "green",
    "PENDING": "yellow",
    "DOWN": "red",
    "problem": "bold red",
    "warning": "yellow",
}


def to_text(data: Data, now: float, last: float | None) -> str:
    """Return the screen, with colours if stdout is a terminal. ``last``: time of the last transaction."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    with console.capture() as capture:
        for part in _screen(data, now, last):
            # A terminal breaks long sentences itself, and joins them when it is widened.
            console.print(part, soft_wrap=isinstance(part, Text))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def _screen(data: Data, now: float, last_time: float | None) -> list[Any]:
    state = data["state"] or "UNKNOWN"
    title = Text.assemble(
        ("NEO cluster ", "bold"),
        (state, f"bold {COLOURS.get(state, 'yellow')}"),
        f"   primary master {data['primary']}",
        "" if data["election"] is None else f", {render.election_line(data['election'])}",
    )
    if last_time is None:
        last = Text("no transaction yet")
    else:
        age = now - last_time
        when = f"{duration(age)} ago" if age >= 0 else "in the future: check the clocks"
        last = Text(
            f"last transaction {data['last_tid_date']} UTC, {when}   tid {data['last_tid']}"
        )
    return [
        title,
        last,
        Text(_table_sentence(data)),
        *_scrub_sentence(data, now),
        *_sync_sentences(data),
        *_blob_sentence(data),
        *_operation_sentences(data),
        Text(),
        Padding(_node_table(data), (0, 0, 1, 0)),
        *_problem_lines(data["problems"]),
    ]


def _table_sentence(data: Data) -> str:
    if data["ptid"] is None:
        return "no partition table yet"
    replicas = data["replicas"]
    text = (
        f"{counted(len(data['partitions']), 'partition')}, {counted(replicas, 'replica')}, "
        f"partition table {data['ptid']}"
    )
    lose = data["can_lose"]
    if lose:
        text += f"; any {counted(lose, 'storage node')} may fail"
    elif lose == 0:
        text += "; no storage node may fail"
    return text


def _scrub_sentence(data: Data, now: float) -> list[Text]:
    """Return a sentence about the comparison of copies, if there are copies."""
    scrub = data["scrub"]
    if scrub is None or not data["replicas"]:
        return []
    text = f"copies are compared in the background, all in {duration(scrub['period_seconds'])}: "
    if scrub["round_end"] is not None:
        text += f"the last round ended {_ago(now - scrub['round_end'])}"
    else:
        text += (
            f"{scrub['compared']} of {len(data['partitions'])} partitions since the master began"
            f" {_ago(now - scrub['begun'])}"
        )
    return [Text(text)]


def _sync_sentences(data: Data) -> list[Text]:
    """Return a sentence for each synchronous standby, and one if this cluster is such a standby."""
    sync = data["sync"] or {"backups": [], "own": None}
    texts = [
        f"synchronous standby {row['name']}: {render.sync_state_text(row)} since"
        f" {facts.second(row['since'])} UTC; if it takes over now, lost is:"
        f" {render.sync_loss_text(row)}"
        for row in sync["backups"]
    ]
    if sync["own"] is not None:
        texts.append(f"this standby is {render.own_sync_text(sync['own'])}")
    return [Text(text) for text in texts]


def _blob_sentence(data: Data) -> list[Text]:
    """Return a sentence about the contents of blobs, if there are any."""
    rows = [row for row in data["blobs"] if row["contents"]]
    if not rows:
        return []
    count, size = sum(row["contents"] for row in rows), sum(row["bytes"] for row in rows)
    free = min(rows, key=lambda row: row["free"])
    text = (
        f"contents of blobs: {counted(count, 'file')}, {decimal(size)}, on {len(rows)} storage"
        f" node{'s' if len(rows) > 1 else ''}; {free['nid']} has {decimal(free['free'])} free"
    )
    left = sum(row["unverified"] for row in rows)
    return [Text(f"{text}; being verified" if left else text)]


def _operation_sentences(data: Data) -> list[Text]:
    """Return a sentence for each operation in progress, with what does not work on a node."""
    texts = []
    for row in data["operations"]:
        failed = [each for each in row["progress"] if each["mark"] == "failed"]
        why = f"; {failed[0]['node']}: {failed[0]['text']}" if failed else ""
        texts.append(Text(f"{render.operation_line(row)}{why}"))
    return texts


def _ago(seconds: float) -> str:
    return f"{duration(max(seconds, 0.0))} ago"


def _node_table(data: Data) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    disks = {row["nid"]: row for row in data["disks"]}
    names = ["node", "type", "address", "state", *(["data", "free"] if disks else []), "partitions"]
    for name in names:
        right = name in ("data", "free")
        table.add_column(name, no_wrap=name != "partitions", justify="right" if right else "left")
    for node in data["nodes"]:
        table.add_row(
            node["nid"],
            node["type"].lower(),
            node["address"] or "-",
            Text(node["state"], COLOURS.get(node["state"], "")),
            *(_room(disks.get(node["nid"])) if disks else []),
            _cells(data, node),
        )
    return table


def _room(row: Data | None) -> list[str]:
    """Return the bytes that a node keeps, and those that are free on the fullest of its disks."""
    if row is None:
        return ["", ""]
    parts = [(disk["free"] / max(disk["total"], 1), disk["free"]) for disk in row["disks"]]
    part, free = min(parts, default=(0.0, 0))
    return [decimal(row["bytes"]), f"{decimal(free)} ({part:.0%})" if parts else "?"]


def _cells(data: Data, node: Data) -> Text:
    if "cells" not in node or not data["partitions"]:
        return Text()
    if len(data["partitions"]) > LETTERS_MOST:
        counts = (f"{count} {state}" for state, count in sorted(node["cells"].items()))
        return Text(", ".join(counts))
    text = Text(render.letters(data, node["nid"]))
    text.highlight_regex("U+", "green")
    text.highlight_regex("[OF]+", "yellow")
    text.highlight_regex("C+", "red")
    return text


def _problem_lines(problems: list[Data]) -> list[Text]:
    if not problems:
        return [Text("No problem.", "green")]
    return [
        Text.assemble(
            (f"{problem['severity']}: ", COLOURS[problem["severity"]]),
            f"{problem['text']} -> {problem['advice']}",
        )
        for problem in problems
    ]
