"""tools/install-debian.sh: names what is missing, refuses what cannot work, installs nothing here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "install-debian.sh"


def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """The script with --print, which never installs."""
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), "--print", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=None if path is None else {"PATH": path},
    )


def test_the_demonstration_needs_nothing_where_python_runs() -> None:
    done = run("demo", sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_bare_machine_needs_python_for_the_demonstration_and_a_compiler_for_the_tests(
    tmp_path: Path,
) -> None:
    done = run("demo", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "python3 python3-venv\n")
    wanted = set(run("test", path=str(tmp_path)).stdout.split())
    assert {"python3-venv", "gcc", "pkg-config", "python3-dev"} <= wanted
    assert "prometheus" in wanted
    assert "mariadb-server" not in wanted, "the package with the service is never asked for"


def test_postgresql_is_wanted_where_its_programs_are_not(tmp_path: Path) -> None:
    missing = not list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    # The script also looks in the folders of the system's own programs.
    missing = missing and not Path("/usr/local/sbin/initdb").exists()
    bare = run("test", path=str(tmp_path))
    assert ("postgresql" in bare.stdout.split()) == missing
    (tmp_path / "initdb").write_text("")
    (tmp_path / "initdb").chmod(0o755)
    assert "postgresql" not in run("test", path=str(tmp_path)).stdout.split()


def test_an_old_python_is_named_with_its_version(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    done = run("demo", str(old))
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "3.9.2" in done.stderr


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("1.8.0_402", True), ("11.0.22", True), ("17.0.15", False), ("21", False), (None, True)],
)
def test_a_java_that_is_too_old_for_spark_is_none(
    tmp_path: Path, version: str | None, wanted: bool
) -> None:
    if version is not None:
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
        java.chmod(0o755)
    done = run("test", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ("default-jre-headless" in done.stdout.split()) == wanted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "/nowhere/python3.12"), "there is no /nowhere/python3.12"),
        (("lunch", sys.executable), "usage:"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
