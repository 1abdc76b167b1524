"""setup.cfg against the tree: what it names exists, and what exists is installed."""

from __future__ import annotations

import configparser
import re
from fnmatch import fnmatch
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("neo", "neo/schema", "neoctl")


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    return config


def declared(group: str) -> list[EntryPoint]:
    lines = setup_cfg()["options.entry_points"][group].strip().splitlines()
    pairs = (line.split(" = ") for line in lines)
    return [EntryPoint(name, value, group) for name, value in pairs]


GROUPS = ("console_scripts", "zodburi.resolvers")


@pytest.mark.parametrize(
    "entry",
    [entry for group in GROUPS for entry in declared(group)],
    ids=lambda entry: entry.name,
)
def test_every_command_and_every_scheme_is_a_function(entry: EntryPoint) -> None:
    assert callable(entry.load())


@pytest.mark.parametrize("group", GROUPS)
def test_the_installation_at_work_is_the_declared_one(group: str) -> None:
    installed = {(entry.name, entry.value) for entry in entry_points(group=group)}
    assert {(entry.name, entry.value) for entry in declared(group)} <= installed


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_code_is_a_package(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_that_is_not_code_is_package_data(package: str) -> None:
    patterns = [word.strip() for word in setup_cfg()["options.package_data"]["*"].split(",")]
    files = [path for path in (ROOT / package).rglob("*") if path.is_file()]
    data = [path for path in files if path.suffix not in (".py", ".pyc")]
    assert data
    assert not [
        path.relative_to(ROOT)
        for path in data
        if not any(fnmatch(path.name, pattern) for pattern in patterns)
    ]


def test_the_licence_is_the_declared_one() -> None:
    assert setup_cfg()["metadata"]["license"] == "ZPL-2.1"
    text = (ROOT / "LICENSE.txt").read_text()
    assert text.startswith("Zope Public License (ZPL) Version 2.1")


def test_every_test_is_in_an_environment_of_tox() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    kinds = re.search(r"-\{(.*)\}", config["tox"]["env_list"])
    assert kinds is not None
    commands = dict(
        re.findall(r"^(\w+).*: pytest (.*) {posargs}$", config["testenv"]["commands"], re.M)
    )
    assert sorted(commands) == sorted(kinds[1].split(","))
    run = [ROOT / path for paths in commands.values() for path in paths.split()]
    assert [path for path in run if not path.exists()] == []
    tests = (ROOT / "tests").rglob("test_*.py")
    assert [test for test in tests if not {test, *test.parents} & set(run)] == []
