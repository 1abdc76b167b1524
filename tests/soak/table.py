"""The searches. A share of 1 is about one hundredth of the time."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulator.canaries import CANARIES
from tests.soak.search import ROOT, Command, Draw, Search, python

#: Seeds of a round of the simulator, and planted bugs of a round of hunts.
SEEDS, BUGS = 16, 8
#: Parts of ZODB's suites with a synchronous backup; modules of unit tests that are run in one order.
SYNC_SLICES, MODULES = 40, 12
#: Folders whose suites have more combinations than the gate runs, and the parts of each.
WHOLE_SLICES = {"zodb": 24, "faults": 24, "pipelines": 8, "xa": 4, "sim": 16}
#: Workloads that may run beside prepared transactions.
BESIDE = ("bank", "counters", "deadlocks", "increments", "pack", "phases", "skew", "undo")
#: Writers of tests of faults never pause.
FULL_SPEED = {"NEO_PAUSE_SECONDS": "0"}
MINUTE = 60.0
#: A soak that has room for everything.
LONG = 40 * MINUTE


def _simulator(*options: str) -> Callable[[Draw], Command]:
    def command(draw: Draw) -> Command:
        first = int(draw.seed())
        seeds = f"{first}:{first + SEEDS}"
        arguments = ("--seeds", seeds, "--once", "--keep-going", "--jobs", "1", *options)
        return python("tests.simulator", *arguments)

    return command


def _prepared(draw: Draw) -> Command:
    workloads = ",".join(["prepared", *draw.random.sample(BESIDE, 2)])
    return _simulator("--workloads", workloads)(draw)


def _repeat_seeds(command: Command, output: str) -> list[str]:
    """Return the command of each failed seed, as the simulator reports it; then that of the round."""
    seeds = re.findall(r"^  replay: python -m tests\.simulator (.+)$", output, re.M)
    return [*(str(python("tests.simulator", *seed.split())) for seed in seeds), str(command)]


def _planted(draw: Draw) -> Command:
    names = list(CANARIES)[draw.slice(_bug_slices()) :: _bug_slices()]
    return python("tests.simulator", "--canaries", ",".join(names), "--jobs", "1")


def _bug_slices() -> int:
    return -(-len(CANARIES) // BUGS)


def _repeat_bugs(command: Command, output: str) -> list[str]:
    """Return the command that hunts for the bugs that were not found; then that of the round."""
    missed = ",".join(re.findall(r"^(\S+) +NO SEED ", output, re.M))
    shorter = python("tests.simulator", "--canaries", missed, "--jobs", "1")
    return [*([str(shorter)] if missed else []), str(command)]


def _storm(backend: str) -> Callable[[Draw], Command]:
    options = ("--seconds", "60", "--backend", backend)
    return lambda draw: python("tests.faults.storm", *options, "--seed", draw.seed(), **FULL_SPEED)


def _cuts(draw: Draw) -> Command:
    return python("tests.faults.cuts", "--count", "6", "--seed", draw.seed(), **FULL_SPEED)


def _tests(draw: Draw, *arguments: str, **environment: str) -> Command:
    """Return a command of pytest whose order and whose examples are fresh."""
    order = f"--randomly-seed={draw.seed()}"
    options = ("-q", "-p", "no:cacheprovider", order, f"--hypothesis-seed={draw.seed()}")
    return python("pytest", *options, *arguments, NEO_HYPOTHESIS="search", **environment)


def _seeded(name: str, *paths: str, **settings: str) -> Callable[[Draw], Command]:
    """Return the maker of commands that run tests with a fresh ``NEO_<name>_SEED``, and with
    ``NEO_<name>_<SETTING>``."""

    def command(draw: Draw) -> Command:
        environment = {f"NEO_{name}_{setting}": value for setting, value in settings.items()}
        environment |= FULL_SPEED if all(path.startswith("tests/faults") for path in paths) else {}
        return _tests(draw, *paths, **{f"NEO_{name}_SEED": draw.seed()}, **environment)

    return command


def _wire(draw: Draw) -> Command:
    return _tests(draw, "tests/fuzz/test_fuzz_wire.py")


def _sites(*options: str) -> Callable[[Draw], Command]:
    def command(draw: Draw) -> Command:
        masters = draw.random.choice(("1", "3"))
        shape = ("--masters", masters, "--seed", draw.seed())
        return python("tests.faults.sync_sites", *options, *shape)

    return command


def _take_overs(draw: Draw) -> Command:
    policy = draw.random.choice(("continue", "stop"))
    return _sites("--rounds", "4", "--policy", policy)(draw)


def _whole(folder: str) -> Callable[[Draw], Command]:
    """Return the maker of commands that run a part of all combinations of a folder's tests."""
    parts = WHOLE_SLICES[folder]

    def command(draw: Draw) -> Command:
        options = ("-p", "tests.soak.slices", "--slice", f"{draw.slice(parts)}/{parts}")
        return _tests(draw, *options, f"tests/{folder}", NEO_WHOLE="1")

    return command


