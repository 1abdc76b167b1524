"""The documents: generated pages are current, nothing is left out."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import neoctl.__main__  # noqa: F401  # registers the verbs
from neo.master.states import ADMITTED, TRANSITIONS
from neoctl.verbs import VERBS
from tests.simulator.canaries import CANARIES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_docs.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_generated_pages_are_what_the_code_says() -> None:
    result = generate("--check")
    assert result.returncode == 0, result.stderr
    assert generate("--chekc").returncode == 2, "other options are refused"


def test_every_message_has_a_row() -> None:
    page = (DOCS / "protocol.md").read_text("utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) `0x", page, re.MULTILINE)}
    # Error, the answer without a request, has the code 0x8000; its number among the 70 is 0.
    assert set(range(1, 70)) | {0x8000} <= codes


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_explained(verb: str) -> None:
    assert f"`neoctl {verb}" in (DOCS / "neoctl.md").read_text("utf-8")


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    return config


def test_every_command_is_explained() -> None:
    scripts = setup_cfg()["options.entry_points"]["console_scripts"]
    pages = ("operating.md", "neoctl.md", "migration.md")
    page = "".join((DOCS / name).read_text("utf-8") for name in pages)
    for command in re.findall(r"^(\w+) =", scripts, re.MULTILINE):
        assert re.search(rf"`?{command}\b", page), command


def test_every_dependency_is_explained() -> None:
    config = setup_cfg()
    wanted = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    page = (DOCS / "dependencies.md").read_text("utf-8")
    for name in re.findall(r"^([\w.-]+)", "\n".join(wanted), re.MULTILINE):
        assert name in page, name


def test_every_file_that_is_named_exists() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    named = {
        name
        for page in pages
        for name in re.findall(
            r"`((?:neo|neoctl|schema|tests|tools|docs)/[\w./-]+)`", page.read_text("utf-8")
        )
    }
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_picture_of_the_states_is_the_table_of_the_master() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    drawn = re.findall(r"^ +([A-Z_]+) --> ([A-Z_]+):", page, re.MULTILINE)
    assert sorted(drawn) == sorted((a.name, b.name) for (a, _), b in TRANSITIONS.items())
    rows = re.search(r"^\| state \|.*\n\|-.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert rows is not None
    states = re.findall(r"^\| (\w+) \|", rows[1], re.MULTILINE)
    assert sorted(states) == sorted(state.name for state in ADMITTED)


def test_every_canary_is_in_the_table_of_planted_bugs() -> None:
    page = (DOCS / "simulation.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (.*) \| (\d+) \|$", page, re.MULTILINE)
    assert rows == [(c.name, c.slip, c.oracle, str(c.seeds)) for c in CANARIES.values()]
