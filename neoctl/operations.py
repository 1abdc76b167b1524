"""Verbs of operations: maintenance in steps, which happens as a whole or not at all (specification 27.1).

A verb that begins an operation waits for its end, and shows a progress bar on a terminal. The cluster
executes it, whatever happens to ``neoctl``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from neo.admin import facts
from neo.admin.facts import Data
from neo.admin.monitor import SERVING
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AbortOperation,
    AddPendingNodes,
    AskBeginOperation,
    AskClusterState,
    AskOperations,
    ForgetOperation,
)
from neoctl import render
from neoctl.client import AdminAway, AdminClient
from neoctl.commands import confirmed, pending_or_named
from neoctl.verbs import Arguments, CommandError, Reply, natural, nid, nids, tid, verb

#: Period in which an operation is asked how far it is: a person sees it move, and the master has little
#: to do.
POLL_SECONDS = 0.5
#: neoctl waits so long for a master that knows an operation. An election takes less, and the start of a
#: machine does.
PATIENCE_SECONDS = 120.0


@verb("backup [-n] PATH [full]", "copy the database into files of all nodes; again: what is new", 1, 2)
def backup(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    path, *words = arguments.words
    if words not in ([], ["full"]):
        raise CommandError(f"{words[0]!r} is not 'full'")
    _check_path(path)
    return _run(admin, "backup", {"path": path, "full": bool(words)}, arguments)


@verb("restore [-n] PATH [TID]", "load a backup into an empty cluster, as it was at TID", 1, 2)
def restore(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    path, *words = arguments.words
    _check_path(path)
    moment = tid(words[0]).hex() if words else ""
    return _run(admin, "restore", {"path": path, "tid": moment}, arguments)


@verb(
    "replace [-n] [--force] OLD NEW",
    "move all cells of a storage node to a new one, and drop it",
    2,
    2,
)
def replace(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    old, new = nids(arguments.words)
    return _run(admin, "replace", {"old": old, "new": new}, arguments)


@verb(
    "add [-n] [--force] NODE...|all",
    "give storage nodes their share of the cells; or add a master",
    1,
    None,
)
def add(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`; ``message`` for a master."""
    wanted = pending_or_named(admin, arguments.words)
    if not wanted:
        return Reply("No node added", {"message": "No node added"})
    if any(nid < 0 for nid in wanted):
        if arguments.dry_run:
            raise CommandError("a master is added at once: option -n is of storage nodes")
        return confirmed(admin.ask(AddPendingNodes(wanted)))
    return _run(admin, "add", {"nodes": wanted}, arguments)


@verb(
    "remove [-n] [--force] NODE...",
    "move the cells of storage nodes to the others, and drop the nodes",
    1,
    None,
)
def remove(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    return _run(admin, "remove", {"nodes": nids(arguments.words)}, arguments)


@verb("upgrade [-n] [NODE...]", "restart storage nodes with the installed release, in turn", 0, None)
def upgrade(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    return _run(admin, "upgrade", {"nodes": nids(arguments.words)}, arguments)


@verb("set partitions [-n] N", "divide the objects anew, while the cluster works", 1, 1)
def set_partitions(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: see :func:`neo.admin.facts.operation_data`."""
    return _run(admin, "partitions", {"partitions": natural(arguments.words[0])}, arguments)


@verb("print operations [ID]", "operations in progress, and the last ones; ID: each step and node", 0, 1)
def print_operations(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``operations`` (see :func:`neo.admin.facts.operation_data`)."""
    wanted = natural(arguments.words[0]) if arguments.words else None
    rows = [facts.operation_data(row) for row in admin.ask(AskOperations(wanted)).row_list]
    if wanted is None:
        text = "\n".join(map(render.operation_line, rows)) if rows else "No operation."
    else:
        text = "\n".join(line for row in rows for line in render.operation_details(row))
    return Reply(text, {"operations": rows})


@verb("abort ID", "undo an operation that has not succeeded yet", 1, 1)
def abort(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(AbortOperation(natural(arguments.words[0]))))


@verb("forget_operation ID NODE", "do not wait for a node that is lost to undo its part", 2, 2)
def forget_operation(admin: AdminClient, arguments: Arguments) -> Reply:
    id, node = arguments.words
    return confirmed(admin.ask(ForgetOperation(natural(id), nid(node))))


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise CommandError(
            f"{path!r} is not an absolute path: storage nodes open it, each on its machine"
        )


# -- running -------------------------------------------------------------------------------------


def _run(admin: AdminClient, kind: str, values: dict[str, Any], arguments: Arguments) -> Reply:
    """Begin an operation and wait for its end; with ``-n``, return its steps."""
    if arguments.force:
        values = {**values, "force": True}
    answer = admin.ask(AskBeginOperation(kind, values, arguments.dry_run))
    if answer.id is None:
        steps = [facts.operation_step_data(step) for step in answer.step_list]
        lines = (render.operation_step_line(number, step) for number, step in enumerate(steps, 1))
        return Reply("\n".join(lines), {"steps": steps})
    return _follow(admin, answer.id)


def _follow(admin: AdminClient, id: int) -> Reply:
    """Wait until an operation has ended. Interrupted, it goes on without this command."""
    try:
        row = deque(_watched(_polled(admin, id)), 1)[0]
    except AdminAway as e:
        raise AdminAway(f"{e}; {_goes_on(id)}") from None
    except KeyboardInterrupt:
        raise AdminAway(f"interrupted; {_goes_on(id)}") from None
    return Reply(render.operation_line(row), row, 0 if row["state"] == "SUCCEEDED" else 1)


def _goes_on(id: int) -> str:
    return f"the operation goes on: neoctl print operations {id}; to undo it: neoctl abort {id}"


def _polled(admin: AdminClient, id: int) -> Iterator[Data]:
    """Yield an operation again and again, until it has ended. Another master may take over meanwhile, or
    the only one may be started anew and learn of the operation. Raise AdminAway after
    PATIENCE_SECONDS without an answer, CommandError if a master that serves does not know it."""
    known = time.monotonic()
    while True:
        try:
            (found,) = admin.ask(AskOperations(id)).row_list
        except (AdminAway, ErrorAnswer) as e:
            if time.monotonic() - known > PATIENCE_SECONDS:
                raise AdminAway(str(e)) from None
            time.sleep(POLL_SECONDS)
            with suppress(AdminAway, ErrorAnswer):
                admin.reconnect()
                _check_known(admin, id)
            continue
        known = time.monotonic()
        row = facts.operation_data(found)
        yield row
        if row["state"] in facts.OPERATION_ENDED:
            return
        time.sleep(POLL_SECONDS)


def _check_known(admin: AdminClient, id: int) -> None:
    """Raise CommandError if the operation went down with the only master. One that recovers does not know
    yet what the storage nodes have."""
    if admin.ask(AskClusterState()).state not in SERVING:
        return
    try:
        admin.ask(AskOperations(id))
    except ErrorAnswer as e:
        if e.code is not ErrorCode.DENIED:
            raise
        raise CommandError(
            f"operation {id} is not known any more: the only master was started anew",
            "if a storage node is away that had begun it, that is undone when it is back; begin again",
        ) from None


def _watched(rows: Iterator[Data]) -> Iterator[Data]:
    """Pass rows on, and show a bar if stderr is a terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        for row in rows:
            bar.update(task, completed=row["done"], description=render.operation_step_now(row))
            yield row
