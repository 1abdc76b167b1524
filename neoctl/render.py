"""Data of :mod:`neo.admin.facts` as text.

The forms of the text are fixed, because scripts of operators parse them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from rich.filesize import decimal

from neo.admin.facts import OPERATION_ENDED, Data, duration, hex_id, second
from neo.admin.monitor import tid_date
from neo.archive.folder import CONTENTS
from neo.protocol.enums import CellState
from neo.protocol.ids import format_nid, u64
from neo.protocol.packets import (
    LostContentRow,
)
from neo.protocol.words import counted

#: Letters of cells in ``print pt``.
LETTERS = {
    CellState.UP_TO_DATE.name: "U",
    CellState.OUT_OF_DATE.name: "O",
    CellState.FEEDING.name: "F",
    CellState.CORRUPTED.name: "C",
    CellState.DISCARDED.name: "D",
}
NO_CELL = "."
#: States of a synchronous standby in words.
SYNC_STATES = {
    "off": "switched off",
    "async": "not in sync",
    "joining": "joining",
    "sync": "in sync",
    "lost": "lost, commits wait for it",
}


# -- nodes ---------------------------------------------------------------------------------------


def timestamp_text(seconds: float | None) -> str:
    """Return ``2026-11-20 12:33:11.414714`` in UTC, or ``None``."""
    if seconds is None:
        return "None"
    return str(datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None))


def node_text(nodes: Sequence[Data]) -> str | None:
    """Return a line per node: ``S1 | STORAGE | 127.0.0.1:2001 | RUNNING | 2026-11-20
    12:33:11.445111``."""
    rows = [
        (
            node["nid"],
            node["type"],
            node["address"] or "",
            node["state"],
            timestamp_text(node["id_timestamp"]),
        )
        for node in nodes
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = [
        " | ".join([*map(str.ljust, row, widths), row[-1]])  # no padding at the end of a line
        for row in rows
    ]
    return "\n".join(lines) or None


# -- election ------------------------------------------------------------------------------------


def election_line(data: Data) -> str:
    """Return ``epoch 3, lease 1.8 s, log 17``."""
    return f"epoch {data['epoch']}, lease {data['lease']:.1f} s, log {data['tid']}"


def election_text(data: Data) -> str:
    """Return a title, then a line per master: ``M1 | 127.0.0.1:2000 | primary | 17 | ``."""
    rows = [
        (row["nid"], row["address"], row["role"], str(row["tid"]), row["note"])
        for row in data["masters"]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = [
        " | ".join([*map(str.ljust, row, widths), row[-1]]).rstrip(" |")
        for row in rows
    ]
    return "\n".join([f"# {election_line(data)}, partition table {data['ptid']}", *lines])


# -- partition table -----------------------------------------------------------------------------


def table_header(table: Data) -> str:
    return f"# ptid: {table['ptid']}, replicas: {table['replicas']}"


def letters(table: Data, nid: str) -> str:
    """Return the cells of a node, one letter per partition."""
    return "".join(
        LETTERS[row["cells"][nid]] if nid in row["cells"] else NO_CELL
        for row in table["partitions"]
    )


def table_by_node(table: Data, nodes: Sequence[Data]) -> str:
    """Return a line per storage node: its name, the initial of its state, a letter per partition."""
    width = max((len(node["nid"]) for node in nodes), default=0)
    lines = [
        f"{node['nid']:{width}} {node['state'][0]} {letters(table, node['nid'])}" for node in nodes
    ]
    return "\n".join([table_header(table), *lines])


def table_by_partition(table: Data) -> str:
    """Return a line per partition: ``000 | S1 - UP_TO_DATE | S2 - UP_TO_DATE |``."""
    lines = [
        f"{row['partition']:03} | "
        + "".join(f"{nid} - {state} | " for nid, state in row["cells"].items())
        for row in table["partitions"]
    ]
    return "\n".join([table_header(table), *(line.rstrip() for line in lines)])


# -- ids -----------------------------------------------------------------------------------------


def id_lines(oid: bytes | None, ptid: int | None, tids: dict[str, bytes | None]) -> str:
    """Return the ``name = value`` lines of ``print ids``. Tids that are None are omitted, except
    last_tid."""
    lines = [f"last_oid = {None if oid is None else hex(u64(oid))}"]
    for name, tid in tids.items():
        if tid is not None:
            lines.append(f"{name} = {u64(tid):#x} ({tid_date(tid)})")
        elif name == "last_tid":
            lines.append("last_tid = None")
    lines.append(f"last_ptid = {ptid}")
    return "\n".join(lines)


# -- checks --------------------------------------------------------------------------------------


def check_text(rows: Sequence[Data], min_tid: bytes, max_tid: bytes) -> str:
    """Return the number of partitions by finding, then a line per partition that is not equal."""
    if not rows:
        return "No check was made since the master started: neoctl check"
    counts = Counter(row["finding"] for row in rows)
    found = ", ".join(f"{finding}={count}" for finding, count in sorted(counts.items()))
    lines = [
        f"{row['partition']:03} | {row['finding']} | {row['text']}".rstrip(" |")
        for row in rows
        if row["finding"] not in ("equal", "alone")
    ]
    title = f"# transactions {hex_id(min_tid)} to {hex_id(max_tid)}: {found}"
    return "\n".join([title, *lines])


# -- open transactions -------------------------------------------------------------------------


def transaction_text(rows: list[Data]) -> str:
    """Return a title, then a line for each: ``0x…12 | C1 | 10.0.0.7:41234 | 95.1 | voted | 3 | 42.0``."""
    lines = [
        " | ".join(
            (
                *(row["ttid"], row["client"], row["address"] or "-", f"{row['age']:.1f}"),
                *(row["phase"], str(row["waiting"]), f"{row['seconds']:.1f}"),
            )
        )
        for row in rows
    ]
    return "\n".join(["# ttid | client | address | age | phase | waiting | seconds", *lines])


# -- prepared transactions ---------------------------------------------------------------------


def prepared_text(rows: list[Data]) -> str:
    """Return a title, then a line for each: ``neo-1 | prepared | 2026-11-25 12:00:00 | 2 | ada /pay``."""
    lines = [
        " | ".join(
            (
                *(row["xid"], row["state"], second(row["since"])),
                *(str(row["objects"]), " ".join(row["text"].split())),
            )
        )
        for row in rows
    ]
    return "\n".join(["# xid | state | since (UTC) | objects | text", *lines])


# -- contents of blobs -----------------------------------------------------------------------------


def content_text(rows: list[Data]) -> str:
    """Return a line for each node: ``S1 | 21,340 contents | 38.7 GB | 120.4 GB free | 3 lost``."""
    return "\n".join(map(_content_line, rows)) or "No storage node keeps contents of blobs."


def _content_line(row: Data) -> str:
    words = [
        *(row["nid"], counted(row["contents"], "content"), decimal(row["bytes"])),
        f"{decimal(row['free'])} free",
    ]
    if row["lost"]:
        words.append(f"{row['lost']:,} lost")
    if row["unverified"]:
        words.append(f"{counted(row['unverified'], 'partition')} to verify")
    return " | ".join(words)


def lost_content_data(rows: Iterable[LostContentRow]) -> list[Data]:
    """Return ``nid oid tid bytes checksum file`` of each revision whose content a node lost. ``file``:
    where it is in a backup made of files (specification 28.2)."""
    return [
        {
            "nid": format_nid(nid),
            "oid": hex_id(oid),
            "tid": hex_id(tid),
            "bytes": size,
            "checksum": checksum.hex(),
            "file": f"{CONTENTS}/{checksum.hex()[:2]}/{checksum.hex()}",
        }
        for nid, oid, tid, checksum, size in rows
    ]


def lost_content_text(rows: list[Data]) -> str:
    """Return a title, then a line for each: ``S1 | 0x…2a | 0x…12 | 3.4 MB | contents/ab/ab…``."""
    if not rows:
        return "No storage node knows of lost contents of blobs."
    lines = (
        " | ".join((row["nid"], row["oid"], row["tid"], decimal(row["bytes"]), row["file"]))
        for row in rows
    )
    return "\n".join(["# node | object | transaction | size | file in a backup made of files", *lines])


# -- synchronous standbys ---------------------------------------------------------------------------


def sync_text(data: Data) -> str:
    """Return a title and a line for each backup: ``bak | in sync | 2026-11-25 12:00:00 | 0x…12
    (2026-11-25 12:00:03) | nothing``. On a backup, return a sentence, too."""
    lines = [_own_text(data["own"])] if data["own"] is not None else []
    if data["backups"]:
        title = "# name | state | since (UTC) | complete up to | lost if it takes over now | reason"
        lines += [title, *map(_sync_line, data["backups"])]
    return "\n".join(lines) or "This cluster has no synchronous standby, and is none."


def _sync_line(row: Data) -> str:
    cells = (
        *(row["name"], sync_state_text(row), second(row["since"])),
        *(_complete(row), sync_loss_text(row), row["reason"]),
    )
    return " | ".join(cells).rstrip(" |")


def sync_state_text(row: Data) -> str:
    """Return a state in words; one of another version as it is."""
    state: str = row["state"]
    return SYNC_STATES.get(state, state)


def sync_loss_text(row: Data) -> str:
    """Return what is lost if a backup takes over now: ``nothing``, or ``about 3 seconds``."""
    if row["state"] == "sync":
        return "nothing"
    if row["lost"] is None:
        return "unknown"
    about = "about " if row["lost"] >= 1 else ""
    return f"{about}{duration(row['lost'])}"


def _own_text(own: Data) -> str:
    text = f"{own_sync_text(own)}\ncomplete up to {_complete(own)}"
    if own["state"] != "sync" and own["until"] is not None and own["tid"] is not None:
        text += (
            ": a commit that was acknowledged after that time, be it in the same second, is here if its"
            " tid is not greater"
        )
    return text


def own_sync_text(own: Data) -> str:
    """Return a sentence about this cluster as a synchronous standby."""
    name = repr(own["name"])
    if own["state"] == "sync":
        why = f"; {own['reason']}" if own["reason"] else ""
        return f"in sync with {name} since {second(own['since'])} UTC: nothing is missing{why}"
    why = f" ({own['reason']})" if own["reason"] else ""
    if own["until"] is None:
        return f"not in sync with {name} since its master began to serve{why}"
    return (
        f"in sync with {name} until {millisecond(own['until'])} UTC{why}; if that cluster stopped before"
        " that, nothing is missing"
    )


def _complete(row: Data) -> str:
    return "unknown" if row["tid"] is None else f"{row['tid']} ({row['tid_date']} UTC)"


def millisecond(seconds: float) -> str:
    """Return ``2026-11-25 12:00:00.250`` in UTC, rounded down."""
    milliseconds = math.floor(seconds * 1000)
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03}"


#: Arguments of operations that only nodes need.
_HIDDEN = frozenset(("gains", "losses", "pack", "readers"))
#: How others are shown, if not as they are.
_FORMS = {"full": "full", "tid": "as of 0x{}", "before": "instead of {}"}


def operation_line(row: Data) -> str:
    """Return an operation in one line."""
    text = f"operation {row['id']}: {row['kind']} {_operation_values(row)}".rstrip()
    state = row["state"].lower().replace("_", " ")
    if row["state"] in OPERATION_ENDED:
        return f"{text}: {state}" + (f": {row['text']}" if row["text"] else "")
    now = f"{operation_step_now(row)}, {100 * row['done']:.0f} %"
    if row["state"] == "ROLLING_BACK":
        left = {each["node"]: None for each in row["progress"] if each["mark"] != "rolled back"}
        now = f"{row['text']}; {', '.join(left)} must still undo its part" if left else row["text"]
    return f"{text}, {state}, {now}, since {second(row['since'])} UTC"


def _operation_values(row: Data) -> str:
    """Return the arguments of an operation that an operator wants to see, without choices of the master
    that only nodes need."""
    hidden = _HIDDEN if row["kind"] == "partitions" else _HIDDEN | {"partitions"}
    return " ".join(
        _FORMS.get(key, "{}").format(value)
        for key, value in row["arguments"].items()
        if key not in hidden and value not in (False, None, "")
    )


def operation_step_now(row: Data) -> str:
    """Return the first step that is not done everywhere."""
    for number, step in enumerate(row["steps"]):
        marks = [each for each in row["progress"] if each["step"] == number and each["done"] >= 1]
        if len(marks) < len(step["nodes"]):
            return f"step {number + 1} of {len(row['steps'])} ({step['name']})"
    return f"step {len(row['steps'])} of {len(row['steps'])}"


def operation_step_line(number: int, step: Data) -> str:
    notes = ["waits until all nodes have done the steps before"] if step["synchronised"] else []
    if not step["undo"]:
        notes.append("changes nothing that must be undone")
    text = f"{number}. {step['name']} on {', '.join(step['nodes'])}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def operation_details(row: Data) -> Iterator[str]:
    """Yield the lines of ``print operations ID``."""
    yield operation_line(row)
    if row["locks"] and row["state"] not in OPERATION_ENDED:
        yield f"locks: {', '.join(row['locks'])}"
    for number, step in enumerate(row["steps"]):
        yield operation_step_line(number + 1, step)
        for each in row["progress"]:
            if each["step"] == number:
                words = f": {each['text']}" if each["text"] else ""
                yield f"   {each['node']} {each['mark']}, {100 * each['done']:.0f} %{words}"
