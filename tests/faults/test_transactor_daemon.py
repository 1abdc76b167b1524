"""The transactor as a daemon: its life, its signals, its settings, its disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.transactor.client import TransactorError, ask_admin
from neo.transactor.debug import FLAGS, WITHOUT_OUTPUT
from neo.transactor.example import Table
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.resets import reset_unseen
from tests.support.transactors import Transactors, wait_same

TIMEOUT = 60.0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Transactors]:
    with Transactors(tmp_path, 3) as cluster:
        yield cluster


def test_the_daemon_detaches_writes_its_pid_dumps_on_signals_and_ends(tmp_path: Path) -> None:
    cluster = Transactors(tmp_path, 1)
    daemon = cluster["a"]
    debug = tmp_path / "debug"
    started = subprocess.run(
        daemon.command("-d", str(debug), "-dm", "0407"), timeout=PATIENCE_SECONDS, check=False
    )
    assert started.returncode == 0
    pid_file = daemon.folder / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), daemon.told)
    pid = int(pid_file.read_text())
    wait_until(lambda: bool(daemon.say("gettid")), daemon.told)
    assert daemon.say("debugmask").startswith(
        "debugmask 0407 se_tasks se_requests se_connections ta_trns"
    )
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        dump = daemon.folder / "dump"
        os.kill(pid, number)
        wait_until(lambda dump=dump: dump.exists() and "node: a" in dump.read_text(), daemon.told)
        dump.unlink()
    daemon.say('post 1 1 "x"')
    assert daemon.say("terminate") == ""
    wait_until(lambda: not pid_file.exists(), daemon.told)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), daemon.told)
    assert not Path(str(daemon.admin)).exists()
    assert "ta_trns: transaction 1 is 0:" in debug.read_text()


def test_each_debug_flag_that_has_a_meaning_shows_something(tmp_path: Path) -> None:
    debug = tmp_path / "debug"
    cluster = Transactors(tmp_path, 3)
    for daemon in cluster.daemons.values():
        daemon.start(*(["-d", str(debug)] if daemon.name == "a" else []), ready=False)
    with cluster.running():
        tables = [Table(cluster[name].service) for name in "ab"]

        def missing() -> list[str]:
            for table in tables:
                table.set("k", "v", TIMEOUT)
            shown = {line.split(":", 1)[0] for line in debug.read_text().splitlines()}
            return [flag for flag in FLAGS if flag not in {*shown, *WITHOUT_OUTPUT}]

        wait_until(lambda: not missing(), lambda: str(missing()))
        assert not any(f"\n{flag}: " in debug.read_text() for flag in WITHOUT_OUTPUT)
        for table in tables:
            table.close()


def test_debugging_in_the_background_needs_a_file(tmp_path: Path) -> None:
    daemon = Transactors(tmp_path, 1)["a"]
    assert subprocess.run(daemon.command(), timeout=PATIENCE_SECONDS, check=False).returncode == 0
    wait_until(lambda: bool(daemon.say("gettid")), daemon.told)
    assert daemon.say("debug on") == "error: no debug file: see debugfile\n"
    assert daemon.say("debug") == "debug off\n"
    debug = daemon.folder / "debug" / "messages"
    assert daemon.say(f"debugfile {debug}").startswith("error: a file is written into the debug")
    assert daemon.say("debugfile messages") == "debugfile messages\n"
    assert daemon.say("debug off") == "debug off\n" and daemon.say("debug on") == "debug on\n"
    assert daemon.say("debugdump") == "debugdump\n" and "node: a" in debug.read_text()
    daemon.say("terminate")
    wait_until(lambda: not (daemon.folder / "pid").exists(), daemon.told)


def test_a_second_process_with_the_same_logs_is_refused(three: Transactors) -> None:
    second = subprocess.run(
        three["a"].command("-nd"), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (
        second.returncode == 1
        and "is in use: another process runs with these logs" in second.stderr
    )


def test_a_full_disk_ends_the_node_with_a_reason_and_the_others_go_on(tmp_path: Path) -> None:
    cluster = Transactors(tmp_path, 3)
    with cluster:
        table = Table(cluster["a"].service)
        table.set("k", "1", TIMEOUT)
        cluster["b"].kill()
        # A limit on the size of files acts like a full disk: EFBIG instead of ENOSPC.
        limited = ["prlimit", "--fsize=4096", *cluster["b"].command("-nd")]
        cluster["b"].process = subprocess.Popen(limited, stderr=subprocess.DEVNULL)
        wait_until(lambda: bool(cluster["b"].say("gettid")), cluster["b"].told)
        for n in range(6):
            table.set("k", "x" * 1000 + str(n), TIMEOUT)
        wait_until(lambda: "cannot write to" in cluster["b"].told(), cluster["b"].told)
        assert cluster["b"].process.wait(PATIENCE_SECONDS) == 1
        cluster["b"].start()
        wait_same(cluster, table.tid - 1)
        table.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name = a", "name = z"), "setting 'name': z is not in section [peers]"),
        (("key = ", "kee = "), "unknown setting 'kee' in section [transactor]"),
        (("name = a", ""), "setting 'name' is missing"),
        (("[peers]", "[piers]"), "has no section [peers]"),
        (("service = 127.0.0.1:", "service = "), "is not an address: write host:port"),
        (("a = 127.0.0.1:", "a = b..example:"), "is not an address: write host:port"),
        (("key = ", "udp = maybe\nkey = "), "setting 'udp': 'maybe' is neither yes nor no"),
        (("key = ", "mtu = 100\nkey = "), "setting 'mtu': '100' is not a size"),
        (
            ("key = ", "keepalive = x\nkey = "),
            "setting 'keepalive': 'x' is not a number of seconds",
        ),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    daemon = Transactors(tmp_path, 1)["a"]
    command = daemon.command("-nd")
    conf = daemon.folder / "conf"
    conf.write_text(conf.read_text().replace(*change))
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert run.returncode == 2 and message in run.stderr


@pytest.mark.parametrize("kind", ["peer", "service", "admin"])
def test_who_is_gone_before_he_was_seen_does_no_harm(tmp_path: Path, kind: str) -> None:
    cluster = Transactors(tmp_path, 1)
    daemon = cluster["a"]
    address = f"127.0.0.1:{daemon.ports['admin']}"
    # Without the secret, commands on a port that other machines reach are refused.
    if kind == "admin":
        daemon.settings |= {"admin": address}
        refused = subprocess.run(
            daemon.command("-nd"), capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert refused.returncode == 2 and "setting 'admin_secret' is missing" in refused.stderr
        daemon.settings |= {"admin_secret": "for operators"}
    with cluster.running():
        daemon.start()
        assert daemon.process is not None
        reset_unseen(daemon.process.pid, ("127.0.0.1", daemon.ports[kind]))
        assert daemon.say("gettid")
        assert daemon.process.poll() is None and "a bug" not in daemon.told()
        if kind == "admin":
            with pytest.raises(TransactorError, match="error: the secret is wrong"):
                ask_admin(daemon.admin, "terminate", "for nobody")
        # The operator's command, by socket or with the secret.
        for words, said, code in (("gettid", "tlog_tid 0\n", 0), ("gettspec", "error: gettspec", 1)):
            run = subprocess.run(
                daemon.command("--say", words), capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
            assert run.stdout.startswith(said) and run.returncode == code
    run = subprocess.run(
        daemon.command("--say", "x"), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert run.returncode == 1 and "transactor: admin port " in run.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    daemon = Transactors(tmp_path, 1)["a"]
    with socket.create_server(("127.0.0.1", daemon.ports["service"])):
        run = subprocess.run(
            daemon.command("-nd"), capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    assert run.returncode == 1
    assert (
        f"cannot listen on 127.0.0.1:{daemon.ports['service']}: Address already in use"
        in run.stderr
    )
