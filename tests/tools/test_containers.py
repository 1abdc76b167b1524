"""The recipe of the container image. No engine runs here: its entry point and its health check do."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from neoctl.__main__ import main
from neoctl.units import DATA, SETTINGS
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range

ROOT = Path(__file__).parents[2]
OCI = ROOT / "packaging" / "oci"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the recipe with their arguments."""
    text = re.sub(r"\\\n\s*", "", (OCI / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def last(name: str) -> str:
    return [value for instruction, value in instructions() if instruction == name][-1]


def command(text: str) -> list[str]:
    """Return the words of an instruction, with the Python of this test for that of the image."""
    words: list[str] = json.loads(text[text.index("[") :])
    programs = {"python": [sys.executable], "neoserver": [sys.executable, "-m", "neo.server"]}
    return [*programs[words[0]], *words[1:]]


def test_the_image_has_all_that_is_installed_and_no_root() -> None:
    sources = [shlex.split(value)[:-1] for name, value in instructions() if name == "COPY"]
    copied = {source for each in sources for source in each if not source.startswith("--")} - {"/opt/neo"}
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {"neo", "neoctl", "pyspark_neo", "schema", "setup.cfg", "pyproject.toml"} <= copied
    assert last("USER") == "neo"
    assert json.loads(last("VOLUME")) == [DATA]
    assert last("WORKDIR") == DATA


def test_the_machines_of_the_compose_file_are_those_of_its_command() -> None:
    text = (OCI / "compose.yaml").read_text()
    machines = re.findall(r"neoctl init shop-files shop (.*)$", text, re.MULTILINE)[0].split()
    assert re.findall(r"ipv4_address: (.*)$", text, re.MULTILINE) == machines
    numbers = range(1, len(machines) + 1)
    for number in numbers:
        assert f"- neo{number}:{DATA}\n" in text
        assert f"- ./shop-files/machine{number}{SETTINGS}:{SETTINGS}:ro\n" in text
    assert re.findall(r"^  (neo\d):$", text, re.MULTILINE) == [f"neo{n}" for n in numbers] * 2
    (user,) = re.findall(r"--uid (\d+)", (OCI / "Containerfile").read_text())
    assert f"chown -R {user} shop-files/machine*{SETTINGS}" in text


class Container:
    """The entry point with the files of one machine, in folders of this test."""

    def __init__(self, folder: Path) -> None:
        port = free_range(4)
        assert main(["init", str(folder / "files"), "shop", f"127.0.0.1:{port}"]) == 0
        self.settings = folder / "files" / "machine1" / SETTINGS.lstrip("/")
        self.conf = self.settings / "neo.conf"
        text = self.conf.read_text().replace(SETTINGS, str(self.settings))
        (folder / "data").mkdir()
        self.conf.write_text(text.replace(DATA, str(folder / "data")))
        environment = dict(word.split("=", 1) for word in last("ENV").split())
        ready = environment["NEO_READY"].replace("2053", str(port + 3))
        self.environment = {**os.environ, "NEO_READY": ready, "PYTHONPATH": str(ROOT)}
        words = [word.replace(SETTINGS, str(self.settings)) for word in command(last("ENTRYPOINT"))]
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                words, cwd=folder / "data", env=self.environment, stdout=log, stderr=log
            )

    def healthy(self) -> bool:
        done = subprocess.run(
            command(last("HEALTHCHECK")),
            env=self.environment,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.returncode == 0

    def neoctl(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "neoctl", "-f", str(self.conf), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    with ExitStack() as stack:
        container = Container(tmp_path)
        stack.callback(container.process.wait)
        stack.callback(container.process.kill)
        yield container


def test_the_entry_point_serves_and_the_health_check_says_so(container: Container) -> None:
    wait_until(lambda: "| PENDING |" in container.neoctl("print", "node"), "the nodes of a machine")
    assert not container.healthy()
    container.neoctl("start")
    wait_until(container.healthy, "a healthy container")
    assert last("STOPSIGNAL") == "SIGTERM"
    container.process.send_signal(signal.SIGTERM)
    assert container.process.wait(PATIENCE_SECONDS) == 0, container.log.read_text()
    assert not container.healthy()
