"""neo.simple: a cluster of real processes, started, hurt, stopped, and started again."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.packets import AskClusterState, AskNodeList
from neo.simple import Cluster, ClusterError
from neo.simple.children import Guardian, tail
from neo.simple.conf import FIRST_PORT, LAST_PORT, ConfError, Shape, create
from tests.support.certificates import Authority
from tests.support.cluster import simple_cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range
from tests.support.whole import few


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def node_ids(cluster: Cluster) -> dict[tuple[str, int], int]:
    """Return the node ids of the storage nodes by address."""
    with cluster.admin() as admin:
        rows = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
    return {row[1]: row[2] for row in rows}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with simple_cluster(tmp_path / "data", storages=2, partitions=6, name="spam") as cluster:
        yield cluster


def test_cluster_is_running_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    with simple_cluster(tmp_path, storages=2) as cluster:
        with cluster.admin() as admin:
            assert admin.ask(AskClusterState()).state is ClusterState.RUNNING
        assert sorted(cluster.processes) == ["admin", "master1", "storage1", "storage2"]
        pids = [process.pid for process in cluster.processes.values()]
    assert not any(alive(pid) for pid in pids)
    assert cluster.processes == {}


def test_what_applications_and_operators_are_told(cluster: Cluster) -> None:
    assert cluster.uri == f"neo://spam@{cluster.masters}"
    assert f"master_nodes {cluster.masters}" in cluster.zconfig
    assert "name spam" in cluster.zconfig
    command = [sys.executable, "-m", "neoctl", "-f", str(cluster.conf.path)]
    for where in (command, [*command[:3], "-a", cluster.admin_address]):
        answer = subprocess.run(
            [*where, "print", "cluster"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "RUNNING\n", "")


def test_folder_is_served_again_at_the_same_addresses_with_the_same_ids(tmp_path: Path) -> None:
    with simple_cluster(tmp_path, storages=2, name="spam", partitions=4) as first:
        ids = node_ids(first)
        with first.admin() as admin:
            admin.ask(AskClusterState())
    with simple_cluster(tmp_path) as second:
        assert (second.uri, second.admin_address) == (first.uri, first.admin_address)
        assert node_ids(second) == ids
        assert second.name == "spam"


@pytest.mark.parametrize(
    "other",
    [
        {"storages": 3},
        {"partitions": 5},
        {"name": "x"},
        {"replicas": 1},
        {"masters": 2},
        {"host": "::1"},
    ],
)
def test_folder_of_another_shape_is_refused(tmp_path: Path, other: dict[str, object]) -> None:
    create(tmp_path / "neo.conf", Shape(storages=2))
    (name,) = other
    with pytest.raises(ClusterError, match=f"holds a cluster with {name} "):
        Cluster(tmp_path, **other)  # type: ignore[arg-type]
    Cluster(
        tmp_path, storages=2, partitions=12, name="neo", replicas=0, masters=1, host="127.0.0.1"
    )


def test_killed_storage_comes_back(cluster: Cluster) -> None:
    ids = node_ids(cluster)
    process = cluster.processes["storage1"]
    cluster.kill("storage1")
    assert process.returncode == -signal.SIGKILL
    assert "storage1" not in cluster.processes
    cluster.check()
    cluster.restart("storage1")
    cluster.wait_running(PATIENCE_SECONDS)
    assert node_ids(cluster) == ids


def test_master_restarted_cleanly_serves_again(cluster: Cluster) -> None:
    before = cluster.processes["master1"]
    cluster.restart("master1")
    assert before.returncode == 0
    assert cluster.processes["master1"].pid != before.pid
    cluster.wait_running(PATIENCE_SECONDS)


def test_one_process_serves_the_folder_of_several_and_back(tmp_path: Path) -> None:
    """Also after a kill, and with the words of the node that cannot go on."""
    shape = {"storages": 2, "name": "spam", "partitions": 4}
    with simple_cluster(tmp_path, processes=False, **shape) as first:
        assert list(first.processes) == ["server"]
        ids = node_ids(first)
        first.kill("server")
        first.restart("server")
        assert node_ids(first) == ids
        with pytest.raises(ClusterError, match="storage1 does not run"):
            first.kill("storage1")
    with simple_cluster(tmp_path) as second:
        assert sorted(second.processes) == ["admin", "master1", "storage1", "storage2"]
        assert node_ids(second) == ids
        with pytest.raises(ClusterError, match="running already"):
            Cluster(tmp_path, processes=False).start()
    third = simple_cluster(tmp_path, processes=False)
    (tmp_path / "storage2.sqlite").write_text("this is no database, but long enough to be one" * 99)
    with pytest.raises(ClusterError, match="neoserver: storage2: "):
        third.start()
    assert third.processes == {}


def test_process_that_dies_is_reported_with_the_end_of_its_log(cluster: Cluster) -> None:
    os.kill(cluster.processes["storage2"].pid, signal.SIGKILL)
    wait_until(lambda: cluster.dead() == ["storage2"], "storage2 does not die")
    with pytest.raises(ClusterError) as caught:
        cluster.check()
    text = str(caught.value)
    assert "storage2 was ended by signal 9" in text
    assert str(cluster.log("storage2")) in text
    assert "listening on" in text


def test_process_that_cannot_start_ends_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    cluster = simple_cluster(tmp_path, storages=2)
    (tmp_path / "storage2.sqlite").write_text("this is no database, but long enough to be one" * 99)
    with pytest.raises(ClusterError, match="storage2"):
        cluster.start()
    assert cluster.processes == {}


def test_wrong_setting_is_reported_with_the_words_of_the_process(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="log_level"):
        Cluster(tmp_path, settings={"log_level": "chatty"}).start()


def test_address_in_use_is_refused_by_name(tmp_path: Path) -> None:
    cluster = simple_cluster(tmp_path)
    with (
        socket.create_server(cluster.conf.of_role("admin")[0].address),
        pytest.raises(ClusterError, match="of admin is in use"),
    ):
        cluster.start()
    with simple_cluster(tmp_path) as running, pytest.raises(ClusterError, match="running already"):
        Cluster(running.folder).start()


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(storages=0), "storages is 0"),
        (Shape(partitions=0), "partitions is 0"),
        (Shape(replicas=1), "give --storages 2"),
        (Shape(adapter="MySQL"), "needs --database"),
        (Shape(storages=2, database="one"), "write {n}"),
        (Shape(host="localhost"), "host 'localhost' is not an IP address of this machine, such as"),
        (Shape(host="192.0.2.1"), "host '192.0.2.1' is not an IP address of this machine"),
    ],
)
def test_impossible_shape_is_refused(tmp_path: Path, shape: Shape, text: str) -> None:
    with pytest.raises(ConfError, match=text):
        create(tmp_path / "neo.conf", shape)
    assert not (tmp_path / "neo.conf").exists()


def test_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "neo.conf").write_text("[DEFAULT]\ncluster = x\n")
    with pytest.raises(ClusterError, match="choose another folder"):
        Cluster(tmp_path)
    assert (tmp_path / "neo.conf").read_text() == "[DEFAULT]\ncluster = x\n"


def test_databases_are_numbered_from_their_template(tmp_path: Path) -> None:
    conf = create(
        tmp_path / "neo.conf", Shape(storages=2, adapter="MySQL", database="u:p@neo{n}/sock")
    )
    text = conf.path.read_text()
    assert "database = u:p@neo1/sock" in text
    assert "database = u:p@neo2/sock" in text
    assert f"mark = {tmp_path}/storage2.acknowledged" in text


def test_ports_start_where_they_are_told(tmp_path: Path) -> None:
    base = free_range(3)
    conf = create(tmp_path / "neo.conf", Shape(port_base=base))
    assert [node.address[1] for node in conf.nodes] == [base, base + 1, base + 2]
    conf.check({"port_base": base})
    with pytest.raises(ConfError, match=f"first port is {base}, not 2050: leave --port-base out"):
        conf.check({"port_base": 2050})


def test_ports_that_nobody_tells_are_free_and_no_outgoing_connection_gets_them(
    tmp_path: Path,
) -> None:
    """Nothing listens there: other processes choose such ports, too."""
    ports = [node.address[1] for node in create(tmp_path / "neo.conf", Shape(storages=3)).nodes]
    assert len(set(ports)) == 5
    assert all(FIRST_PORT <= port < LAST_PORT for port in ports)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_busy_port_is_named(tmp_path: Path, host: str, family: socket.AddressFamily) -> None:
    with socket.create_server((host, 0), family=family) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(ConfError, match=f"port {port} is in use"):
            create(tmp_path / "neo.conf", Shape(host=host, port_base=port))


def test_guardian_ends_what_is_left_and_nothing_else() -> None:
    kept, left = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        guardian = Guardian()
        for process in (kept, left):
            guardian.tell("+", process.pid)
        guardian.tell("-", kept.pid)
        guardian.close()  # as when this process ends
        assert left.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        assert kept.poll() is None
    finally:
        for process in (kept, left):
            process.kill()
            process.wait()


def test_tail_is_short_whatever_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "cannot be read" in tail(log)
    log.write_bytes(b"")
    assert tail(log) == "(the log is empty)"
    log.write_bytes(b"line\n" * 100_000 + b"\xff last\n")
    assert tail(log).splitlines()[-1] == "\\xff last"
    assert len(tail(log).splitlines()) == 8


# -- the command -----------------------------------------------------------------------------------


def start_command(folder: Path, *words: str) -> subprocess.Popen[str]:
    old = (folder / "neo.conf").exists()
    ports = [] if old else ["--port-base", str(free_range(4))]
    return subprocess.Popen(
        [sys.executable, "-m", "neo.simple", "--folder", str(folder), *ports, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], end: str, name: str = "stdout") -> str:
    """Return the output up to a line that begins with ``end``, or all of it."""
    lines = []
    for line in getattr(process, name):
        lines.append(line)
        if line.startswith(end):
            break
    return "".join(lines)


def pids_of(folder: Path) -> list[int]:
    """Return the processes with the neo.conf of this folder in their command line."""
    wanted = str(folder / "neo.conf").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "cmdline").read_bytes().split(b"\0") and alive(int(entry.name)):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile
    return found


@pytest.mark.parametrize(
    ("number", "words", "count"),
    few(
        (signal.SIGTERM, [], 1),
        whole=((signal.SIGINT, ["--processes"], 4), (signal.SIGTERM, [], 1)),
    ),
)
def test_command_tells_how_to_use_the_cluster_and_stops_all(
    tmp_path: Path, number: int, words: list[str], count: int
) -> None:
    with start_command(tmp_path, "--storages", "2", "--name", "ham", *words) as process:
        out = read_until(process, "Ctrl-C")
        assert len(pids_of(tmp_path)) == count
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, err) == (0, "")
    assert pids_of(tmp_path) == []
    assert "neo://ham@127.0.0.1:" in out
    assert "<NEOStorage>" in out
    assert "neoctl -a 127.0.0.1:" in out


def test_command_with_tls_tells_what_works_and_ends_when_the_operator_stops_the_cluster(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "my cluster"
    files = Authority(tmp_path).node()
    words = ["--storages", "2", "--replicas", "1"]
    words += ["--ca", files.ca, "--cert", files.cert, "--key", files.key]
    with start_command(folder, *words) as process:
        out = read_until(process, "Ctrl-C")
        (line,) = (line for line in out.splitlines() if "neoctl" in line)
        *neoctl, verb = shlex.split(line.replace("neoctl", f"{sys.executable} -m neoctl", 1))
        assert verb == "status"
        for verb, answer in (("status", "No problem."), ("set cluster stopping", "state changed")):
            done = subprocess.run(
                [*neoctl, *verb.split()], capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
            assert (done.returncode, done.stderr) == (0, "") and answer in done.stdout
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, err) == (0, "")
        assert out == "neosimple: the cluster was stopped\n"
    assert pids_of(folder) == []


def test_command_killed_leaves_no_process(tmp_path: Path) -> None:
    with start_command(tmp_path) as process:
        read_until(process, "Ctrl-C")
        assert len(pids_of(tmp_path)) == 1
        process.kill()
        wait_until(lambda: pids_of(tmp_path) == [], "processes are left")


def test_command_reports_the_dead_and_goes_on(tmp_path: Path) -> None:
    with start_command(tmp_path, "--storages", "2", "--processes") as process:
        read_until(process, "Ctrl-C")
        wanted = b"storage2"
        (victim,) = (
            pid
            for pid in pids_of(tmp_path)
            if wanted in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        )
        os.kill(victim, signal.SIGKILL)
        err = read_until(process, "Start it again", "stderr")
        assert err.startswith("neosimple: storage2 was ended by signal 9")
        assert err.endswith(f"neostorage -f {tmp_path / 'neo.conf'} -s storage2\n")
        assert process.poll() is None
        assert len(pids_of(tmp_path)) == 3
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0


def test_command_ends_with_its_only_process(tmp_path: Path) -> None:
    with start_command(tmp_path, "--storages", "2") as process:
        read_until(process, "Ctrl-C")
        (server,) = pids_of(tmp_path)
        os.kill(server, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert err.startswith("neosimple: server was ended by signal 9")
    assert f"Start it again with: neoserver -f {tmp_path / 'neo.conf'}\n" in err
    assert err.endswith("neosimple: no process is left\n")


def test_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    with start_command(tmp_path, "--replicas", "1") as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("neosimple: 1 replicas need at least 2 storage nodes")
    assert err.count("\n") == 1
