"""The wheel and the source distribution: their names are ours alone, and they hold all that runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TREE = ("neo", "neoctl", "schema", "tests/support")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE.txt", "tests/__init__.py")

#: What pip does in the end, without its isolation: nothing is downloaded.
BUILD = "import setuptools.build_meta as b, sys; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"

#: The program of an application far from any checkout.
USE = """
import neo.schema
from neo.storage.backend import schema
assert neo.schema.__file__.startswith(sys.argv[1]), neo.schema.__file__
names = ["sqlite", "mariadb", "sqlite-views", "mariadb-views", "sqlite-dedup", "mariadb-dedup"]
assert all(schema.statements(name) for name in names)
"""


def build(kind: str, source: Path, target: Path) -> Path:
    target.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", BUILD, kind, str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which a build may leave its traces."""
    folder = tmp_path_factory.mktemp("packaging") / "checkout"
    for name in TREE:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    """The source distribution, unpacked."""
    folder = source.parent / "unpacked"
    folder.mkdir()
    # tarfile wants a filter from Python 3.12 on, and has none in Debian's 3.11.
    archive = build("sdist", source, source.parent / "sdist")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True, timeout=120)
    (unpacked,) = folder.iterdir()
    return unpacked


def check_wheel(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    tops = {path.name for path in folder.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"neo", "neoctl"}  # 'schema' and 'tests' are names of others
    packed = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    kinds = (".py", ".sql", ".xml", ".txt", ".typed", ".html", ".css", ".js", ".svg")
    written = {
        path.relative_to(ROOT)
        for top in ("neo", "neo/schema", "neoctl")
        for path in (ROOT / top).rglob("*")
        if path.suffix in kinds or path.name == "py.typed"
    }
    assert written <= packed
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1])\n{USE}", str(folder)],
        check=True,
        cwd=folder.parent,
        timeout=120,
    )


def test_a_wheel_has_all_files_and_no_name_of_others(source: Path, tmp_path: Path) -> None:
    check_wheel(build("wheel", source, tmp_path / "wheel"), tmp_path / "installed")


def test_a_source_distribution_makes_the_same_wheel(sdist: Path, tmp_path: Path) -> None:
    check_wheel(build("wheel", sdist, tmp_path / "wheel"), tmp_path / "installed")


def test_a_checkout_runs_in_place() -> None:
    program = f"import sys\n{USE}"
    subprocess.run([sys.executable, "-c", program, str(ROOT)], cwd=ROOT, check=True, timeout=120)


def test_an_editable_installation_finds_the_tables(source: Path, tmp_path: Path) -> None:
    """What ``pip install -e .`` leaves behind: files that name the checkout."""
    site = tmp_path / "site"
    with zipfile.ZipFile(build("editable", source, tmp_path / "editable")) as archive:
        archive.extractall(site)
    program = (
        "import site, sys; site.addsitedir(sys.argv[1])\n"
        "from importlib import resources\n"
        "print(resources.files('neo.schema').joinpath('sqlite.sql'))"
    )
    # Without its site packages, where the project may be installed from elsewhere.
    command = [sys.executable, "-E", "-S", "-c", program, str(site)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).resolve() == source / "schema" / "sqlite.sql"
