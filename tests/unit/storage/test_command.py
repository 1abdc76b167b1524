"""``neostorage``: its settings, and why it may refuse to start."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from neo.node.config import ConfigError
from neo.node.core_life import StartFailure
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import NotifyNodeInformation
from neo.storage import __main__ as command
from neo.storage import cluster
from neo.storage.__main__ import load_settings, make_core
from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.backend.api import Backend, BackendFailure, DatabaseAway
from neo.storage.node import StorageNode
from tests.unit.storage.world import FakeHost


def arguments(tmp_path: Path, *more: str) -> list[str]:
    database = str(tmp_path / "s1.sqlite")
    return ["-c", "test", "-m", "127.0.0.1:1", "-b", "127.0.0.1:2", "-d", database, *more]


def start(*argv: str, acknowledged: Acknowledged | None = None) -> StorageNode:
    host = FakeHost()
    settings = load_settings(list(argv))
    host.settings, host.bind = settings, settings.bind  # type: ignore[attr-defined]
    return make_core(host, acknowledged)  # type: ignore[arg-type]


def test_starts_on_sqlite_by_default(tmp_path: Path) -> None:
    core = start(*arguments(tmp_path))
    assert (tmp_path / "s1.sqlite").exists()
    assert core.settings.address == ("127.0.0.1", 2)
    assert len(core.settings.devpath) == 2
    core.stop(0)


def test_where_the_node_is_can_be_told_by_file_and_command_line(tmp_path: Path) -> None:
    """Specification 3.6."""
    core = start(*arguments(tmp_path, "--devpath", "room2 machine9,disk1"))
    assert core.settings.devpath == ("room2", "machine9", "disk1")
    core.stop(0)
    (tmp_path / "neo.conf").write_text(
        "[DEFAULT]\ncluster = test\nmasters = 127.0.0.1:1\n[storage1]\nbind = 127.0.0.1:2\n"
        f"devpath = room2 machine9\ndatabase = {tmp_path}/s1.sqlite\n"
    )
    core = start("-f", str(tmp_path / "neo.conf"), "-s", "storage1")
    assert core.settings.devpath == ("room2", "machine9")
    core.stop(0)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("-b 127.0.0.1:2", "'database' is missing"),
        ("-d x", "'bind' is missing"),
        ("-b 127.0.0.1:2 -d x -a Oracle", "'adapter'"),
        ("-b 127.0.0.1:2 -d x -w soon", "'wait'"),
        ("-b 127.0.0.1:2 -d x --new-nid --reset", "'new_nid'"),
    ],
)
def test_wrong_settings_are_named(more: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_settings(f"-c test -m 127.0.0.1:1 {more}".split())


def test_a_broken_list_of_masters_is_named(tmp_path: Path) -> None:
    (tmp_path / "masters").write_text("nonsense")
    with pytest.raises(ConfigError, match="is not a list"):
        start(*arguments(tmp_path, "-D", str(tmp_path / "masters")))


def test_masters_heard_of_are_kept_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "masters"
    core = start(*arguments(tmp_path, "-D", str(path)))
    row = (NodeType.MASTER, ("127.0.0.1", 3), None, NodeState.RUNNING, None)
    peer = core.dial(("127.0.0.1", 1), core._serve_master)
    core._serve_master.table[NotifyNodeInformation](peer, 0, NotifyNodeInformation(1.0, [row]))
    core.stop(0)
    core = start(*arguments(tmp_path, "-D", str(path)))
    assert core.masters.addresses == [("127.0.0.1", 1), ("127.0.0.1", 3)]
    core.stop(0)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (
            ["-e", "InnoDB"],
            "engine 'InnoDB' is a setting of the adapter MySQL; remove it for SQLite",
        ),
        (
            ["--mark", "m"],
            "mark 'm' is a setting of the adapter MySQL; remove it for SQLite, which keeps its own beside"
            " the database: .*acknowledged",
        ),
        (["-a", "MySQL", "-d", "neo1", "-e", "Aria"], "engine 'Aria' is not supported, use InnoDB"),
        (["-a", "MySQL", "-d", "/socket"], "database '/socket' is not of the form"),
    ],
)
def test_settings_that_do_not_fit_the_adapter(
    tmp_path: Path, more: list[str], complaint: str
) -> None:
    """Exit code 2: starting again is useless."""
    with pytest.raises(ConfigError, match=complaint):
        start(*arguments(tmp_path, *more))


def test_a_database_of_another_cluster_is_refused_unless_it_is_reset(tmp_path: Path) -> None:
    start(*arguments(tmp_path)).stop(0)
    argv = arguments(tmp_path)
    argv[1] = "other"
    with pytest.raises(StartFailure, match="belongs to cluster 'test', not 'other'"):
        start(*argv)
    start(*argv, "--reset").stop(0)
    start(*argv).stop(0)


def test_reset_erases_once_not_after_every_failure(tmp_path: Path) -> None:
    host = FakeHost()
    settings = load_settings(arguments(tmp_path, "--reset"))
    host.settings, host.bind = settings, settings.bind  # type: ignore[attr-defined]
    core = make_core(host)  # type: ignore[arg-type]
    core.database.backend.tables.set_config("nid", "5")
    core.stop(0)
    core = make_core(host)  # type: ignore[arg-type]
    assert core.cluster.nid == 5
    core.stop(0)


def test_a_database_that_went_back_is_refused_by_the_next_core_and_the_next_process(
    tmp_path: Path,
) -> None:
    database, mark = tmp_path / "s1.sqlite", tmp_path / "s1.sqlite.acknowledged"
    start(*arguments(tmp_path)).stop(0)
    old = database.read_bytes(), mark.read_bytes()
    process = Acknowledged()
    start(*arguments(tmp_path), acknowledged=process).stop(0)
    database.write_bytes(old[0])
    with pytest.raises(
        StartFailure, match=r"lacks transactions .* remove .*s1\.sqlite\.acknowledged"
    ):
        start(*arguments(tmp_path))
    mark.write_bytes(old[1])
    with pytest.raises(StartFailure, match="lacks transactions"):
        start(*arguments(tmp_path), acknowledged=process)
    mark.unlink()
    start(*arguments(tmp_path)).stop(0)


def test_the_process_hands_what_it_acknowledged_to_each_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makers: list[Callable[..., object]] = []
    given: list[object] = []

    def run(role: str, load: object, make_core: Callable[..., object]) -> int:
        makers.append(make_core)
        return 0

    def broken(*args: object) -> Backend:
        given.append(args[-1])
        raise BackendFailure("broken")

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "_open", broken)
    command.main()
    host = FakeHost()
    host.settings = load_settings(arguments(Path("/nowhere")))  # type: ignore[attr-defined]
    host.bind = ("127.0.0.1", 2)  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(StartFailure, match="broken"):
            makers[0](host)
    assert given[0] is given[1]
    assert isinstance(given[0], Acknowledged)


def test_a_database_in_use_is_refused(tmp_path: Path) -> None:
    core = start(*arguments(tmp_path))
    with pytest.raises(StartFailure, match="another process uses this database"):
        start(*arguments(tmp_path))
    core.stop(0)


@pytest.mark.parametrize(("wait", "patience"), [("0", 0.0), ("7", 7.0), ("-1", math.inf)])
def test_a_database_that_is_lost_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: str, patience: float
) -> None:
    """After it was opened: the node gives it back, and may try again."""

    def look(backend: Backend, cluster: str) -> int:
        raise DatabaseAway("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "check_database", look)
        with pytest.raises(StartFailure, match="the server is away") as raised:
            start(*arguments(tmp_path, "--wait", wait))
    assert raised.value.patience == patience
    start(*arguments(tmp_path)).stop(0)


def test_a_file_that_may_only_be_read_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    """SQLite itself notices at the first write."""
    start(*arguments(tmp_path)).stop(0)
    with sqlite3.connect(tmp_path / "s1.sqlite") as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON config BEGIN"
            " SELECT RAISE(ABORT, 'read-only'); END"
        )
    connection.close()
    with pytest.raises(StartFailure, match="read-only"):
        start(*arguments(tmp_path))


def test_a_disk_that_is_gone_when_it_was_opened_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(settings: object) -> list[str]:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("neo.storage.__main__._devpath", gone)
        with pytest.raises(StartFailure, match="the disk is gone"):
            start(*arguments(tmp_path))
    start(*arguments(tmp_path)).stop(0)  # the database was let go
