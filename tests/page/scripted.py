"""The web page of a cluster that a test invents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from time import monotonic

from neo.admin.facts import Data, operation_data, table_data
from neo.admin.judgement import gather, judge
from neo.admin.page.access import Access
from neo.admin.page.accounts import Accounts, hash_password
from neo.admin.page.commanding import Refused, Shown, Wanted
from neo.admin.page.overview import Done
from neo.admin.page.site import Site
from neo.admin.status import status_data
from neo.node.http import TEXT, HttpServer, Page
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import nid_namespace, tid_from_time
from neo.protocol.packets import NodeRow

NOW = 1_800_000_000.0
M1 = nid_namespace(NodeType.MASTER) + 1
NODES: list[NodeRow] = [
    (NodeType.MASTER, ("127.0.0.1", 2001), M1, NodeState.RUNNING, None),
    (NodeType.STORAGE, ("127.0.0.1", 2101), 1, NodeState.RUNNING, 6.0),
    (NodeType.STORAGE, ("127.0.0.1", 2102), 2, NodeState.DOWN, 7.0),
    (NodeType.STORAGE, ("127.0.0.1", 2103), 3, NodeState.RUNNING, 7.0),
]
PASSWORD = "correct horse battery"
HASH = hash_password(PASSWORD)
EVIL = "<img src=x onerror=\"document.title='owned'\">"


def invented(partitions: int = 12, says: str = EVIL) -> Data:
    """Return what ``/api/status`` says of a cluster with a node that is down, ``says`` what it wants, and
    with cells in all states."""
    states = (CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING, CellState.CORRUPTED)
    rows = [[(1, states[n % 4]), (2, CellState.UP_TO_DATE)] for n in range(partitions)]
    table, last = table_data(7, 1, rows), tid_from_time(NOW - 90)
    found = gather(ClusterState.RUNNING, NODES, table, {2: says}, {}, last, NOW)
    operation = operation_data(
        (
            *(3, "replace", {"old": 2, "new": 3}, "RUNNING", NOW - 60, ["table"], says),
            [("copy", [3], False, True), ("drop", [0], True, True)],
            [(3, 0, "running", 0.25, says)],
        )
    )
    status = status_data(
        found._replace(operations=[operation]),
        judge(found, NOW),
        primary=M1,
        last_oid=None,
        last_tid=last,
        scrub=None,
        disks=[(1, "0.1.0", 10**10, [("database", 5 * 10**9, 10**11)])],
    )
    more: Data = {"last_time": NOW - 90, "lag": None, "transactions": [], "open": 0}
    backups = [
        {"name": "bak", "state": "BACKINGUP", "lag": 75.0, "severity": "warning", "text": says}
    ]
    history = [[5.0 * n, n % 7 + 0.5] for n in range(100, 0, -1)]
    return {
        **{"cluster": "shop", "version": "0.1.0", "now": NOW, "connected": True, "seen": NOW},
        "status": {**status, **more, "backups": backups, "prepared": [], "undecided": 0},
        "commits": {"per_second": 12.5, "total": 4711, "since": NOW - 900, "history": history},
    }


class Invented:
    """Tells ``data``, which a test may change."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.asked = 0

    def tell(self, done: Done) -> None:
        self.asked += 1
        done(self.data)


class Commanded:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[Wanted] = []

    def preview(self, wanted: Wanted) -> Shown:
        return Shown(f"neoctl {wanted.action}", "It happens.", "as it is", "seal")

    def execute(self, wanted: Wanted, seal: str) -> str:
        if seal != "seal":
            raise Refused("it would not do any more what was shown", "look again")
        self.done.append(wanted)
        return "done it"


class Signing:
    """Signing in for ``ada``, on a clock of the test."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.file = folder / "passwords"
        self.accounts = Accounts(str(self.file))
        self.accounts.set("ada", HASH)
        self.commander = Commanded()
        self.access = Access("shop", self.accounts, self.commander, lambda: self.now)


def another_thread(callback: Callable[..., None], *args: object) -> None:
    Thread(target=callback, args=args, daemon=True).start()


@contextmanager
def served(teller: Invented, access: Access | None = None) -> Iterator[str]:
    """Serve the page, and yield its URL. ``access``: None if nobody can sign in."""
    site = Site(teller, another_thread, access or Access("shop", None, None, monotonic))
    nothing = Page(HTTPStatus.NOT_FOUND, TEXT, b"nothing\n")
    server = HttpServer(("127.0.0.1", 0), None, lambda path: nothing, site)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.address[1]}/"
    finally:
        server.close()
