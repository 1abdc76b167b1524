"""Clean roots of Debian: one into which the package was installed, one with a Zope of its own.

debootstrap writes the first one, which is kept. Everything needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The release for which the package is: that of this machine.
RELEASE_FILE = Path("/etc/os-release")
#: What a Debian has that was installed by its installer, and a bare root has not.
USUAL = ("sudo", "curl", "ca-certificates")
#: The parts of the tree that `pip install` needs.
TREE = (
    *("neo", "neoctl", "pyspark_neo", "schema"),
    *("setup.cfg", "pyproject.toml", "README.md", "LICENSE.txt"),
)
#: Settings of pip that belong to the network of this machine.
NETWORK = ("PIP_INDEX_URL", "PIP_CERT")
#: Each step downloads something; a slow mirror is no failure.
STEP_SECONDS = 1800


class PathError(Exception):
    """A step of the path fails. The message has the step and what it said."""


def run(command: Sequence[str], what: str, cwd: Path | None = None) -> str:
    """Run a command and return its output. Raise PathError if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
        cwd=cwd,
    )
    if done.returncode:
        raise PathError(f"{what}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def environment() -> list[str]:
    """Return the words of a command that gives a process in a root its variables."""
    fixed = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "USER": "root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **{name: os.environ[name] for name in NETWORK if name in os.environ},
    }
    return ["env", "-i", *(f"{name}={value}" for name, value in fixed.items())]


def inside(root: Path, text: str) -> str:
    """Run a piece of a shell script as root in a root, with the network of this machine."""
    mount = 'mount -t proc proc "$0/proc"; exec chroot "$@"'
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", mount]
    return run([*command, str(root), str(root), *environment(), "sh", "-ec", f"cd; {text}"], text)


def base(folder: Path) -> Path:
    """Return a root as debootstrap writes it, with what is usual. It is made once."""
    lines = RELEASE_FILE.read_text().splitlines()
    (release,) = (line.partition("=")[2] for line in lines if line.startswith("VERSION_CODENAME="))
    made = folder / f"base-{release}"
    if not made.exists():
        new = folder / "new"
        shutil.rmtree(new, ignore_errors=True)
        run(["debootstrap", "--variant=minbase", release, str(new)], "debootstrap")
        _network(new)
        # A person says yes to apt.
        (new / "etc/apt/apt.conf.d/90yes").write_text('APT::Get::Assume-Yes "true";\n')
        inside(new, f"apt-get update; apt-get install --no-install-recommends {' '.join(USUAL)}")
        new.rename(made)
    return made


def _network(root: Path) -> None:
    """Give a root what this machine knows of its network."""
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    if certificate := os.environ.get("PIP_CERT"):
        target = root / certificate.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(certificate, target)


def copy(source: Path, target: Path) -> Path:
    """Return a fresh copy of a root, which may use the network of this machine."""
    shutil.rmtree(target, ignore_errors=True)
    run(["cp", "-a", str(source), str(target)], "copy of a root")
    _network(target)
    return target


def copy_tree(root: Path) -> str:
    """Copy this tree into a root, and return where."""
    place = root / "root/neo-tree"
    place.mkdir()
    for name in TREE:
        path = ROOT / name
        if path.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, place / name, symlinks=True, ignore=ignore)
        else:
            shutil.copyfile(path, place / name)
    return "./neo-tree"
