"""Small databases and small libraries of modules for the tests of the demonstration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB import DB
from ZODB.FileStorage import FileStorage

MODULES = {
    "alpha.py": '''"""The first module."""
import beta
from kit import tools

def open(path):
    """Open a temporary file."""
    # TODO: close it
    return path

class Door:
    """What can be opened."""
    def open(self):
        """Open the door."""

        return self

class Window:
    pass
''',
    "beta.py": '''"""The second module."""
import os

def shut():
    def inner():
        return 1
    return inner
''',
    "kit/__init__.py": '"""A package."""\nfrom . import tools\n',
    "kit/tools.py": '"""Tools."""\nfrom .. import nowhere\nfrom .deep import spade\n',
    "kit/deep/__init__.py": "# XXX empty\n# FIXME twice\n",
    "kit/deep/spade.py": "import gamma\n",
    "gamma.py": "x = 1\n",
    "broken.py": "def (:\n",
    "test/test_alpha.py": "import alpha\n",
    "site-packages/other.py": "import alpha\n",
    "not-a-name.py": "pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of modules whose every definition the tests know."""
    root = tmp_path / "modules"
    for name, text in MODULES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    """A database in a file."""
    with closing(DB(FileStorage(str(tmp_path / "Data.fs")))) as database:
        yield database
