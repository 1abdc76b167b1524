"""Count the calls of this project's own functions per operation: a measure that no machine changes.

Each process counts the calls of functions of the package ``neo`` in a profile hook, in all threads.
Functions of C and of libraries are not counted; a generator that is resumed is. The master and the
storage node are real processes with this module as the main one. Each sends its counts to a process that
connects to its Unix socket in the folder of the cluster. Statements of SQL are counted in the same hook.

    python -m tests.bench.calls          prints the counts, and the functions that they consist of

It begins with a table of what an operation costs each process: microseconds of a processor and system
calls are of another run, without the hook (:mod:`tests.bench.system_calls`).
"""

from __future__ import annotations

import json
import runpy
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64, u64, z64

import neo
from neo.client import Storage
from neo.simple import Cluster
from neo.simple.conf import NodeConf

PACKAGE = str(Path(neo.__file__).parent)
#: Operations that are counted together: timers of the nodes run meanwhile, and add little to each.
OPERATIONS = 200

Result = TypeVar("Result")
Measure = Callable[[Callable[[Any], object], list[Any]], Result]
Open = Callable[[], Storage]

#: Before the text of a statement, among the names of functions.
SQL = "SQL: "
#: Functions of C that run statements: of sqlite3 and of mysqlclient.
_STATEMENTS = ("execute", "executemany", "query")

Counts = dict[str, dict[str, float]]
"""By process, then by function: calls per operation. Statements begin with SQL."""


class Calls:
    """The calls in this process: of the thread that starts to count, and of threads that begin later."""

    def __init__(self) -> None:
        self._counts: Counter[CodeType] = Counter()
        self._statements: Counter[str] = Counter()

    def start(self) -> None:
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # A comprehension is a function of its own in some versions of Python only.
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[-5:] != "comp>":
            self._counts[code] += 1
        elif event == "c_call" and getattr(argument, "__name__", "") in _STATEMENTS:
            self._statements[" ".join(str(frame.f_locals.get("sql", "?")).split()[:3])] += 1

    def by_name(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for code, count in list(self._counts.items()):
            found[f"{code.co_filename[len(PACKAGE) + 1 :]}:{code.co_qualname}"] += count
        for sql, count in list(self._statements.items()):
            found[SQL + sql] += count
        return found


class CountedCluster(Cluster):
    """One master and one storage node that count their calls; no admin node is asked anything."""

    def __init__(self, folder: Path) -> None:
        # Not for the nodes, which run this file as a script that finds no other module of the tests.
        from tests.support.ports import free_range

        super().__init__(folder, storages=1, partitions=1, port_base=free_range(3))

    def command(self, node: NodeConf) -> list[str]:
        command = super().command(node)
        assert command[1] == "-m"
        return [sys.executable, __file__, str(self._socket(node.name)), *command[2:]]

    def _socket(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.calls"

    def calls(self, name: str) -> Counter[str]:
        """What a node has counted until now."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket(name)))
            with connection.makefile("rb") as answer:
                return Counter(json.loads(answer.read()))


def _serve(listener: socket.socket, calls: Calls) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(calls.by_name()).encode())


def _main_of_a_node(path: str, module: str, *arguments: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    calls = Calls()
    threading.Thread(target=_serve, args=(listener, calls), daemon=True).start()
    sys.argv = [module, *arguments]
    calls.start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _commit(storage: Any, oid: bytes, serial: bytes) -> bytes:
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(oid, serial, b"d" * 300, "", transaction)
    storage.tpc_vote(transaction)
    tid: bytes = storage.tpc_finish(transaction)
    return tid


def count(folder: Path) -> dict[str, Counts]:
    """By operation: ``load`` of an object that the client does not have, ``commit`` of one object."""
    with CountedCluster(folder) as cluster:
        oids = [p64(n) for n in range(1, OPERATIONS + 2)]
        fill(opener(cluster), oids)
        calls = Calls()
        calls.start()
        try:
            return measured(
                opener(cluster), oids, lambda work, items: _counted(cluster, calls, work, items)
            )
        finally:
            calls.stop()


def opener(cluster: Cluster) -> Open:
    """Return what opens a client of a cluster."""
    return lambda: Storage(cluster.masters, cluster.name, compress=False)


def fill(open_storage: Open, oids: Sequence[bytes]) -> None:
    """Create these objects."""
    with closing(open_storage()) as storage:
        for oid in oids:
            _commit(storage, oid, z64)


def measured(open_storage: Open, oids: list[bytes], measure: Measure[Result]) -> dict[str, Result]:
    """Measure loads and commits of all objects but the first, which warms the client up.

    ``measure(work, items)`` calls ``work`` with each item.
    """
    with closing(open_storage()) as storage:
        _commit(storage, oids[0], storage.load(oids[0])[1])
        serials: list[bytes] = []
        # As a connection of ZODB loads: in the view of the last transaction.
        view = p64(u64(storage.lastTransaction()) + 1)

        def load(oid: bytes) -> None:
            serials.append((storage.loadBefore(oid, view) or (b"", b""))[1])

        loads = measure(load, oids[1:])
        changes = list(zip(oids[1:], serials, strict=True))
        commits = measure(lambda item: _commit(storage, *item), changes)
    return {"load": loads, "commit": commits}


def _counted(
    cluster: CountedCluster, calls: Calls, operation: Callable[[Any], object], items: list[Any]
) -> Counts:
    def snapshot() -> dict[str, Counter[str]]:
        return {
            "client": calls.by_name(),
            "master": cluster.calls("master1"),
            "storage": cluster.calls("storage1"),
        }

    before = snapshot()
    for item in items:
        operation(item)
    after = snapshot()
    return {
        process: {name: n / len(items) for name, n in (after[process] - before[process]).items()}
        for process in after
    }


def total(counts: Counts, *processes: str) -> float:
    """Return the calls of functions of these processes."""
    return sum(
        n
        for process in processes
        for name, n in counts[process].items()
        if not name.startswith(SQL)
    )


def statements(counts: Counts, process: str) -> float:
    """Return the statements of SQL of a process."""
    return sum(n for name, n in counts[process].items() if name.startswith(SQL))


def main() -> None:
    from tests.bench import system_calls

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        costs = system_calls.costs(Path(other))
        for operation, counts in count(Path(folder)).items():
            print(f"\n{operation}, for each process:")
            print("process     µs  own calls  system calls  syncs  waits  statements of SQL")
            for process in counts:
                cost = costs[operation][process]
                own, sql = total(counts, process), statements(counts, process)
                system = f"{cost.calls:13.1f} {cost.syncs:6.2f} {cost.waits:6.1f}"
                print(f"{process:8} {cost.us:5.0f} {own:10.1f} {system} {sql:11.1f}")
            for process, functions in counts.items():
                print(f"{operation}, {process}: {total(counts, process):.1f}")
                for name, calls in sorted(functions.items(), key=lambda item: -item[1]):
                    if calls >= 0.5:
                        print(f"  {calls:6.1f}  {name}")
            for process, cost in costs[operation].items():
                print(f"{operation}, {process}, system calls: {cost.most()}")


if __name__ == "__main__":
    if sys.argv[1:]:
        _main_of_a_node(*sys.argv[1:])
    else:
        main()
