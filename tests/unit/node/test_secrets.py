"""Passwords of nodes: in a file that nobody else reads, or in the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neo.admin.__main__ import OPTIONS as ADMIN
from neo.node.config import ConfigError, load
from neo.simple.conf import Shape, create
from neo.storage.__main__ import OPTIONS as STORAGE

TEXT = """\
[DEFAULT]
cluster = shop
masters = 10.0.0.1:2050
[storage1]
adapter = MySQL
database = neo:secret@neo1
[storage2]
database = /data/a:b@c
[admin]
bind = 2052
smtp_login = neo:secret
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "neo.conf"
    path.write_text(TEXT)
    return path


def read(path: Path, section: str) -> object:
    role = section.rstrip("12")
    options = {"storage": STORAGE, "admin": ADMIN}[role]
    return load(role, "", options, ["-f", str(path), "-s", section], {})


@pytest.mark.parametrize("section", ["storage1", "admin"])
@pytest.mark.parametrize(
    ("owner", "mode", "allowed"),
    [
        (0, 0o640, True),
        (0, 0o644, False),
        (0, 0o660, False),
        (1500, 0o600, True),
        (1500, 0o640, False),
    ],
)
def test_a_file_with_a_password_is_for_the_nodes_alone(
    conf: Path, section: str, owner: int, mode: int, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf.chmod(mode)
    real = os.stat(conf)
    fields = [*real]
    fields[4] = owner  # st_uid
    monkeypatch.setattr("neo.node.config.os.stat", lambda path: os.stat_result(fields))
    if allowed:
        read(conf, section)
        return
    setting = "database" if section == "storage1" else "smtp_login"
    with pytest.raises(ConfigError, match=rf"has a password \(setting '{setting}'\).*chmod 600"):
        read(conf, section)


def test_a_file_without_a_password_may_be_read_by_all(conf: Path) -> None:
    conf.chmod(0o644)
    read(conf, "storage2")


def test_a_password_may_be_in_the_environment_and_the_file_counts_more(conf: Path) -> None:
    environ = {"NEO_DATABASE": "neo:other@neo2", "NEO_SMTP_LOGIN": "neo:other", "NEO_BIND": "7"}
    given = ["-c", "shop", "-m", "10.0.0.1:2050"]
    assert load("storage", "", STORAGE, given, environ).database == "neo:other@neo2"
    assert load("storage", "", STORAGE, [*given, "-d", "x"], environ).database == "x"
    admin = load("admin", "", ADMIN, given, environ)
    assert (admin.smtp_login, admin.bind) == ("neo:other", None)
    conf.chmod(0o600)
    found = load("admin", "", ADMIN, ["-f", str(conf), "-s", "admin"], environ)
    assert found.smtp_login == "neo:secret"


def test_help_says_that_the_command_line_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    for role, options, variable in (
        ("storage", STORAGE, "NEO_DATABASE"),
        ("admin", ADMIN, "NEO_SMTP_LOGIN"),
    ):
        with pytest.raises(SystemExit):
            load(role, "", options, ["--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "is visible to all users of the machine" in text and variable in text


def test_neosimple_writes_its_settings_for_its_owner_alone(tmp_path: Path) -> None:
    create(tmp_path / "neo.conf", Shape(adapter="MySQL", database="neo:secret@neo{n}"))
    assert (tmp_path / "neo.conf").stat().st_mode & 0o777 == 0o600
