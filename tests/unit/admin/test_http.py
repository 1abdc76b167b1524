"""HTTP of the admin node: ``/live``, ``/ready`` and ``/metrics`` (specification 17.35)."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from neo.admin.http import AdminPages
from neo.admin.metrics import families
from neo.admin.observing import Observer, Snapshot
from neo.net.tls import tls_context
from neo.node.figures import Sample
from neo.node.http import HttpServer
from neo.node.metrics import exposition
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import format_nid, tid_from_time
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_OURS,
    AnswerClientCaches,
    AnswerContents,
    AnswerLastTransaction,
    AnswerNodeDisks,
    AnswerTransactions,
    AskClientCaches,
    AskContents,
    AskLastTransaction,
    AskNodeDisks,
    AskTransactions,
    NotifyFeatures,
    TransactionRow,
)
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.admin.world import M1, World

TID = tid_from_time(1_800_000_000.0)
CLIENT = -536870911
SERVED = Snapshot(
    primary=M1,
    state=ClusterState.RUNNING,
    nodes=Counter(
        {
            (NodeType.STORAGE, NodeState.RUNNING): 2,
            (NodeType.STORAGE, NodeState.DOWN): 1,
            (NodeType.MASTER, NodeState.RUNNING): 3,
        }
    ),
    cells=Counter({CellState.UP_TO_DATE: 23, CellState.OUT_OF_DATE: 1}),
    partitions=12,
    replicas=1,
    last_tid=TID,
    warnings=[None],
    problems=["shop-backup"],
    summary="RUNNING; all is told here",
    contents=[(1, 7, 7000, 1 << 40, 1, 2)],
    disks=[(1, "0.1.0", 12345, [("database", 5, 10)])],
    caches=[(CLIENT, "web1:77", 1000, 900, 3, 40, 10)],
    transactions=[
        (TID, CLIENT, None, 4.5, "voted", 2, 1.0),
        (TID, CLIENT, None, 0.5, "waiting", 0, 0.0),
    ],
    lags={"shop-backup": None, "shop-copy": 2.5},
)


def figures(text: str) -> dict[tuple[str, str], float]:
    """Return the value of each sample, by its name and the values of its labels."""
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# -- what is observed ------------------------------------------------------------------------------


def test_snapshot_is_what_mirror_and_master_say() -> None:
    world = World()
    master = world.accept()
    master.send(NotifyFeatures([FEATURE_OURS, FEATURE_CACHES]))
    found: list[Snapshot] = []
    world.core.observer.observe(found.append)
    world.core.flush()
    rows: list[TransactionRow] = [(TID, CLIENT, None, 1.0, "begun", 0, 0.0)]
    disks = [(1, "0.1.0", 7, [("database", 5, 10)])]
    world.tell()
    master.answer(master.take(AskLastTransaction), AnswerLastTransaction(TID))
    for question, answer in (  # the health was told, now the rest
        (AskLastTransaction, AnswerLastTransaction(TID)),
        (AskContents, AnswerContents([])),
        (AskNodeDisks, AnswerNodeDisks(disks)),
        (AskTransactions, AnswerTransactions(rows)),
        (AskClientCaches, AnswerClientCaches(SERVED.caches)),
    ):
        master.answer(master.take(question), answer)
    (snapshot,) = found
    assert snapshot.disks == disks and snapshot.caches == SERVED.caches
    assert snapshot.ready and snapshot.primary == M1
    assert snapshot.nodes[NodeType.STORAGE, NodeState.RUNNING] == 2
    assert (snapshot.partitions, snapshot.cells) == (4, Counter({CellState.UP_TO_DATE: 4}))
    assert snapshot.last_tid == TID and snapshot.transactions == rows
    assert snapshot.summary.startswith("RUNNING; UP_TO_DATE=4; ")


def test_snapshot_without_a_master_is_empty_and_comes_in_any_case() -> None:
    world = World()
    found: list[Snapshot] = []
    world.core.observer.observe(found.append)
    assert found == [Snapshot()]
    master = world.accept()
    world.core.observer.observe(found.append)
    world.core.flush()
    master.lose()
    assert found == [Snapshot()] * 2 and not found[1].ready


# -- what is exposed -------------------------------------------------------------------------------


def test_metrics_of_a_cluster() -> None:
    found = figures(exposition([], families(SERVED, "shop")).decode())
    assert found["neo_ready", ""] == found["neo_connected", ""] == 1
    assert found["neo_cluster_state", "RUNNING"] == 1
    assert found["neo_cluster_state", "RECOVERING"] == 0
    assert found["neo_nodes", "RUNNING STORAGE"] == 2
    assert found["neo_nodes", "DOWN STORAGE"] == 1 and found["neo_nodes", "RUNNING MASTER"] == 3
    assert found["neo_cells", "OUT_OF_DATE"] == 1 and found["neo_cells", "CORRUPTED"] == 0
    assert found["neo_last_transaction_timestamp_seconds", ""] == pytest.approx(
        1_800_000_000, abs=1
    )
    assert found["neo_backup_lag_seconds", "shop-copy"] == 2.5
    assert ("neo_backup_lag_seconds", "shop-backup") not in found
    assert (found["neo_warning", ""], found["neo_problem", ""]) == (1, 0)
    assert (found["neo_warning", "shop-backup"], found["neo_problem", "shop-backup"]) == (0, 1)
    assert found["neo_transactions_open", ""] == found["neo_transactions_waiting", ""] == 2
    assert found["neo_transaction_oldest_seconds", ""] == 4.5
    assert found["neo_blob_disk_free_bytes", "S1"] == 1 << 40
    assert found["neo_blob_contents_lost", "S1"] == 1
    assert found["neo_node_info", "S1 0.1.0"] == 1 and found["neo_node_bytes", "S1"] == 12345
    for figure, value in (
        ("capacity_bytes", 1000),
        ("bytes", 900),
        ("entries", 3),
        ("hits_total", 40),
        ("misses_total", 10),
    ):
        assert found[f"neo_client_cache_{figure}", f"web1:77 {format_nid(CLIENT)}"] == value
    # Labels are in the order of the alphabet: disk, node.
    assert found["neo_disk_free_bytes", "database S1"] == 5
    assert found["neo_disk_size_bytes", "database S1"] == 10


def test_metrics_without_a_master_say_only_that() -> None:
    found = figures(exposition([], families(Snapshot(), "shop")).decode())
    assert found["neo_ready", ""] == found["neo_connected", ""] == 0
    assert not any(name.startswith("neo_nodes") for name, _ in found)


# -- HTTP ------------------------------------------------------------------------------------------


class Told(Observer):
    """Tells what the test chose, or nothing."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = SERVED

    def observe(self, done: Callable[[Snapshot], None]) -> None:
        if self.snapshot is not None:
            done(self.snapshot)


