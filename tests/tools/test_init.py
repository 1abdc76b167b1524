"""`neoctl init`: the folder that it writes is that of a cluster, which its own units start."""

from __future__ import annotations

import io
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from transaction.interfaces import TransientError
from ZODB.DB import DB

from neo import __version__
from neo.client.storage import Storage
from neo.node.config import ConfigError
from neo.storage.__main__ import load_settings
from neoctl.__main__ import main
from neoctl.layout import PROGRAMS
from neoctl.units import DATA, SETTINGS
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range

ROOT = Path(__file__).parents[2]
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
ROLES = ("master", "storage", "admin")


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["init", str(tmp_path / "shop"), "shop", "10.0.0.1", "10.0.0.2", "10.0.0.3"]) == 0
    assert "README.md" in capsys.readouterr().err
    return tmp_path / "shop"


def test_keys_are_for_their_owner_alone_and_the_authority_stays_at_home(folder: Path) -> None:
    keys = sorted(folder.rglob("*.key"))
    assert len(keys) == 5  # of the authority, of three machines, of applications
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert [key for key in keys if key.name == "ca.key"] == [folder / "ca.key"]
    copies = {path.read_bytes() for path in folder.rglob("neo.conf")}
    assert len(copies) == 1, "all machines have the same settings"


def test_units_are_those_of_the_manual(folder: Path) -> None:
    """Each setting of the unit in docs/operating.md is in the units that are written."""
    units = folder / "machine1" / "etc" / "systemd" / "system"
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    manual = re.search(r"^### systemd\n.*?^```ini\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert manual is not None
    assert (units / "neostorage@.service").read_text() == manual[1]
    assert sorted(path.name for path in units.iterdir()) == [
        f"neo{role}@.service" for role in sorted(ROLES)
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop"], "0 machines: name one, or at least three"),
        (["shop", "10.0.0.1", "10.0.0.2"], "2 machines: name one, or at least three"),
        (["shop", "10.0.0.1", "10.0.0.1", "10.0.0.2"], "an address is named twice"),
        (["shop", "10.0.0.1", "::1", "10.0.0.2"], "by IPv4 addresses, or all by IPv6"),
        (["a shop", "10.0.0.1"], "'a shop' is no name of a cluster"),
        (["shop", "10.0.0.1:65535"], "the port of a master is at most 65532"),
        (["shop", "10.0.0.1:x"], "is not an address"),
        ([], "write: neoctl init FOLDER NAME HOST"),
    ],
)
def test_what_cannot_be_a_cluster_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert main(["init", str(tmp_path / "shop"), *words]) == 1
    assert said in capsys.readouterr().out
    assert not (tmp_path / "shop").exists()


def test_name_and_addresses_are_asked_for_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO("shop\n10.0.0.1, 10.0.0.2 10.0.0.3\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["init", str(tmp_path / "shop")]) == 0
    assert "Name of the cluster" in capsys.readouterr().err
    assert "masters = 10.0.0.1:2050 10.0.0.2:2050 10.0.0.3:2050\n" in (
        tmp_path / "shop" / "neo.conf"
    ).read_text()
    assert main(["init", str(tmp_path / "other")]) == 1
    assert "no answer: nothing is written" in capsys.readouterr().out


def test_a_folder_with_files_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "ca.key").read_bytes()
    assert main(["init", str(folder), "shop", "10.0.0.1"]) == 1
    assert "is not empty: choose a new one" in capsys.readouterr().out
    assert (folder / "ca.key").read_bytes() == before


def test_one_machine_has_one_master_and_no_copies(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "one"), "one", "::1"]) == 0
    text = (tmp_path / "one" / "neo.conf").read_text()
    assert "masters = [::1]:2050\n" in text and "replicas = 0\n" in text
    assert "election_log" not in text
    assert "ip6 saddr @nodes" in (tmp_path / "one/machine1/etc/neo/neo.nft").read_text()


# -- the cluster -----------------------------------------------------------------------------------


