"""A stranger's path: install the package, make a cluster of three machines, run Zope, replace a machine.

    python -m tests.install.stranger [--package FILE] [--folder FOLDER]

Each step is a command of the documentation: of the README that ``neoctl init`` writes, or of
docs/operating.md. Machines are roots of a clean Debian in network namespaces. Two programs are replaced:
``systemctl`` by one that executes the units (no systemd runs in a namespace), and ``ssh`` by a step into
the namespace. The firewall is not loaded. Needs root, debootstrap and iproute2.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

from tests.faults.network import Machine, Network, isolated
from tests.install.roots import ROOT, PathError, base, copy, copy_tree, environment, inside, run
from tests.support.patience import PATIENCE_SECONDS, wait_until

NUMBERS = (1, 2, 3)
#: The machine that is lost.
LOST = 3
USER = base64.b64encode(b"admin:secret").decode()
SITE = "http://127.0.0.1:8080"


def say(text: str) -> None:
    print(text, flush=True)


def blocks(text: str) -> list[str]:
    """Return the commands of a text in Markdown: fenced ones, or those indented by seven spaces."""
    fenced = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^ {7}\S.*\n)+", text, re.MULTILINE)
    return fenced or [re.sub("^ {7}", "", block, flags=re.MULTILINE) for block in indented]


def steps(text: str) -> dict[str, list[str]]:
    """Return the commands of each numbered step of a text; those of its last section are ``lost``."""
    done, _, lost = text.partition("\n## ")
    parts = re.split(r"^(\d)\. ", done, flags=re.MULTILINE)[1:]
    found = {number: blocks(part) for number, part in zip(parts[::2], parts[1::2], strict=True)}
    return {**found, "lost": blocks(lost)}


# -- before the machines are apart -------------------------------------------------------------------


def install(folder: Path, package: Path) -> None:
    """Make the root of a machine with the package, and that of an application with Zope."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = base(folder)
    machine = copy(clean, folder / "machine")
    shutil.copyfile(package, machine / "root" / package.name)
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    (command,) = set(re.findall(r"^    (sudo apt install \./zodb-neo_\S+\.deb)$", page, re.MULTILINE))
    inside(machine, re.sub(r"zodb-neo_\S+", package.name, command))
    say(inside(machine, "neoctl --version; man -w neoctl 2>/dev/null || true; id neo").strip())
    shim = machine / "usr/local/sbin/systemctl"
    shutil.copyfile(Path(__file__).with_name("systemctl.py"), shim)
    shim.chmod(0o755)
    say("1. the package is installed on a clean Debian")

    application = copy(clean, folder / "application")
    tree = copy_tree(application)
    inside(application, zope_steps()[0].replace("PATH-OF-NEO", tree).replace("PASSWORD", "secret"))
    say("2. an application is installed: Zope in an environment of its own")


def zope_steps() -> list[str]:
    """Return the commands of docs/operating.md for Zope: install, configure, run."""
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    (section,) = re.findall(r"^### A Zope site$(.*?)^### ", page, re.MULTILINE | re.DOTALL)
    found = blocks(section)
    assert len(found) == 3, found
    return found


# -- machines ----------------------------------------------------------------------------------------


