"""``neoserver``: which sections of neo.conf it runs (specification 22.17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.node.config import ConfigError
from neo.server.__main__ import load

#: An address of documentation (RFC 5737), which no machine has.
ELSEWHERE = "192.0.2.1"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    sections = {
        "admin": "bind = 127.0.0.1:5",
        "storage2": f"bind = {ELSEWHERE}:4\ndatabase = b",
        "storage1": "bind = 127.0.0.1:4\ndatabase = a",
        "master1": "bind = 127.0.0.1:3",
    }
    path = tmp_path / "neo.conf"
    lines = ["[DEFAULT]", "cluster = lab", "masters = 127.0.0.1:3"]
    for name, text in sections.items():
        lines += [f"[{name}]", text]
    path.write_text("\n".join(lines))
    return path


def test_sections_of_this_machine_masters_first(conf: Path) -> None:
    plans = load(["-f", str(conf)])
    assert [(plan.name, plan.role) for plan in plans] == [
        ("master1", "master"),
        ("storage1", "storage"),
        ("admin", "admin"),
    ]
    assert plans[1].settings.database == "a"


def test_sections_that_are_chosen(conf: Path) -> None:
    plans = load(["-f", str(conf), "-s", "storage2", "master1"])
    assert [plan.name for plan in plans] == ["master1", "storage2"]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("[node1]\nbind = 127.0.0.1:6", [], r"section \[node1\]: the name of a section must begin"),
        (
            "[storage3]\nbind = 127.0.0.1:6",
            [],
            r"section \[storage3\]: setting 'database' is missing",
        ),
        (
            "[storage3]\nbind = nonsense",
            [],
            r"section \[storage3\]: setting 'bind': 'nonsense' is not",
        ),
        ("[storage3]\ndatabase = c", [], r"section \[storage3\]: setting 'bind' is missing"),
        ("", ["-s", "storage9"], r"section \[storage9\]: .* has no section \[storage9\]"),
    ],
)
def test_a_wrong_section_is_named(conf: Path, text: str, words: list[str], message: str) -> None:
    conf.write_text(f"{conf.read_text()}\n{text}\n")
    with pytest.raises(ConfigError, match=message):
        load(["-f", str(conf), *words])


def test_a_file_of_other_machines(conf: Path) -> None:
    conf.write_text(conf.read_text().replace("127.0.0.1", ELSEWHERE))
    with pytest.raises(ConfigError, match="no section whose address is one of this machine"):
        load(["-f", str(conf)])
