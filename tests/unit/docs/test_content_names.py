"""The command of the pages that prints the name of a content prints it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from neo.protocol.blobs import content_hash

PAGE = Path(__file__).resolve().parents[3] / "docs" / "backup.md"


def command() -> list[str]:
    (line,) = (line for line in PAGE.read_text().splitlines() if "blake3" in line and "FILE" in line)
    return shlex.split(line)


@pytest.mark.parametrize("data", [b"", b"a content", bytes(3 << 20)])
def test_the_command_prints_the_name_of_a_content(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a file"
    file.write_bytes(data)
    python, *words, name = command()
    assert (python, name) == ("python", "FILE")
    run = subprocess.run([sys.executable, *words, str(file)], capture_output=True, check=True)
    checksum = content_hash()
    checksum.update(data)
    assert run.stdout.decode().strip() == checksum.hexdigest()
