"""Completion, the manual page, ``--version`` and ``--watch``: what is around the verbs."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from neo import __version__
from neo.protocol.enums import ClusterState
from neo.protocol.packets import AnswerClusterState, AskClusterState
from neoctl import __main__ as command
from neoctl.manual import bash
from neoctl.verbs import VERBS
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.neoctl.conftest import Make


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("neoctl sta", {"status", "start"}),
        ("neoctl -a 10.0.0.1:2052 set ", {"cluster", "primary", "replicas", "sync", "partitions"}),
        ("neoctl --json print no", {"node"}),
        ("neoctl print node s", {"storage"}),
        ("neoctl set cluster st", {"stopping", "starting_backup", "stopping_backup"}),
        ("neoctl set sync shop-backup o", {"on", "off"}),
        ("neoctl prune_orphan 1 ", {"all"}),
        ("neoctl status --w", {"--watch"}),
        ("neoctl help t", {"tweak", "truncate"}),
    ],
)
def test_bash_offers_what_the_table_of_verbs_has(line: str, offered: set[str]) -> None:
    words = line.split(" ")
    script = (
        f"{bash()}\nCOMP_WORDS=({' '.join(word or chr(39) * 2 for word in words)})"
        f" COMP_CWORD={len(words) - 1}\n_neoctl\nprintf '%s\\n' ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(
        ["bash", "-eu"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert set(done.stdout.split()) == offered


def test_completion_is_printed_for_two_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert command.main(["completion", "zsh"]) == 0
    both = capsys.readouterr().out
    assert script.strip() in both and both.startswith("#compdef neoctl\n")
    assert command.main(["completion", "fish"]) == 1
    assert "'fish' is neither bash nor zsh" in capsys.readouterr().out


def test_manual_page_has_all_verbs_and_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["man"]) == 0
    page = capsys.readouterr().out.replace("\\-", "-")
    assert all(f"\n\\fB{found.usage}\\fR\n{found.help}\n" in page for found in VERBS.values())
    assert "\n\\fB-a, --address\\fR \\fIHOST:PORT\\fR\n" in page
    macros = re.findall(r"^\.(\w+)", page, re.MULTILINE)
    assert set(macros) == {"TH", "SH", "B", "TP"}


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"neoctl {__version__}\n"


def test_a_watched_question_is_asked_until_ctrl_c(
    console: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctl = console({AskClusterState: AnswerClusterState(ClusterState.RECOVERING)})
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert ctl("--watch", "0.5", "print", "cluster") == 0
    assert pauses == [0.5, 0.5, 0.5]
    assert re.fullmatch(r"(-- \d{4}-.*\nRECOVERING\n){3}", ctl.out)


@pytest.mark.parametrize("words", ["flush_log", "print nothing"])
def test_what_is_no_question_is_not_watched(console: Make, words: str) -> None:
    ctl = console()
    assert ctl("--watch", "0.5", *words.split()) == 1
    assert ctl.out and ctl.admin.asked == []
