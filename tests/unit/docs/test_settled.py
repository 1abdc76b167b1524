"""The command of docs/growing.md that waits for the data: never told too early that it is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "growing.md"
TITLE = "# ptid: 7, replicas: 1\n"
DONE = TITLE + "S1  R UU.\nS2  D ...\nS10 R UUU\n"
#: The page waits between two looks; a test does not.
SLEEP = "#!/bin/sh\n"
#: Says what is in the first file, which is deleted then; with what is not a table it fails.
NEOCTL = """\
#!/bin/sh
test "$*" = "print pt" || exit 9
set -- said*
cat $1
grep -q ptid $1; known=$?
rm $1
exit $known
"""


def settled(folder: Path, *said: str) -> subprocess.CompletedProcess[str]:
    """Run it; ``said``: by neoctl, each time when it is asked."""
    (definitions,) = re.findall(
        r"^```sh\n(.*?settled\(\).*?)^```", PAGE.read_text("utf-8"), re.S | re.M
    )
    for name, script in (("neoctl", NEOCTL), ("sleep", SLEEP)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    for number, text in enumerate(said):
        (folder / f"said{number}").write_text(text)
    commands = f"PATH={folder}:$PATH\n{definitions.rpartition('```sh')[2]}\nsettled"
    return subprocess.run(
        ["bash", "-c", commands], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "before",
    [
        "S1 R UO.\n",
        "S1  R UO.\nS2  R U..\nS10 R UUU\n",
        "S1  R U..\nS10 R .F.\n",
        "S1 R U.C\nS2 R U.U\n",
    ],
)
def test_data_that_is_not_there_is_waited_for(tmp_path: Path, before: str) -> None:
    done = settled(tmp_path, TITLE + before, TITLE + before, DONE)
    assert (done.returncode, done.stdout) == (0, DONE)


@pytest.mark.parametrize("waiting", [[], [TITLE + "S1 R O\n"]])
def test_a_cluster_that_nobody_knows_of_is_not_settled(tmp_path: Path, waiting: list[str]) -> None:
    away = "Not connected to a primary master.\n"
    done = settled(tmp_path, *waiting, away, DONE)
    assert (done.returncode, done.stdout) == (1, away)
