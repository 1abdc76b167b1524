"""neo.conf and the command line: what is read, and what each wrong setting says."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from neo.node.config import (
    ConfigError,
    Option,
    load,
    natural,
    one_of,
    positive,
    role_options,
)

OPTIONS = role_options(
    Option("partitions", "number of partitions", positive, 100, short="p"),
    Option("wait", "seconds", natural, 0, short="w"),
    Option("adapter", "SQLite or MySQL", one_of("SQLite", "MySQL"), "SQLite", short="a"),
    Option("dedup", "deduplicate", flag=True),
    Option("reset", "erase everything", flag=True, command_line_only=True),
)
NEEDED = ["-c", "lab", "-m", "127.0.0.1:1"]

CONF = """
[DEFAULT]
cluster = lab
masters = 127.0.0.1:1, [::1]:2
replicas = 1
upstream_cluster = other

[storage]
bind = 127.0.0.1:3
partitions = 12

[storage2]
bind = 127.0.0.1:4
dedup = yes
wait = 5
"""

Write = Callable[[str], str]


def read(*argv: str) -> argparse.Namespace:
    return load("storage", "A storage node", OPTIONS, argv)


def refusal(*argv: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*argv)
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        path = tmp_path / "neo.conf"
        path.write_text(text)
        return str(path)

    return write


# -- what is read ----------------------------------------------------------------------------------


def test_command_line_alone() -> None:
    settings = read(*NEEDED, "-b", "127.0.0.1:7", "-p", "3", "--dedup", "-a", "mysql")
    assert settings.cluster == "lab"
    assert settings.masters == [("127.0.0.1", 1)]
    assert settings.bind == ("127.0.0.1", 7)
    assert (settings.partitions, settings.dedup, settings.adapter) == (3, True, "MySQL")


def test_defaults() -> None:
    settings = read(*NEEDED)
    assert (settings.partitions, settings.wait, settings.adapter) == (100, 0, "SQLite")
    assert (settings.bind, settings.logfile, settings.ca) == (None, None, None)
    assert (settings.log_format, settings.log_level) == ("text", "info")
    assert not settings.dedup


def test_the_section_of_the_role_and_what_all_share(write: Write) -> None:
    settings = read("-f", write(CONF))
    assert settings.masters == [("127.0.0.1", 1), ("::1", 2)]
    assert (settings.bind, settings.partitions) == (("127.0.0.1", 3), 12)
    assert not hasattr(settings, "replicas")


def test_another_section(write: Write) -> None:
    settings = read("-f", write(CONF), "-s", "storage2")
    assert (settings.bind, settings.partitions, settings.wait) == (("127.0.0.1", 4), 100, 5)
    assert settings.dedup is True


def test_the_command_line_wins(write: Write) -> None:
    """Specification 22.2."""
    settings = read("-f", write(CONF), "-c", "test", "-p", "5", "--dedup")
    assert (settings.cluster, settings.partitions, settings.dedup) == ("test", 5, True)
    assert settings.bind == ("127.0.0.1", 3)


def test_long_options_are_the_names_of_the_file_with_dashes() -> None:
    settings = read(*NEEDED, "--log-format", "json", "--dynamic-master-list", "masters.json")
    assert (settings.log_format, settings.dynamic_master_list) == ("json", "masters.json")


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("dedup=true", "dedup", True),
        ("dedup=no", "dedup", False),
        ("dedup=1", "dedup", True),
        ("dedup=off", "dedup", False),
        pytest.param("cluster=100%", "cluster", "100%", id="percent signs are plain"),
        pytest.param("logfile=", "logfile", None, id="empty is no setting"),
        pytest.param("partitions =", "partitions", 100, id="empty is the default"),
        ("log_format=json", "log_format", "json"),
    ],
)
def test_settings_of_the_file(write: Write, setting: str, name: str, value: object) -> None:
    path = write(f"[DEFAULT]\ncluster=c\n[storage]\nmasters=127.0.0.1:1\n{setting}\n")
    assert getattr(read("-f", path), name) == value


# -- what is refused -------------------------------------------------------------------------------


def test_missing_settings_are_named_with_their_meaning() -> None:
    assert refusal("-m", "127.0.0.1:1") == "setting 'cluster' is missing: name of the cluster"
    assert refusal("-c", "lab").startswith("setting 'masters' is missing: addresses of the masters")
    assert refusal("-c", " ", "-m", "127.0.0.1:1").startswith("setting 'cluster' is missing")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-p", "0"], "setting 'partitions': 0 is not a positive number"),
        (["-p", "many"], "setting 'partitions': 'many' is not a whole number"),
        (["-w", "-1"], "setting 'wait': -1 is negative"),
        (["-w", "1.5"], "setting 'wait': '1.5' is not a whole number"),
        (["-a", "Oracle"], "setting 'adapter': 'Oracle' is none of SQLite, MySQL"),
        (["--log-format", "xml"], "setting 'log_format': 'xml' is none of text, json"),
        (["-b", "8000x"], "setting 'bind': '8000x' is not an address: write host:port"),
        (["-m", "127.0.0.1:1 x"], "setting 'masters': 'x' is not an address"),
        (["-b", "127.0.0.1:99999"], "setting 'bind': '127.0.0.1:99999' is not an address"),
    ],
)
def test_wrong_values(argv: list[str], text: str) -> None:
    assert refusal(*NEEDED, *argv).startswith(text)


def test_a_wrong_boolean(write: Write) -> None:
    path = write("[storage]\ncluster=c\nmasters=127.0.0.1:1\ndedup=maybe\n")
    assert refusal("-f", path) == "setting 'dedup': 'maybe' is not a boolean: write true or false"


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        (["--ca", "a"], "only ca is given"),
        (["--cert", "a", "--key", "b"], "only cert and key is given"),
    ],
)
def test_half_of_tls(argv: list[str], given: str) -> None:
    """Specification 22.8."""
    assert refusal(*NEEDED, *argv) == f"TLS needs all of ca, cert and key: {given}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "neo.conf")
    assert refusal("-f", path) == (
        f"configuration file {path!r} cannot be read: No such file or directory"
    )
    assert "cannot be read: Is a directory" in refusal("-f", str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"no section", b"[storage\n", b"[a]\nx=1\nx=2\n", b"[a]\n[a]\n", b"\xff\xfe\x00[storage]"],
)
def test_a_file_that_is_not_ini(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "neo.conf"
    path.write_bytes(content)
    assert refusal("-f", str(path)).startswith(f"configuration file {str(path)!r}: ")


def test_a_section_that_is_not_there(write: Write) -> None:
    path = write(CONF)
    assert refusal("-f", path, "-s", "storage3") == (
        f"configuration file {path!r} has no section [storage3]; it has storage, storage2: "
        "choose one with --section"
    )
    assert "it has none" in refusal("-f", write("[DEFAULT]\n"))


def test_a_section_of_no_file() -> None:
    assert refusal(*NEEDED, "-s", "storage") == (
        "--section chooses a part of a configuration file: give it with --file"
    )


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("DEFAULT", "masterz"),
        ("storage", "masterz"),
        pytest.param("storage", "autostart", id="of another role"),
        pytest.param("storage", "reset", id="must be typed each time"),
    ],
)
def test_unknown_settings_are_refused_wherever_they_stand(
    write: Write, section: str, name: str
) -> None:
    """Specification 22.2."""
    path = write(CONF.replace(f"[{section}]", f"[{section}]\n{name} = 1"))
    assert refusal("-f", path) == f"{path!r}, section [storage]: unknown setting {name!r}"
    assert read("-f", write(CONF), "--reset").reset is True


def test_an_unknown_option_ends_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read(*NEEDED, "--partition-count", "3")
    assert caught.value.code == 2
    assert "neostorage: error: unrecognized arguments" in capsys.readouterr().err
