"""The recipe of the Debian package. What it installs, without the libraries of others: those would be
downloaded, and ``python -m tests.packages.debian`` installs all of it."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from neoctl import layout
from neoctl.__main__ import main
from neoctl.units import units
from tools.manual_pages import commands

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "packaging" / "debian"
COMMANDS = set(commands())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without libraries, unpacked; its scripts are in ``DEBIAN``."""
    folder = tmp_path_factory.mktemp("debian")
    environment = {**os.environ, "TOOLS": sys.executable, "COMPRESSION": "0"}
    done = subprocess.run(
        [str(RECIPE / "build.sh"), "--bare", str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    subprocess.run(["dpkg-deb", "-R", str(made), str(folder / "root")], check=True)
    return folder / "root"


def test_each_command_has_a_program_and_a_manual_page(package: Path) -> None:
    programs = package / "usr" / "bin"
    assert {path.name for path in programs.iterdir()} == COMMANDS
    for name in COMMANDS:
        program = f"{layout.PACKAGE_HOME}/bin/{name}"
        assert os.readlink(programs / name) == program
        script = package / program.lstrip("/")
        assert script.read_text().startswith(f"#!{layout.PACKAGE_HOME}/bin/python\n")
        assert os.access(script, os.X_OK)
        page = package / "usr" / "share" / "man" / "man1" / f"{name}.1.gz"
        assert "\\-\\-version" in gzip.decompress(page.read_bytes()).decode()
    completion = package / "usr/share/bash-completion/completions/neoctl"
    assert "complete -o default -F _neoctl neoctl" in completion.read_text()
    completion = package / "usr/share/zsh/vendor-completions/_neoctl"
    assert completion.read_text().startswith("#compdef neoctl\n")


def test_nothing_remembers_where_it_was_built(package: Path) -> None:
    places = [b"/stage", str(ROOT).encode()]
    found = [path for path in package.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in found if any(place in path.read_bytes() for place in places)] == []
    assert list(package.glob("usr/lib/neo/lib/python3.*/site-packages/neo/__pycache__/*.pyc"))


def test_the_units_are_those_of_neoctl_init_and_systemd_reads_them(
    package: Path, tmp_path: Path
) -> None:
    folder = package / "usr" / "lib" / "systemd" / "system"
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == units(layout.PACKAGE_PROGRAMS)
    for name, text in written.items():
        # systemd looks whether the program is there.
        program = f"{package}{layout.PACKAGE_HOME}/bin/neo"
        (tmp_path / name.replace("@", "@1")).write_text(
            text.replace(f"{layout.PACKAGE_PROGRAMS}/neo", program)
        )
    names = sorted(map(str, tmp_path.iterdir()))
    command = ["systemd-analyze", "verify", "--man=no", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "neo" in line]
    assert (done.returncode, said) == (0, [])


def test_scripts_of_the_package_leave_data_and_nodes_alone(package: Path) -> None:
    for name in ("postinst", "prerm", "postrm"):
        script = package / "DEBIAN" / name
        subprocess.run(["/bin/sh", "-n", str(script)], check=True)
        text = script.read_text()
        assert not re.search(r"\brm\b|deluser|systemctl (restart|start|enable)", text)
    control = (package / "DEBIAN" / "control").read_text()
    assert "@" not in control.replace("@localhost", "")
    assert re.search(r"^Depends: python3 \(>= 3\.\d+\), python3 \(<< 3\.\d+\), adduser", control, re.M)


def test_init_of_the_package_writes_what_the_package_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", layout.PACKAGE_HOME)
    assert main(["init", str(tmp_path / "shop"), "shop", "10.0.0.1", "10.0.0.2", "10.0.0.3"]) == 0
    readme = (tmp_path / "shop" / "README.md").read_text()
    assert "apt install ./" in readme and "useradd" not in readme and "/opt/neo" not in readme
    assert "sudo /usr/bin/neoctl -f" in readme
    files = {path.name for path in (tmp_path / "shop" / "machine1").rglob("*") if path.is_file()}
    assert files == {"neo.conf", "neo.nft", "ca.crt", "node.crt", "node.key"}
