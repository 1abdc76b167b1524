"""No test is skipped or expected to fail: the suite itself refuses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder)
    (folder / "test_it.py").write_text(f"import pytest, unittest\n{source}\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("excuse", EXCUSES)
def test_an_excuse_is_a_failure(excuse: str, tmp_path: Path) -> None:
    done = run(tmp_path, EXCUSES[excuse])
    assert done.returncode == (2 if excuse == "module" else 1), done.stdout + done.stderr
    assert "which no test here may" in done.stdout
    assert "lazy" in done.stdout


def test_an_honest_test_passes(tmp_path: Path) -> None:
    done = run(tmp_path, "def test(): pass")
    assert done.returncode == 0, done.stdout + done.stderr