def _standstill(draw: Draw) -> Command:
    """Return a command that runs a part of the tests of faults on a machine that stands still."""
    parts = WHOLE_SLICES["faults"]
    options = ("-p", "tests.soak.slices", "--slice", f"{draw.slice(parts)}/{parts}")
    tests = _tests(draw, *options, "tests/faults", "tests/tools", "tests/xa")
    still = python("tests.soak.standstills", "--seed", draw.seed())
    return Command((*still.arguments, *tests.arguments), tests.environment)


def _zodb_sync(draw: Draw) -> Command:
    # These tests wait more than they compute, so that three run at once.
    part = f"{draw.slice(SYNC_SLICES)}/{SYNC_SLICES}"
    options = ("-n", "3", "--dist", "loadscope", "-p", "tests.soak.slices", "--slice", part)
    return _tests(draw, *options, "tests/zodb", NEO_ZODB_SYNC="1")


def _order(draw: Draw) -> Command:
    modules = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests/unit").rglob("test_*.py"))
    # A soak in a soak would be a second one on the same processors.
    others = [module for module in modules if not module.startswith("tests/unit/soak/")]
    return _tests(draw, *draw.random.sample(others, MODULES))


def _schedules(draw: Draw) -> Command:
    path = "tests/unit/transactor/test_model.py"
    options = ("-k", "every_schedule", "--timeout", "0")
    return _tests(draw, *options, path, NEO_SEARCH_ROUNDS="2")


def _interrupts(draw: Draw) -> Command:
    path = "tests/unit/client/test_interrupts.py"
    return _tests(draw, "--timeout", "0", path, NEO_EVERY_BOUNDARY="1")


def _plone(draw: Draw) -> Command:
    return Command(("make", "plone"))


def _plone_seconds() -> float:
    return (5 if (ROOT / ".venv-plone" / ".installed").exists() else 12) * MINUTE


#: A way to look for bugs of a kind: name, what it does, share, command.
_Row = tuple[str, str, float, Callable[[Draw], Command]]


def _simulated() -> list[Search]:
    sync = ("--backup", "yes", "--sync", "yes")
    rows: list[_Row] = [
        ("simulator", "the full mix, fresh seeds", 20, _simulator()),
        ("simulator-operations", "with operations", 5, _simulator("--operations", "yes")),
        ("simulator-archives", "with backups into archives", 5, _simulator("--archives", "yes")),
        ("simulator-sync", "with a synchronous backup", 5, _simulator(*sync)),
        ("simulator-prepared", "prepared transactions beside others", 4, _prepared),
        ("simulator-blobs", "with blobs", 4, _simulator("--blobs", "yes")),
    ]
    planted = Search(
        name="planted",
        purpose="planted bugs: the simulator must find each",
        share=14,
        command=_planted,
        seconds=1.5 * MINUTE,
        limit=30 * MINUTE,
        repeat=_repeat_bugs,
        exact=True,
        rounds=_bug_slices(),
    )
    return [
        *(Search(*row, MINUTE, 35 * MINUTE, repeat=_repeat_seeds, exact=True) for row in rows),
        planted,
    ]


def _killed() -> list[Search]:
    def rounds(name: str, module: str, number: int) -> Callable[[Draw], Command]:
        return _seeded(name, f"tests/faults/test_{module}.py", ROUNDS=str(number))

    prepared = "applications, resolvers and several databases under `kill -9`"
    blobs = "uploads, some of them aborted, under `kill -9` of nodes and clients"
    rows: list[_Row] = [
        ("kill", "a cluster on each database under `kill -9`", 5, rounds("KILL", "kill", 20)),
        (
            "kill-one-process",
            "all nodes in one process under `kill -9`, and its files in several",
            2,
            rounds("KILL", "one_process", 25),
        ),
        (
            "kill-embedded",
            "an application with an embedded database under `kill -9`",
            2,
            _seeded("EMBEDDED", "tests/faults/test_embedded.py", ROUNDS="30"),
        ),
        ("kill-prepared", prepared, 3, rounds("PREPARED", "prepared", 15)),
        ("kill-blobs", blobs, 3, rounds("BLOB", "blobs_kill", 10)),
        ("kill-moves", "nodes are replaced under `kill -9`", 2, rounds("OPERATION", "moves", 4)),
        (
            "kill-operations",
            "backups and restores under `kill -9`",
            2,
            rounds("OPERATION", "operations", 6),
        ),
        (
            "kill-partitions",
            "the number of partitions changes under `kill -9`",
            2,
            rounds("OPERATION", "partitions", 3),
        ),
        ("kill-masters", "masters are lost and come back", 2, rounds("MASTER", "masters", 8)),
        ("kill-replicas", "storage nodes come and go", 2, rounds("REPLICA", "replicas", 15)),
        ("kill-transactors", "transactors under `kill -9`", 1, rounds("KILL", "transactor", 10)),
        (
            "sites",
            "faults between a cluster and its synchronous backup",
            2,
            _sites("--faults", "4"),
        ),
        ("take-overs", "a synchronous backup takes over, and back, under load", 4, _take_overs),
    ]
    return [Search(*row, 1.5 * MINUTE, 15 * MINUTE) for row in rows]


