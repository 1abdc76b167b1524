"""``neomaster``: what its settings may be."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from neo.master.__main__ import load_settings, make_core, master_settings
from neo.master.election.node import MasterNode
from neo.master.primary import PrimaryMaster
from neo.master.settings import MasterSettings, SyncPolicy
from neo.node.config import ConfigError
from neo.node.core_life import StartFailure
from neo.protocol.enums import NodeType
from neo.protocol.ids import nid_namespace

ARGUMENTS = ["-c", "lab", "-m", "127.0.0.1:1", "-b", "127.0.0.1:1"]
MASTERS = nid_namespace(NodeType.MASTER)


def test_several_masters_have_a_log() -> None:
    settings = load_settings(["-c", "my lab", "-m", "127.0.0.1:2 127.0.0.1:1", "-b", "127.0.0.1:1"])
    assert settings.election_log == "my_lab-1.election"
    settings = load_settings([*ARGUMENTS, "--election-log", "/var/lib/neo/log"])
    assert settings.election_log == "/var/lib/neo/log"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-m", "127.0.0.1:2"],
            "setting 'masters' lacks 127.0.0.1:1, the address of 'bind': name all",
        ),
        (
            ["-m", "127.0.0.1:1 127.0.0.1:2", "--nid=M2"],
            "setting 'nid': several masters number themselves, leave it out",
        ),
        (["--replicas=100"], "setting 'replicas': at most 99 are possible"),
        (["--partitions=32769"], "setting 'partitions': at most 32768 are possible"),
        (["--sync"], "setting 'sync' needs 'upstream_cluster' and 'upstream_masters'"),
        (["--sync-backups", "lab"], "a cluster is no standby of itself"),
        (["--sync-timeout", "1.9"], "at least 2 seconds are needed"),
        (["--sync-timeout", "inf"], "at least 2 seconds are needed"),
        (["--sync-policy", "wait"], "'wait' is none of continue, stop"),
    ],
)
def test_settings_that_cannot_work_are_refused(arguments: list[str], message: str) -> None:
    """Specification 22.10, 25.29."""
    with pytest.raises(ConfigError) as raised:
        load_settings([*ARGUMENTS, *arguments])
    assert message in str(raised.value)


def make(*arguments: str) -> PrimaryMaster | MasterNode:
    settings = load_settings([*ARGUMENTS, *arguments])
    host = SimpleNamespace(
        meter=None,
        traces=None,
        settings=settings,
        bind=settings.bind,
        monotonic=lambda: 0.0,
        time=lambda: 0.0,
        random=Random(0),
        from_thread=lambda callback, *args: None,
        stop=lambda code: None,
    )
    core = make_core(host)
    assert isinstance(core, PrimaryMaster | MasterNode)
    return core


@pytest.mark.parametrize("masters", ["127.0.0.1:1", "127.0.0.1:1 127.0.0.1:2"])
@pytest.mark.parametrize("content", ["{", '{"a1": 1}', '["a"]'])
def test_a_broken_list_of_masters_is_refused(tmp_path: Path, masters: str, content: str) -> None:
    path = tmp_path / "masters.json"
    path.write_text(content)
    log = f"--election-log={tmp_path / 'log'}"
    with pytest.raises(ConfigError, match=r"dynamic_master_list.*masters.json is not a list of"):
        make("-m", masters, "-D", str(path), log)
    with pytest.raises(ConfigError, match="missing/masters.json has no folder: create it, or"):
        make("-m", masters, "-D", str(tmp_path / "missing" / "masters.json"), log)


def test_masters_remembered_are_looked_for_before_the_log_is_known(tmp_path: Path) -> None:
    path = tmp_path / "masters.json"
    path.write_text('[["127.0.0.1", 2], ["127.0.0.1", 3]]')
    log = f"--election-log={tmp_path / 'log'}"
    core = make("-m", "127.0.0.1:1 127.0.0.1:2", "-D", str(path), log)
    assert isinstance(core, MasterNode)
    assert core.not_primary().known_master_list == [("127.0.0.1", port) for port in (1, 2, 3)]
    assert sorted(link.name for link in core.member.links) == ["127.0.0.1:2", "127.0.0.1:3"]
    core.stop(0)


@pytest.mark.parametrize("text", ["M2", "m2", str(MASTERS + 2)])
def test_the_id_of_a_master(text: str) -> None:
    """Specification 15.14."""
    assert load_settings([*ARGUMENTS, f"--nid={text}"]).nid == MASTERS + 2


@pytest.mark.parametrize(
    "text", ["abc", "S1", "M", "M0", "M-1", "2", "0x10", str(MASTERS), "1e3", "M16777217"]
)
def test_what_is_not_the_id_of_a_master(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings([*ARGUMENTS, f"--nid={text}"])
    expected = f"setting 'nid': {text!r} is not the id of a master: write M1, M2, M3..."
    assert str(raised.value) == expected


def test_a_master_with_a_log_of_several_does_not_run_alone(tmp_path: Path) -> None:
    (tmp_path / "mlog").touch()
    with pytest.raises(
        StartFailure, match="keeps a log with others in .* name them all; or, if they"
    ):
        make("--election-log", str(tmp_path))


def test_the_period_of_the_scrub_is_in_days() -> None:
    assert load_settings(ARGUMENTS).scrub_days == 7.0
    for text, days in (("0", 0.0), ("0.5", 0.5)):
        assert load_settings([*ARGUMENTS, "--scrub-days", text]).scrub_days == days
    for text in ("-1", "nan", "inf", "week"):
        with pytest.raises(ConfigError, match=f"'?{text}'? is not a number of days"):
            load_settings([*ARGUMENTS, f"--scrub-days={text}"])


# -- synchronous backups (specification 25.29) ----------------------------------------------------


def read(*argv: str) -> MasterSettings:
    return master_settings(load_settings([*ARGUMENTS, *argv]))


def test_a_cluster_has_no_synchronous_backups_by_itself() -> None:
    settings = read()
    assert settings.sync_backups == () and not settings.sync
    assert settings.sync_timeout == 3.0 and settings.sync_policy is SyncPolicy.CONTINUE


def test_the_settings_of_the_upstream_cluster() -> None:
    options = ["--sync-backups", "far, farther", "--sync-timeout", "5", "--sync-policy", "stop"]
    settings = read(*options)
    assert settings.sync_backups == ("far", "farther")
    assert settings.sync_timeout == 5.0 and settings.sync_policy is SyncPolicy.STOP


def test_the_setting_of_the_backup() -> None:
    assert read("-C", "far", "-M", "127.0.0.1:2", "--sync").sync
