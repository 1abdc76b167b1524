"""Embedded databases: how a folder is opened, shared inside a process, and refused."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path

import pytest
import ZODB
from ZODB.config import storageFromString

import neo.client
import neo.embedded
from neo.client.errors import ConfigurationError, RefusedError
from neo.client.uri import resolve_embedded
from neo.simple.conf import Shape, create

OPENING = """
import sys, neo.client
neo.client.open(sys.argv[1]).close()
"""


def greet(path: Path, greeting: str) -> None:
    with closing(ZODB.DB(neo.client.open(path))) as db, db.transaction() as connection:
        connection.root()["greeting"] = greeting


def greeting(path: Path) -> object:
    with closing(ZODB.DB(neo.client.open(path))) as db, db.transaction() as connection:
        return connection.root()["greeting"]


def test_a_folder_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    greet(path, "hello")
    assert greeting(path) == "hello"
    assert sorted(file.name for file in path.iterdir() if file.suffix == ".sqlite") == ["storage1.sqlite"]


def test_storages_of_one_folder_are_clients_of_the_same_nodes(tmp_path: Path) -> None:
    """Each hears of the commits of the others, and the last one closes the database."""
    first, second = ZODB.DB(neo.client.open(tmp_path)), ZODB.DB(neo.client.open(str(tmp_path)))
    with second.transaction() as connection:
        assert "x" not in connection.root()
    with first.transaction() as connection:
        connection.root()["x"] = 1
    first.close()
    with second.transaction() as connection:
        connection.sync()
        assert connection.root()["x"] == 1
    assert "in use" in refusal_of_another_process(tmp_path)
    second.close()
    assert refusal_of_another_process(tmp_path) == ""


def test_a_program_that_ends_without_close_loses_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, ZODB, neo.client\n"
        "connection = ZODB.DB(neo.client.open(sys.argv[1])).open()\n"
        "connection.root()['greeting'] = 'hello'\n"
        "connection.transaction_manager.commit()\n"
    )
    run = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert greeting(tmp_path) == "hello"


def test_databases_of_two_folders_are_sorted_alike_in_all_transactions(tmp_path: Path) -> None:
    with closing(neo.client.open(tmp_path / "1")) as one, closing(neo.client.open(tmp_path / "2")) as two:
        assert one.sortKey() != two.sortKey()


def refusal_of_another_process(path: Path) -> str:
    """Return the last line that a process prints that opens the folder."""
    run = subprocess.run([sys.executable, "-c", OPENING, path], capture_output=True, text=True)
    return run.stderr.strip().rpartition("\n")[2]


def test_the_errors_of_storages_whose_database_is_closed_are_clear(tmp_path: Path) -> None:
    storage = neo.client.open(tmp_path)
    storage.close()
    storage.close()
    with pytest.raises(neo.client.errors.ClosedError, match="the storage is closed"):
        storage.new_oid()


def test_a_uri_opens_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "with space"
    uri = f"neo+embedded://{tmp_path}/with%20space?cache_size=1MB&database_name=main"
    factory, options = resolve_embedded(uri)
    with closing(ZODB.DB(factory(), **options)) as db:
        assert db.database_name == "main"
        assert (path / "neo.conf").exists()
    with pytest.raises(ConfigurationError, match="is not neo.embedded:///absolute/path"):
        resolve_embedded("neo+embedded://relative/path")


def test_the_package_declares_the_resolver_of_the_uri() -> None:
    parser = ConfigParser()
    parser.read(Path(__file__).parents[3] / "setup.cfg")
    resolvers = parser["options.entry_points"]["zodburi.resolvers"].split("\n")
    assert f"neo+embedded = {resolve_embedded.__module__}:{resolve_embedded.__name__}" in resolvers


def test_zconfig_opens_a_folder(tmp_path: Path) -> None:
    section = "%import neo.client\n<NEOStorage>\n{}\n</NEOStorage>\n"
    with closing(storageFromString(section.format(f"path {tmp_path}\nread-only true"))) as storage:
        assert storage.isReadOnly()
    with pytest.raises(ConfigurationError, match="master_nodes is for a cluster, and '.*' is a folder"):
        storageFromString(section.format(f"path {tmp_path}\nmaster_nodes localhost:1\nname neo"))
    with pytest.raises(ConfigurationError, match="cache_dir is for a cluster, and '.*' is a folder"):
        storageFromString(section.format(f"path {tmp_path}\ncache-dir /nowhere"))
    with pytest.raises(ConfigurationError, match="master_nodes is missing; or give path"):
        storageFromString(section.format("name neo"))


def test_a_folder_of_several_storage_nodes_is_opened_with_all_of_them(tmp_path: Path) -> None:
    create(tmp_path / "neo.conf", Shape(storages=3, replicas=1))
    greet(tmp_path, "hello")
    with closing(neo.client.open(tmp_path)) as storage:
        assert len(storage.replicas.view().addresses) == 3
    assert greeting(tmp_path) == "hello"


@pytest.mark.parametrize(
    ("shape", "settings", "reason"),
    [
        (Shape(masters=3), {}, "several masters, which cannot be embedded: serve it with neosimple"),
        (Shape(adapter="MySQL", database="u@d"), {}, "in MariaDB, which cannot be embedded"),
        (Shape(settings={"sync_backups": "far"}), {}, "synchronous standbys, which cannot be"),
        (Shape(), {"database": "/elsewhere/storage1.sqlite"}, "in another folder. If this folder was"),
        (Shape(), {"bind": "nonsense"}, "is not the file of a neosimple cluster"),
    ],
)
def test_a_folder_that_cannot_be_embedded_is_refused_and_left_alone(
    tmp_path: Path, shape: Shape, settings: dict[str, str], reason: str
) -> None:
    conf = tmp_path / "neo.conf"
    create(conf, shape)
    parser = ConfigParser(interpolation=None)
    parser.read(conf)
    parser["storage1"].update(settings)
    with open(conf, "w") as file:
        parser.write(file)
    with pytest.raises(ConfigurationError, match=reason):
        neo.client.open(tmp_path)
    assert not (tmp_path / "storage1.sqlite").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "Data.fs").touch()
    with pytest.raises(ConfigurationError, match="folder .*Data.fs cannot be used: File exists"):
        neo.client.open(tmp_path / "Data.fs")


def test_a_database_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    create(tmp_path / "neo.conf", Shape())
    (tmp_path / "storage1.sqlite").write_text("this is no database" * 100)
    with pytest.raises(RefusedError, match=r"cannot be opened: .*is not a SQLite database"):
        neo.client.open(tmp_path)
    (tmp_path / "storage1.sqlite").unlink()
    greet(tmp_path, "nothing was locked")


def test_an_unexpected_error_ends_the_nodes_and_the_next_open_works(tmp_path: Path) -> None:
    greet(tmp_path, "hello")
    storage = neo.client.open(tmp_path, wait_timeout=1)
    machine = storage._session.host._machine  # type: ignore[attr-defined]

    def fail(_: None) -> None:
        raise ZeroDivisionError("planted")

    machine.loop.put((fail, None))
    with pytest.raises(RefusedError, match="stopped after an unexpected error: ZeroDivisionError"):
        storage.sync()
    storage.close()
    assert greeting(tmp_path) == "hello"


def test_a_process_with_greenlets_for_threads_is_told_to_serve_the_folder(tmp_path: Path) -> None:
    patched = f"from gevent import monkey; monkey.patch_all()\n{OPENING}"
    run = subprocess.run([sys.executable, "-c", patched, tmp_path], capture_output=True, text=True)
    assert "ConfigurationError: an embedded database needs threads, which gevent" in run.stderr