def _machines() -> list[Search]:
    rows: list[_Row] = [
        ("storm-sqlite", "all fails at once under load, on SQLite", 4, _storm("sqlite")),
        ("storm-mariadb", "all fails at once under load, on MariaDB", 4, _storm("mariadb")),
        ("cuts", "masters and storage nodes are cut off from each other", 4, _cuts),
    ]
    return [Search(*row, 2 * MINUTE, 10 * MINUTE) for row in rows]


def _fuzzed() -> list[Search]:
    roles = _seeded("FUZZ", "tests/fuzz/test_fuzz_roles.py", MESSAGES="1500")
    damage = _seeded("DAMAGE", "tests/tools/test_migrate_damage.py", ROUNDS="400")
    rows: list[_Row] = [
        ("fuzz-roles", "extreme messages for each role", 2, roles),
        ("fuzz-wire", "garbage for codec and connections", 2, _wire),
        ("damage", "damaged files are migrated", 2, damage),
    ]
    return [Search(*row, 0.5 * MINUTE, 10 * MINUTE, exact=True) for row in rows]


def _suites() -> list[Search]:
    rows: list[_Row] = [
        ("order", "some unit tests in another order, with other examples", 5, _order),
        ("zodb-whole", "ZODB's suites on every shape of a cluster", 4, _whole("zodb")),
        ("faults-whole", "all combinations of the tests of faults", 4, _whole("faults")),
        ("standstill", "tests of faults on a machine that stands still", 5, _standstill),
        ("pipelines-whole", "all combinations of the tests of pipelines", 2, _whole("pipelines")),
        ("xa-whole", "a crash at every step of each pair of databases", 1, _whole("xa")),
        ("sim-whole", "a kill at every step of each kind of operations", 2, _whole("sim")),
        ("zodb-sync", "ZODB's suites with a synchronous backup", 5, _zodb_sync),
    ]
    return [Search(*row, 1.5 * MINUTE, 15 * MINUTE) for row in rows]


def _once() -> list[Search]:
    """Return the searches that have nothing to draw, or take long: one round each, in a long soak."""
    every = "every schedule of three transactors, two posters, crashes of all, three rounds"
    rows: list[tuple[_Row, float]] = [
        (("schedules", every, 4, _schedules), 6 * MINUTE),
        (("interrupts", "the client, interrupted at each instruction", 4, _interrupts), 6 * MINUTE),
    ]
    plone = Search(
        name="plone",
        purpose="a Plone site moves to a cluster and back",
        share=8,
        command=_plone,
        seconds=_plone_seconds(),
        limit=30 * MINUTE,
        rounds=1,
        least=LONG,
        begin=0.6,
    )
    # They download: Debian packages, libraries. The history is that of the repository.
    stranger = Search(
        name="stranger",
        purpose="the Debian package on clean machines, Zope, a lost machine (needs root)",
        share=8,
        command=lambda draw: python("tests.install.stranger"),
        seconds=8 * MINUTE,
        limit=40 * MINUTE,
        rounds=1,
        least=LONG,
        begin=0.3,
    )
    rolling = Search(
        name="upgrade",
        purpose="a rolling upgrade from an earlier state, under load (needs the history)",
        share=2,
        command=lambda draw: python("tests.install.rolling"),
        seconds=2 * MINUTE,
        limit=20 * MINUTE,
        rounds=1,
        least=LONG,
    )
    once = (Search(*r, s, 40 * MINUTE, rounds=1, least=LONG) for r, s in rows)
    return [*once, plone, stranger, rolling]


def searches() -> list[Search]:
    """Return the table. In a short soak the first searches come first."""
    return [*_simulated(), *_killed(), *_machines(), *_fuzzed(), *_suites(), *_once()]
