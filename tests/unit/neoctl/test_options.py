"""Options of neoctl that make no sense: said before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neoctl.__main__ import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "1e20", "soon"])
def test_a_timeout_is_a_number_of_seconds(capsys: Capture, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--timeout", text, "print", "cluster"])
    assert ended.value.code == 2
    assert f"{text!r} is no number of seconds, up to 86400" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_named(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "neo.conf"
    path.write_bytes(b"[admin]\nbind = \xff\xfe\n")
    assert main(["-f", str(path), "print", "cluster"]) == 1
    assert f"configuration file {str(path)!r}: " in capsys.readouterr().err


def test_no_command_is_data_with_json(capsys: Capture) -> None:
    assert main(["--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no command is given"
