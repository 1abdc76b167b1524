"""No test is skipped, is expected to fail or leaves another environment: the suite itself refuses it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS

CONFTEST = Path(__file__).parent / "conftest.py"

EXCUSES = {
    "mark-skip": "@pytest.mark.skip(reason='lazy')\ndef test(): pass",
    "skip": "def test(): pytest.skip('lazy')",
    "fixture": "@pytest.fixture\ndef f(): pytest.skip('lazy')\ndef test(f): pass",
    "module": "pytest.importorskip('lazy_module_that_is_not_there')\ndef test(): pass",
    "xfail": "@pytest.mark.xfail(reason='lazy')\ndef test(): assert 0",
    "xpass": "@pytest.mark.xfail(reason='lazy')\ndef test(): pass",
    "xfail-inside": "def test(): pytest.xfail('lazy')",
    # What ZODB.tests.racetest does where a storage has no _new_storage_client().
    "skipTest": "class Test(unittest.TestCase):\n def test(self): self.skipTest('lazy')",
    "skip-class": "@unittest.skip('lazy')\nclass Test(unittest.TestCase):\n def test(self): pass",
    "subTest": (
        "class Test(unittest.TestCase):\n def test(self):\n"
        "  with self.subTest('lazy'): self.skipTest('lazy')"
    ),
    "expectedFailure": (
        "class Test(unittest.TestCase):\n @unittest.expectedFailure\n def test_lazy(self): assert 0"
    ),
}


#: What a test leaves to those after it, and what is said of it.
LEFT = {
    "environ": ("os.environ['NEO_LEFT'] = 'x'", "('NEO_LEFT', 'x')"),
    "folder": ("os.chdir('/')", "('the folder', '/')"),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the summary of a run of all excuses, and of an honest test, each in a file of its own."""
    folder = tmp_path_factory.mktemp("excuses")
    shutil.copy(CONFTEST, folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    left = {name: f"def test(): {line}" for name, (line, _) in LEFT.items()}
    for name, source in {**EXCUSES, **left, "honest": "def test(): pass"}.items():
        (folder / f"test_{name}.py").write_text(f"import os, pytest, unittest\n{source}\n")
    options = ("-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0", "-rA", "--tb=short")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--continue-on-collection-errors"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CONFTEST.parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("excuse", EXCUSES)
def test_an_excuse_is_a_failure(excuse: str, said: str) -> None:
    failure = rf"^(FAILED|ERROR|SUBFAILED\[lazy\]) test_{excuse}\.py.* - skipped or expected to fail"
    assert re.search(failure, said, re.MULTILINE), said


@pytest.mark.parametrize("name", LEFT)
def test_what_a_test_leaves_behind_is_its_failure(name: str, said: str) -> None:
    assert re.search(rf"^ERROR test_{name}\.py", said, re.MULTILINE), said
    assert re.search(rf"the test left other surroundings: .*{re.escape(LEFT[name][1])}", said), said


def test_an_honest_test_passes(said: str) -> None:
    assert re.search(r"^PASSED test_honest\.py", said, re.MULTILINE), said
