"""``neomaster``: what its settings may be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from neo.master.__main__ import load_settings, make_core
from neo.node.config import ConfigError
from neo.node.process import StartFailure
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
        (["-m", "127.0.0.1:2"], "setting 'masters' lacks 127.0.0.1:1, the address of 'bind': name all"),
        (
            ["-m", "127.0.0.1:1 127.0.0.1:2", "--nid=M2"],
            "setting 'nid': several masters number themselves, leave it out",
        ),
    ],
)
def test_wrong_settings_of_several_masters(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings([*ARGUMENTS, *arguments])
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("text", ["M2", "m2", str(MASTERS + 2)])
def test_the_id_of_a_master(text: str) -> None:
    assert load_settings([*ARGUMENTS, f"--nid={text}"]).nid == MASTERS + 2


@pytest.mark.parametrize("text", ["abc", "S1", "M", "M0", "M-1", "2", "0x10", str(MASTERS), "1e3"])
def test_what_is_not_the_id_of_a_master(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings([*ARGUMENTS, f"--nid={text}"])
    expected = f"setting 'nid': {text!r} is not the id of a master: write M1, M2, M3..."
    assert str(raised.value) == expected


def test_a_master_with_a_log_of_several_does_not_run_alone(tmp_path: Path) -> None:
    (tmp_path / "mlog").touch()
    settings = load_settings([*ARGUMENTS, "--election-log", str(tmp_path)])
    shell = SimpleNamespace(settings=settings, bind=settings.bind)
    with pytest.raises(StartFailure, match="keeps a log with others in .* name them all; or, if they"):
        make_core(shell)  # type: ignore[arg-type]
