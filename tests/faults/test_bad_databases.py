"""Databases that a storage node must not use: it logs the reason, prints it, and ends with 1."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.net.sockets import format_address
from neo.storage.backend.factory import make_backend
from neo.storage.backend.mariadb.link import parse
from tests.faults.bad_peers import NAME, Patient
from tests.support.mariadb import Server, mariadb_server  # noqa: F401
from tests.support.patience import PATIENCE_SECONDS

NOBODY = 65534


@pytest.fixture(scope="module")
def running() -> Iterator[Patient]:
    with Patient(storages=1) as patient:
        yield patient


@pytest.fixture
def patient(running: Patient) -> Iterator[Patient]:
    running.check()
    running.mark()
    yield running
    running.check()


#: A storage node that gives up the rights of root, which may write any file. Imports come first,
#: because it may not be able to read the program afterwards.
AS_NOBODY = f"""
import encodings.idna, os, sys
import neo.storage.backend.sqlite.engine
from neo.storage.__main__ import main
if os.getuid() == 0:
    os.setuid({NOBODY})
sys.exit(main())
"""


def refusal(patient: Patient, database: Path | str, *program: str, adapter: str = "SQLite") -> str:
    """Start a storage node of the cluster. Return the reason for which it refuses its database."""
    with tempfile.NamedTemporaryFile("r") as log:
        os.chmod(log.name, 0o666)
        command = [sys.executable, *(program or ["-m", "neo.storage"])]
        command += ["-c", NAME, "-b", "127.0.0.1:0", "-l", log.name]
        command += ["-a", adapter, "-d", str(database)]
        command += ["-m", format_address(patient.address("master"))]
        process = subprocess.run(
            command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS
        )
        assert process.returncode == 1, process.stderr
        prefix, _, text = process.stderr.rstrip().partition(": ")
        assert prefix == "neostorage"
        assert f"CRITICAL neo.node     {text}" in log.read()
        return text


class File:
    """A place for a SQLite database."""

    adapter = "SQLite"

    def __init__(self, folder: Path) -> None:
        self.name = str(folder / "node.sqlite")

    def execute(self, statement: str) -> None:
        with sqlite3.connect(self.name) as connection:
            connection.execute(statement)
        connection.close()


class OnServer:
    """A place for a database in a MariaDB server."""

    adapter = "MySQL"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = server.create_database()

    def execute(self, statement: str) -> None:
        self._server.query(f"USE {parse(self.name).database}", statement)


Place = File | OnServer


@pytest.fixture(params=["sqlite", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return File(tmp_path)
    return OnServer(request.getfixturevalue("mariadb_server"))


def database(place: Place, **config: str) -> str:
    """Make a database of a storage node with changed rows of ``config``."""
    backend = make_backend(
        place.adapter, place.name, None, lambda callback, *args: None, lambda failure: None
    )
    backend.open()
    backend.close()
    for name, value in config.items():
        place.execute(f"REPLACE INTO config VALUES ('{name}', '{value}')")
    return place.name


def test_of_another_cluster(patient: Patient, place: Place) -> None:
    text = refusal(patient, database(place, name="other"), adapter=place.adapter)
    assert "the database belongs to cluster 'other', not 'lab'" in text


def test_of_a_newer_format(patient: Patient, place: Place) -> None:
    text = refusal(patient, database(place, version="4"), adapter=place.adapter)
    assert "the format of the database is 4, newer than 3" in text
    assert place.name.partition("/")[0].removeprefix("root@") in text


def test_of_an_older_format(patient: Patient, place: Place) -> None:
    text = refusal(patient, database(place, version="2"), adapter=place.adapter)
    assert "the format of the database is '2', older than 3" in text


def test_of_another_program(patient: Patient, place: Place) -> None:
    place.execute("CREATE TABLE mails (body TEXT)")
    text = refusal(patient, place.name, adapter=place.adapter)
    assert "belongs to another program: it has the tables mails" in text


@pytest.mark.parametrize("content", [b"no database\n" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_not_a_database(patient: Patient, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    text = refusal(patient, path)
    assert "is not a SQLite database" in text or "is damaged" in text
    assert path.read_bytes() == content


def test_a_file_cut_short(patient: Patient, tmp_path: Path) -> None:
    path = Path(database(File(tmp_path)))
    path.write_bytes(path.read_bytes()[:5000])
    assert "is damaged" in refusal(patient, path)


def test_a_folder(patient: Patient, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    assert str(path) in refusal(patient, path)


def test_in_a_folder_that_is_not_there(patient: Patient, tmp_path: Path) -> None:
    text = refusal(patient, tmp_path / "missing" / ".." / "missing" / "node.sqlite")
    assert "The directory must exist and be writable" in text


@pytest.mark.parametrize("lock_mode", [0o444, 0o666])
def test_not_writable(patient: Patient, lock_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(database(File(Path(folder))))
        path.chmod(0o444)
        path.with_name("node.sqlite-lock").chmod(lock_mode)
        text = refusal(patient, path, "-c", AS_NOBODY)
    assert text.startswith(str(path))
    assert "writable" in text


def test_in_use_by_a_node_of_the_cluster(patient: Patient, tmp_path: Path) -> None:
    (node,) = patient.cluster.conf.of_role("storage")
    (path,) = patient.cluster.folder.glob("**/*.sqlite")
    assert node.name in str(path)
    link = tmp_path / "node.sqlite"
    link.symlink_to(path)
    (tmp_path / "node.sqlite-lock").symlink_to(f"{path}-lock")
    assert "another process uses this database" in refusal(patient, link)