class Machines:
    """Machines that have got their files, with folders of this test instead of those of the system."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.written = root / "shop"
        hosts = [f"{host}:{port}" for host in HOSTS]
        assert main(["init", str(self.written), "shop", *hosts]) == 0
        (root / "data").mkdir()
        for number in range(1, len(HOSTS) + 1):
            path = self.settings(number) / "neo.conf"
            text = path.read_text().replace(f"{SETTINGS}/", f"{self.settings(number)}/")
            # The machines of this test share loopback, where each has pages of its own.
            text = re.sub("^http = .*\n", "", text, flags=re.MULTILINE)
            text = text.replace("[admin2]\n", f"[admin2]\nhttp = {port + len(ROLES)}\n")
            path.write_text(text.replace(DATA, str(root / "data")))
        self.http = f"http://127.0.0.1:{port + len(ROLES)}"
        self.ready: dict[tuple[str, int], socket.socket] = {}
        self.processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def settings(self, number: int) -> Path:
        return self.written / f"machine{number}" / SETTINGS.lstrip("/")

    def start(self, role: str, number: int) -> None:
        """Execute what the unit of the role says."""
        unit = self.written / f"machine{number}/etc/systemd/system/neo{role}@.service"
        (line,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
        program, *words = shlex.split(line.replace("%i", str(number)))
        assert program == f"{PROGRAMS}/neo{role}"
        words = [word.replace(SETTINGS, str(self.settings(number))) for word in words]
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.settimeout(PATIENCE_SECONDS)
        name = f"@neo-test-{os.getpid()}-{self.root.name}-{role}{number}"
        if (role, number) in self.ready:
            self.ready[role, number].close()
        notify.bind(name.replace("@", "\0"))
        self.ready[role, number] = notify
        with open(self.root / f"{role}{number}.log", "ab") as log:
            self.processes[role, number] = subprocess.Popen(
                [sys.executable, "-m", f"neo.{role}", *words],
                env={**os.environ, "NOTIFY_SOCKET": name, "PYTHONPATH": str(ROOT)},
                stderr=log,
            )

    def kill(self, number: int) -> None:
        """Let a machine lose its power."""
        for role in ROLES:
            self.processes[role, number].kill()
            self.processes.pop((role, number)).wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for notify in self.ready.values():
            notify.close()

    def neoctl(self, number: int, *words: str) -> str:
        conf = str(self.settings(number) / "neo.conf")
        done = subprocess.run(
            [sys.executable, "-m", "neoctl", "-f", conf, *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout + done.stderr

    def storage(self) -> Storage:
        (masters,) = re.findall(
            "^masters = (.*)$", (self.written / "neo.conf").read_text(), re.MULTILINE
        )
        files = self.written / "application"
        return Storage(
            masters,
            "shop",
            ca=str(files / "ca.crt"),
            cert=str(files / "application.crt"),
            key=str(files / "application.key"),
        )


def status(url: str) -> int:
    """Return the status of a page."""
    try:
        with urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            code: int = answer.status
            return code
    except HTTPError as e:
        e.close()
        return e.code


def committed(db: DB) -> bool:
    """Commit something. Return whether that was possible now."""
    try:
        with db.transaction() as connection:
            connection.root()["greeting"] += " again"
    except TransientError:
        return False
    return True


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        machines = Machines(tmp_path, free_range(len(ROLES) + 1))
        stack.callback(machines.close)
        yield machines


def test_units_start_a_cluster_of_which_any_machine_may_be_lost(machines: Machines) -> None:
    everything = [(role, number) for number in (1, 2, 3) for role in ROLES]
    for role, number in everything:
        machines.start(role, number)
    for notify in machines.ready.values():
        assert notify.recv(100) == b"READY=1"
    assert f"neostorage {__version__} begins" in (machines.root / "storage1.log").read_text()
    wait_until(
        lambda: machines.neoctl(1, "print", "node").count("| PENDING |") == 3, "storage nodes"
    )
    assert status(f"{machines.http}/live") == 200
    assert status(f"{machines.http}/ready") == 503
    machines.neoctl(1, "start")
    wait_until(lambda: "RUNNING" in machines.neoctl(3, "print", "cluster"), "a database")
    wait_until(lambda: "any 1 storage node may fail" in machines.neoctl(1, "status"), "copies")
    db = DB(machines.storage())
    try:
        with db.transaction() as connection:
            connection.root()["greeting"] = "hello"
        machines.kill(1)
        wait_until(lambda: committed(db), "a commit without the first machine")
        wait_until(lambda: status(f"{machines.http}/ready") == 200, "readiness")
        with urlopen(f"{machines.http}/metrics", timeout=PATIENCE_SECONDS) as answer:
            assert "neo_problem{backup=\"\"} 1.0\n" in answer.read().decode()
        for role in ROLES:
            machines.start(role, 1)
        wait_until(lambda: "No problem." in machines.neoctl(1, "status"), "the first machine")
    finally:
        db.close()


def test_settings_of_a_machine_are_valid(folder: Path) -> None:
    """Every option of the written file exists, for each role."""
    conf = str(folder / "machine2" / "etc" / "neo" / "neo.conf")
    settings = load_settings(["-f", conf, "-s", "storage2"])
    assert (settings.bind, settings.database) == (("10.0.0.2", 2051), f"{DATA}/storage2.sqlite")
    with pytest.raises(ConfigError):
        load_settings(["-f", conf, "-s", "storage4"])