class Host:
    """A machine with a root of its own, above that of the installed package."""

    def __init__(self, folder: Path, network: Machine | None, name: str) -> None:
        self.root = folder / name
        self._network = network
        self._folder = folder
        self._disks = 0
        self.new_disk()

    def new_disk(self) -> None:
        """Give the machine the state right after the installation of the package."""
        if self._disks:
            run(["umount", str(self.root / "proc")], "umount")
            run(["umount", str(self.root)], "umount")
        self._disks += 1
        upper, work = (self._folder / f"{self.root.name}-{w}{self._disks}" for w in ("disk", "work"))
        for path in (self.root, upper, work):
            path.mkdir(exist_ok=True)
        layers = f"lowerdir={self._folder.parent / 'machine'},upperdir={upper},workdir={work}"
        run(["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)], "a root")
        run(["mount", "-t", "proc", "proc", str(self.root / "proc")], "proc")

    @property
    def prefix(self) -> list[str]:
        """Return the words of a command that runs another one on this machine."""
        network = self._network.prefix if self._network else []
        return [*network, "chroot", str(self.root), *environment()]

    def shell(self, text: str) -> str:
        return run([*self.prefix, "sh", "-ec", f"cd; {text}"], f"{self.root.name}: {text}")

    def answer(self, text: str) -> str:
        """Return the output of a command, whatever its exit code."""
        done = subprocess.run(
            [*self.prefix, "sh", "-c", text],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout + done.stderr

    def kill(self) -> None:
        """End all processes of the machine, as a loss of power does."""
        for path in (self.root / "run/units").glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)

    def logs(self) -> str:
        texts = (
            f"--- {self.root.name} {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted((self.root / "var/log").glob("neo*.log"))
        )
        return "\n".join(texts)


class Path3:
    """The path through three machines, from the empty ones to the replaced one."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.hosts = {n: Host(folder, network.machines[f"machine{n}"], f"machine{n}") for n in NUMBERS}
        self.addresses = {n: network.machines[f"machine{n}"].address for n in NUMBERS}
        self.operator = Host(folder, None, "operator")
        self.application = folder.parent / "application"
        self.files = self.operator.root / "root/shop-files"
        self.steps: dict[str, list[str]] = {}

    def init(self) -> None:
        """Write the files of the cluster, and read from their README what to do."""
        self.operator.shell(f"neoctl init shop-files shop {' '.join(self.addresses.values())}")
        self.steps = steps((self.files / "README.md").read_text())
        say("3. neoctl init has written the files of three machines")

    def deliver(self, number: int) -> None:
        """Do step 2 for a machine: bring its files."""
        (text,) = self.steps["2"]
        text = text.replace("machine1", f"machine{number}")
        text = text.replace(f"ssh {self.addresses[1]}", f"ssh {self.addresses[number]}")
        cases = "".join(
            f"{self.addresses[n]}) {' '.join(host.prefix)} sh -ec \"$*\" ;;\n"
            for n, host in self.hosts.items()
        )
        ssh = f"ssh() {{ there=$1; shift; case $there in\n{cases}*) exit 1 ;; esac; }}\n"
        run(["sh", "-ec", ssh + text], f"step 2 of machine {number}", cwd=self.files)

    def start(self, number: int) -> None:
        """Do step 4 for a machine: start its units."""
        (text,) = self.steps["4"]
        self.hosts[number].shell(text.replace("@1", f"@{number}"))

    def create(self) -> None:
        """Do step 5: wait for the nodes, create the database, look at it and at the page."""
        first = self.hosts[1]
        commands, page = self.steps["5"]
        look, create, status = commands.strip().splitlines()
        wait_until(lambda: first.answer(look).count("| PENDING |") == 3, "three storage nodes")
        assert "503" in first.answer(f"{page.strip()} -sw '%{{http_code}}'"), "not ready yet"
        first.shell(create)
        wait_until(lambda: "any 1 storage node may fail" in first.answer(status), "a database")
        wait_until(lambda: self.ready(1), "readiness")
        say(first.answer(status).strip())

    def ready(self, number: int) -> bool:
        """Return whether the page of a machine's admin node says so."""
        page = self.steps["5"][1].strip()
        return self.hosts[number].answer(f"{page} -sfo /dev/null && echo yes").strip() == "yes"

    def lose(self) -> None:
        """Lose a machine, with its disk."""
        self.hosts[LOST].kill()
        first, status = self.hosts[1], self.steps["5"][0].strip().splitlines()[2]
        wait_until(lambda: "DOWN" in first.answer(status), "a lost machine")
        wait_until(lambda: self.ready(1), "readiness without a machine")

    def replace(self) -> None:
        """Do what the README says about a lost machine."""
        self.hosts[LOST].new_disk()
        self.deliver(LOST)
        self.start(LOST)
        first = self.hosts[1]
        look, replace = self.steps["lost"]
        seen: dict[str, str] = {}

        def both() -> bool:
            seen.update((state, nid) for nid, state in re.findall(STORAGE, first.answer(look)))
            return "DOWN" in seen and "PENDING" in seen

        wait_until(both, "the new storage node")
        command, status = replace.replace("S3 S4", f"{seen['DOWN']} {seen['PENDING']}").splitlines()
        say(first.shell(command).strip())
        wait_until(lambda: "No problem." in first.answer(status), "a whole cluster")
        say(first.answer(status).strip())

    def logs(self) -> str:
        return "\n".join(host.logs() for host in self.hosts.values())


#: A line of `neoctl print node storage`.
STORAGE = r"(?m)^(S\d+) \| STORAGE \| [^|]* \| (\w+) "


# -- the application ---------------------------------------------------------------------------------


def request(path: str, **form: str) -> str:
    """Ask Zope as its administrator."""
    data = "&".join(f"{name}={value}" for name, value in form.items()).encode() if form else None
    headers = {"Authorization": f"Basic {USER}"}
    with urlopen(Request(SITE + path, data, headers), timeout=PATIENCE_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def made(name: str) -> bool:
    """Make a folder in the site, if it is not there. Return whether it is."""
    if there(name):
        return True
    with suppress(OSError):  # no answer yet, or a conflict
        request("/manage_addProduct/OFSP/manage_addFolder", id=name, title="")
    return there(name)


def there(name: str) -> bool:
    """Return whether the site has a folder."""
    with suppress(OSError):
        return request(f"/{name}/getId") == name
    return False


def serve(path: Path3, log: Path) -> subprocess.Popen[bytes]:
    """Configure Zope with the files of the application, and start it."""
    shutil.copytree(path.files / "application", path.application / "root/application")
    run(["mount", "-t", "proc", "proc", str(path.application / "proc")], "proc")
    prefix = ["chroot", str(path.application), *environment()]
    _, configure, start = zope_steps()
    run([*prefix, "sh", "-ec", f"cd; {configure}"], "configuration of Zope")
    with open(log, "wb") as output:
        return subprocess.Popen(
            [*prefix, "sh", "-ec", f"cd; exec {start}"], stdout=output, stderr=subprocess.STDOUT
        )


# -- the way -----------------------------------------------------------------------------------------


def walk(folder: Path) -> None:
    """Go the path in namespaces of its own, from the roots that `install` made."""
    network = Network([f"machine{n}" for n in NUMBERS])
    live = folder / "live"
    live.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "tmpfs", str(live)], "memory for disks")
    path = Path3(live, network)
    log = live / "zope.log"
    todo: list[Callable[[], object]] = []
    try:
        path.init()
        for number in NUMBERS:
            path.deliver(number)
        for number in NUMBERS:
            path.start(number)
        say("4. nine units are ready")
        path.create()
        say("5. the cluster serves: /ready")
        zope = serve(path, log)
        todo.append(zope.kill)
        wait_until(lambda: made("before") or zope.poll() is not None, "a site")
        assert zope.poll() is None, "Zope has ended"
        say("6. Zope serves, and keeps what was made")
        path.lose()
        wait_until(lambda: made("during"), "a site without a machine")
        say("7. a machine is lost, and the site goes on")
        path.replace()
        wait_until(lambda: made("after"), "a site with a new machine")
        assert all(map(there, ("before", "during", "after"))), "something is lost"
        say("8. the machine is replaced by one command; nothing is lost")
    except BaseException:
        say(path.logs())
        if log.exists():
            say(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        for end in todo:
            end()
        network.close()


def build(folder: Path) -> Path:
    """Build the package of this tree."""
    os.environ.setdefault("TOOLS", sys.executable)
    return Path(run([str(ROOT / "packaging/debian/build.sh"), str(folder)], "package").split()[-1])


def main() -> int:
    """Go the path. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.stranger", description=__doc__)
    parser.add_argument("--package", type=Path, help="a package that was built before")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build/install", help="of roots, build/install by default"
    )
    parser.add_argument("--walk", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.absolute()
    if options.walk:
        walk(folder)
        return 0
    if os.getuid():
        parser.error("roots of Debian are made by root alone")
    try:
        install(folder, options.package or build(folder))
        command = [sys.executable, "-m", "tests.install.stranger", "--walk", "--folder", str(folder)]
        return subprocess.run(isolated(command), cwd=ROOT).returncode
    except PathError as e:
        say(str(e))
        return 1
    finally:
        for name in ("machine", "application", "live"):
            shutil.rmtree(folder / name, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
