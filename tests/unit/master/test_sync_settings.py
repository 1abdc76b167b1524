"""Settings of synchronous backups (specification 25.29)."""

from __future__ import annotations

import pytest

from neo.master.__main__ import load_settings, master_settings
from neo.master.settings import MasterSettings, SyncPolicy
from neo.node.config import ConfigError

ALONE = ["-c", "near", "-m", "127.0.0.1:1", "-b", "127.0.0.1:1"]
BACKUP = [*ALONE, "-C", "far", "-M", "127.0.0.1:2"]


def read(*argv: str) -> MasterSettings:
    return master_settings(load_settings(list(argv)))


def test_a_cluster_has_no_synchronous_backups_by_itself() -> None:
    settings = read(*ALONE)
    assert settings.sync_backups == () and not settings.sync
    assert settings.sync_timeout == 3.0 and settings.sync_policy is SyncPolicy.CONTINUE


def test_the_settings_of_the_upstream_cluster() -> None:
    options = ["--sync-backups", "far, farther", "--sync-timeout", "5", "--sync-policy", "stop"]
    settings = read(*ALONE, *options)
    assert settings.sync_backups == ("far", "farther")
    assert settings.sync_timeout == 5.0 and settings.sync_policy is SyncPolicy.STOP


def test_the_setting_of_the_backup() -> None:
    assert read(*BACKUP, "--sync").sync


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([*ALONE, "--sync"], "setting 'sync' needs 'upstream_cluster' and 'upstream_masters'"),
        ([*ALONE, "--sync-backups", "near"], "a cluster is no backup of itself"),
        ([*ALONE, "--sync-timeout", "1.9"], "at least 2 seconds are needed"),
        ([*ALONE, "--sync-timeout", "inf"], "at least 2 seconds are needed"),
        ([*ALONE, "--sync-policy", "wait"], "'wait' is none of continue, stop"),
    ],
)
def test_settings_that_cannot_work_are_refused(argv: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read(*argv)
