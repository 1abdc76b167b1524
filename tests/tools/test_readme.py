"""The examples of README.md and docs/faq.md, as a reader types them.

The environment is fresh, and has this tree and what ``setup.cfg`` says that it needs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from neo import __version__
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range

ROOT = Path(__file__).parents[2]
#: What a build of the distribution reads.
TREE = ("neo", "neoctl", "schema", "tests/support")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE.txt", "tests/__init__.py")
#: What pip would install to build the distribution.
BUILDER = "setuptools"
PORT_BASE = 2050


class Reader(NamedTuple):
    """Somebody with a home, in a checkout. ``environ``: of a shell in which the environment is active."""

    folder: Path
    environ: dict[str, str]

    def run(self, *words: str, script: str = "") -> str:
        done = subprocess.run(
            words,
            input=script,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS * 4,
        )
        assert done.returncode == 0, f"{words}\n{script}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def examples(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def needed(names: tuple[str, ...]) -> dict[str, metadata.Distribution]:
    """Return distributions with all that they need, by name."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found[name] = metadata.distribution(name)
            for line in found[name].requires or ():
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
    return found


def provide(site: Path, names: tuple[str, ...]) -> None:
    """Make distributions of this environment importable in another one, without a network."""
    for name, distribution in needed(names).items():
        if name == "zodb-neo":
            continue
        for file in distribution.files or ():
            if file.parts[0] == ".." or file.suffix == ".pyc":
                continue
            target = site / file
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(str(distribution.locate_file(file)))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Follow *Install* of README.md."""
    folder = tmp_path_factory.mktemp("reader")
    checkout = folder / "checkout"
    for name in TREE:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignore)
    for name in FILES:
        shutil.copyfile(ROOT / name, checkout / name)
    for name, lines in (("sudo", ""), ("python3", f'exec {sys.executable} "$@"\n')):
        command = folder / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\n{lines}")
        command.chmod(0o755)
    environ = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    environ["HOME"] = str(folder)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    # Nothing is downloaded. "0" of this variable is how pip is told to build without isolation.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_CONFIG_FILE": os.devnull}
    typist = Reader(checkout, {**environ, **offline, "PATH": path})
    (install, *_) = examples("README.md", "sh")
    begin, activate, end = install.partition(". ~/neo/bin/activate\n")
    typist.run("sh", "-eu", script=begin)
    site = sysconfig.get_path("purelib", "venv", {"base": str(folder / "neo")})
    for old in (*Path(site).glob("setuptools*"), Path(site, "_distutils_hack")):
        shutil.rmtree(old, ignore_errors=True)  # Python 3.11 brings an old one
    provide(Path(site), ("zodb-neo", "zodburi", BUILDER))
    typist.run("sh", "-eu", script=f"{activate}{end}")
    home = folder / "work"
    home.mkdir()
    return Reader(home, {**environ, "PATH": f"{folder / 'neo' / 'bin'}:{os.environ['PATH']}"})


def test_installation_has_all_that_is_declared_and_is_not_this_tree(reader: Reader) -> None:
    said = reader.run("python", "-c", "import neo.client, sys; print(neo.__file__)")
    assert said.startswith(str(reader.folder.parent / "neo")), said
    assert "No broken requirements" in reader.run("python", "-m", "pip", "check")


@pytest.mark.parametrize("number", range(len(examples("docs/faq.md", "python"))))
def test_examples_of_the_questions(reader: Reader, number: int) -> None:
    reader.run(
        "python", "-W", "error::ResourceWarning", script=examples("docs/faq.md", "python")[number]
    )


def test_examples_without_a_server(reader: Reader) -> None:
    """A database in a folder, and a cluster of which a node is killed."""
    embedded, block, served = examples("README.md", "python")
    reader.run("python", script=embedded)
    reader.run("python", script=block)
    again = embedded.replace('["greeting"] = "hello"', '["greeting"].index("hello")')
    assert again != embedded
    reader.run("python", script=again)


@pytest.fixture(scope="module")
def served(reader: Reader) -> Iterator[int]:
    """Follow *A small server*, and return the first port."""
    _, command, *_ = examples("README.md", "sh")
    assert f"--port-base {PORT_BASE}\n" in command
    port = free_range(3)
    with subprocess.Popen(
        [*command.replace(str(PORT_BASE), str(port)).split()],
        cwd=reader.folder,
        env={**reader.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("Ctrl-C stops it") for line in lines), "it did not start"
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 0


def at(port: int, text: str) -> str:
    """Replace the ports of the page by those of the test."""
    return re.sub(
        r"127\.0\.0\.1:(205\d)", lambda m: f"127.0.0.1:{port + int(m[1]) - PORT_BASE}", text
    )


def test_examples_with_a_small_server(reader: Reader, served: int) -> None:
    script = at(served, examples("README.md", "python")[-1])
    reader.run("python", script=script)
    (section,) = examples("README.md", "xml")
    read = (
        "import sys, ZODB.config\n"
        "db = ZODB.config.databaseFromString(sys.stdin.read())\n"
        "with db.transaction() as connection:\n"
        "    print(connection.root()['greeting'])\n"
    )
    said = reader.run("python", "-c", read, script=at(served, section))
    assert said == "hello\n"
    status = at(served, examples("README.md", "sh")[2])
    wait_until(lambda: "No problem." in reader.run(*status.split()), "no problem")


def test_example_of_three_machines(reader: Reader) -> None:
    """What the folder can do: tests/tools/test_init.py."""
    (command,) = [block for block in examples("README.md", "sh") if block.startswith("neoctl init")]
    said = reader.run(*command.split())
    listed = re.findall(
        r"^    shop-files/(\S+?),? ", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(listed) == 5
    assert all((reader.folder / "shop-files" / name).exists() for name in listed), said


def test_each_command_has_a_version(reader: Reader) -> None:
    commands = [
        "neoadmin",
        "neoctl",
        "neomaster",
        "neomigrate",
        "neoresolve",
        "neoserver",
        "neosimple",
    ]
    for name in (*commands, "neostorage", "transactor"):
        assert reader.run(name, "--version") == f"{name} {__version__}\n"