def another_thread(callback: Callable[..., None], *args: object) -> None:
    Thread(target=callback, args=args, daemon=True).start()


@contextmanager
def server(
    told: Told,
    tls: ssl.SSLContext | None = None,
    from_thread: Callable[..., object] = another_thread,
) -> Iterator[str]:
    server = HttpServer(("127.0.0.1", 0), tls, AdminPages("shop", told, from_thread, list).page)
    server.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.address[1]}"
    finally:
        server.close()


def get(url: str, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS, context=tls) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode()


def test_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    with server(told) as url:
        assert get(f"{url}/live") == (200, "live\n")
        assert get(f"{url}/ready?verbose") == (200, "RUNNING; all is told here\n")
        status, text = get(f"{url}/metrics")
        assert status == 200 and figures(text)["neo_partitions", ""] == 12
        assert get(f"{url}/")[0] == 200 and get(f"{url}/status")[0] == 404
        told.snapshot = SERVED._replace(state=ClusterState.RECOVERING, summary="RECOVERING")
        assert get(f"{url}/ready") == (503, "RECOVERING\n")
        told.snapshot = None
        monkeypatch.setattr("neo.admin.http.TIMEOUT_SECONDS", 0.05)
        assert get(f"{url}/ready")[0] == 503
        assert get(f"{url}/live") == (200, "live\n"), "the master does not answer, this node does"


def test_a_bug_is_logged_and_a_peer_that_went_away_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[Exception] = [ValueError("planted"), ConnectionResetError("planted")]

    def failing(callback: Callable[..., None], *args: object) -> None:
        raise errors.pop()

    with server(Told(), from_thread=failing) as url:
        for _ in range(2):
            with pytest.raises(OSError):
                get(f"{url}/ready")
        wait_until(lambda: caplog.text.count("ValueError: planted") == 1, "the bug is logged")
    assert len(caplog.messages) == 1 and "failure while serving HTTP" in caplog.messages[0]


def test_a_bug_in_a_figure_is_told_to_the_page_only() -> None:
    def samples() -> list[Sample]:
        raise ValueError("planted")

    pages = AdminPages("shop", Told(), another_thread, samples)
    with pytest.raises(ValueError, match="planted"):
        pages.page("/metrics")


def test_pages_over_tls_need_a_certificate_of_the_cluster(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node, monitor = authority.node(), authority.node("monitor")
    context = ssl.create_default_context(cafile=monitor.ca)
    context.check_hostname = False
    with server(Told(), tls_context(*node, server=True)) as url:
        with pytest.raises((OSError, urllib.error.URLError)):
            get(f"{url}/live", context)
        context.load_cert_chain(monitor.cert, monitor.key)
        assert get(f"{url}/live", context) == (200, "live\n")


def test_without_the_extra_metrics_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neo.admin.metrics", None)
    with server(Told()) as url:
        status, text = get(f"{url}/metrics")
        assert status == 501 and "pip install 'zodb-neo[metrics]'" in text
        assert get(f"{url}/ready")[0] == 200
