"""examples/monitoring with Prometheus: each expression is understood and has data, each alert fires."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event

from ZODB import DB

from neo.admin.http import AdminPages
from neo.admin.observing import Observer, Snapshot
from neo.node.http import HttpServer
from neo.protocol.enums import ClusterState
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range
from tests.support.prometheus import Prometheus, running_prometheus

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
#: The addresses of the example, and the section of neo.conf that has each.
TARGETS = {
    "localhost:9050": "admin",
    "localhost:9051": "master1",
    "localhost:9052": "storage1",
    "localhost:9053": "storage2",
}
SNAPSHOT = Snapshot(
    primary=-1,
    state=ClusterState.RUNNING,
    cells=Counter(),
    warnings=["copy"],
    contents=[(1, 7, 7000, 1 << 40, 1, 2)],
    lags={"copy": 2.5},
)


class Told(Observer):
    """The admin node of a cluster with a backup and contents of blobs."""

    def __init__(self) -> None: ...

    def observe(self, done: Callable[[Snapshot], None]) -> None:
        done(SNAPSHOT)


@contextmanager
def told_admin() -> Iterator[str]:
    def at_once(callback: Callable[..., None], *args: object) -> None:
        callback(*args)

    server = HttpServer(("127.0.0.1", 0), None, AdminPages("shop", Told(), at_once, list).page)
    server.start()
    yield f"127.0.0.1:{server.address[1]}"
    server.close()


@contextmanager
def clients(cluster: Cluster) -> Iterator[None]:
    """Have clients join, load, commit and leave, until the end."""
    stop = Event()

    def work() -> None:
        while not stop.is_set():
            db = DB(cluster.storage())
            with db.transaction() as connection:
                root = connection.root()
                root["count"] = root.get("count", 0) + 1
            db.close()

    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        try:
            yield
        finally:
            stop.set()
            working.result(PATIENCE_SECONDS)


def expressions() -> list[str]:
    """Return the expressions of the dashboard, as Grafana sends them."""
    panels = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    targets = [target for panel in panels for target in panel.get("targets", [])]
    found = [target["expr"].replace("$__rate_interval", "10s") for target in targets]
    assert len(found) > 40
    return found


def rules(prometheus: Prometheus) -> dict[str, str]:
    """Return the expressions of the alerts by name."""
    (group,) = prometheus.get("rules", type="alert")["groups"]
    return {rule["name"]: rule["query"] for rule in group["rules"]}


def test_dashboard_and_alerts_have_data_of_a_cluster(tmp_path: Path) -> None:
    first = free_range(len(TARGETS))
    ports = {section: first + number for number, section in enumerate(TARGETS.values())}
    pages = {section: {"http": str(port)} for section, port in ports.items()}
    text = (EXAMPLES / "prometheus.yml").read_text().replace("15s", "1s")
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(storages=2, replicas=1, sections=pages))
        told = stack.enter_context(told_admin())
        for address, section in TARGETS.items():
            target = f'"127.0.0.1:{ports[section]}"'
            text = text.replace(f'"{address}"', f'{target}, "{told}"' if section == "admin" else target)
        (tmp_path / "prometheus.yml").write_text(text)
        shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
        working = stack.enter_context(ExitStack())
        working.enter_context(clients(cluster))
        prometheus = stack.enter_context(
            running_prometheus(tmp_path / "prometheus.yml", tmp_path)
        )
        def scraped() -> bool:
            with suppress(OSError):
                up = prometheus.up()
                return len(up) == len(TARGETS) + 1 and all(up.values())
            return False

        wait_until(scraped, "targets that are scraped")
        for each in expressions():
            wait_until(partial(prometheus.value, each), f"data of {each}")
        alerts = rules(prometheus)

        def true() -> set[str]:
            """The alerts that have a reason. Those of disks and of speed measure the machine."""
            found = {name for name, query in alerts.items() if prometheus.value(query)}
            return {name for name in found if "Disk" not in name and "Slow" not in name}

        assert true() == {"NeoWarning"}, "the told admin node warns"
        working.close()
        cluster.simple.kill("master1")
        lost = {"NeoNodeDown", "NeoNotReady", "NeoNodeNotReady", "NeoWarning"}
        wait_until(lambda: true() == lost, "alerts of a cluster without a master")


def test_each_alert_fires_for_the_series_of_its_test(tmp_path: Path) -> None:
    for name in ("alerts.yml", "alerts_test.yml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    rules = (tmp_path / "alerts.yml").read_text()
    alerts = [line.split()[-1] for line in rules.splitlines() if line.strip().startswith("- alert:")]
    tests = (tmp_path / "alerts_test.yml").read_text()
    assert len(alerts) > 20
    assert [line.split()[-1] for line in tests.splitlines() if line.startswith("  - name:")] == alerts
    command = ["promtool", "test", "rules", "alerts_test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "alerts.yml").write_text(rules.replace("neo_ready == 0", "neo_ready == 2"))
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0, "it can fail"
