"""Faults that the seed chooses while the workloads run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import TYPE_CHECKING

from neo.net.fault_sites import FaultSite
from tests.simulator.clients import ClientProcess
from tests.simulator.interrupts import INTERRUPTED
from tests.simulator.process import Process
from tests.simulator.standing import STAND_STILL
from tests.simulator.world import World

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: Range of the mean time between two faults, and range of a fault's duration.
BETWEEN_SECONDS = (0.05, 2.0)
LASTING_SECONDS = (0.01, 5.0)
CLOCK_JUMP_SECONDS = 7200.0
#: Part of the fault sites that a seed enables, and the probability with which these fire.
ENABLED_CHANCE = 0.25
FIRE_CHANCES = (0.005, 0.05, 0.2)


class Sites:
    """Fault sites in the code of nodes and clients, as in FoundationDB. The seed enables each of them
    or not. An enabled site fires with a probability of its own."""

    def __init__(self, world: World, names: Collection[str] | None = None) -> None:
        """``names``: the sites that may fire, None for all."""
        self._world = world
        self._active = False
        self._probabilities = {
            site: world.random.choice(FIRE_CHANCES) if world.chance(ENABLED_CHANCE) else 0.0
            for site in FaultSite
        }
        if names is not None:
            # Filtered only after the choice, so that the other choices of the seed stay the same.
            for site in FaultSite:
                if site.name not in names:
                    self._probabilities[site] = 0.0
        self.fired: dict[str, int] = {}

    def start(self) -> None:
        self._active = True

    def stop(self) -> None:
        self._active = False

    def __call__(self, who: str, site: FaultSite) -> bool:
        probability = self._probabilities[site]
        if not probability or not self._active or not self._world.chance(probability):
            return False
        self._world.log(who, f"fault site: {site}")
        self.fired[site.name] = self.fired.get(site.name, 0) + 1
        return True


class Faults:
    """Inject faults from :meth:`start` to :meth:`stop`."""

    def __init__(self, run: Run, names: Sequence[str] | None) -> None:
        """``names``: the kinds to use, None for a choice of the seed."""
        self._run = run
        self._world = run.world
        self._random = run.world.random
        old = [name for name in KINDS if name not in (OPERATE, *LATER, *OLD_DISKS)]
        chosen = [name for name in old if self._world.chance(0.6)]
        if names is None and self._run.options.canary is None:
            chosen += [name for name in (OPERATE,) if self._run.operator.busy]
            # A separate generator, so that the other choices of the seed stay the same.
            later = Random(f"later faults {self._world.seed}")
            chosen += [name for name, chance in LATER.items() if later.random() < chance]
        # Without "none" and the kinds for several masters.
        self._kinds = [name for name in (chosen if names is None else names) if name in KINDS]
        if run.one_process is not None:
            self._kinds = [name for name in self._kinds if name not in ALONE]
        #: Whether none of these faults makes a node or a link fail.
        self.calm = set(self._kinds) <= {STAND_STILL, INTERRUPTED}
        #: Whether no disk loses what was durable.
        self.keeps_disks = not {*OLD_DISKS, "broken-promise"}.intersection(self._kinds)
        self._between = self._random.uniform(*BETWEEN_SECONDS)
        self._active = False
        self.injected: dict[str, int] = {}

    def start(self) -> None:
        self._active = True
        self._plan()

    def stop(self) -> None:
        self._active = False

    def _plan(self) -> None:
        if self._kinds:
            self._world.call_later(
                self._random.expovariate(1 / self._between), self._inject, "fault"
            )

    def _inject(self) -> None:
        if self._active:
            name = self._random.choice(self._kinds)
            self.injected[name] = self.injected.get(name, 0) + 1
            KINDS[name](self)
            self._plan()

    def _lasting(self) -> float:
        low, high = LASTING_SECONDS
        ratio: float = (high / low) ** self._random.random()
        return low * ratio

    def _later(self, callback: Callable[[], None], name: str) -> None:
        self._world.call_later(self._lasting(), callback, name)

    # -- processes ---------------------------------------------------------------------------------

    def _server(self) -> Process:
        return self._random.choice(self._run.servers)

    def _kill_server(self) -> None:
        process = self._server()
        if process.alive:
            process.kill()
            self._later(process.revive, f"start {process.name}")

    def _kill_client(self) -> None:
        self._run.replace_client(self._random.randrange(len(self._run.applications)))

    def _pause(self) -> None:
        process = self._server()
        process.pause()
        self._later(process.resume, f"resume {process.name}")

    def _pause_client(self) -> None:
        """Pause a client, at once or after its next vote, so that others wait for its locks."""
        application = self._random.choice(self._run.applications)
        if self._world.chance(0.5):
            self._stop_client(application.process)
        else:
            application.at_vote = lambda: self._stop_client(application.process)

    def _stop_client(self, process: ClientProcess) -> None:
        if self._active:
            process.pause()
            self._later(process.resume, f"resume {process.name}")

    # -- network -----------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Reset a connection whose processes both live on."""
        connections = self._run.cluster.network.connections
        if connections:
            end = self._random.choice(connections)
            self._world.log("network", f"connection of {end.host} and {end.other.host} is reset")
            end.sever()

    def _hosts(self) -> tuple[str, str]:
        hosts = [p.host for p in self._run.servers]
        hosts += [application.process.host for application in self._run.applications]
        source, target = self._random.sample(hosts, 2)
        return source, target

    def _cut(self) -> None:
        source, target = self._hosts()
        network = self._run.cluster.network
        both = self._world.chance(0.5)
        self._world.log("network", f"{source} -> {target} is cut{' both ways' if both else ''}")
        network.cut(source, target)
        if both:
            network.cut(target, source)
        self._later(network.heal, "heal network")

    def _slow_link(self) -> None:
        source, target = self._hosts()
        network = self._run.cluster.network
        network.slow(source, target, self._random.uniform(0.001, 0.3))
        self._later(network.heal, "heal network")

    # -- clocks and disks --------------------------------------------------------------------------

    def _jump(self) -> None:
        process = self._server()
        process.clock_skew = self._random.uniform(-CLOCK_JUMP_SECONDS, CLOCK_JUMP_SECONDS)
        self._world.log(process.name, f"clock is off by {process.clock_skew:.0f} s")

    def _disk(self) -> str:
        return self._random.choice(list(self._run.disks))

    def _slow_disk(self) -> None:
        name = self._disk()
        disk = self._run.disks[name]
        disk.slow = self._random.uniform(2, 200)
        self._later(disk.heal, f"heal disk of {name}")

    def _full_disk(self) -> None:
        name = self._disk()
        disk = self._run.disks[name]
        self._world.log(name, "disk is full")
        disk.full = True
        self._later(disk.heal, f"heal disk of {name}")

    def _failing_disk(self) -> None:
        """Let syncs, or some of the reads, or both fail."""
        name = self._disk()
        disk = self._run.disks[name]
        disk.failing, disk.unreadable = self._random.choice(
            ((True, False), (False, True), (True, True))
        )
        self._world.log(
            name, f"disk fails: {'syncs ' * disk.failing}{'reads' * disk.unreadable}".rstrip()
        )
        self._later(disk.heal, f"heal disk of {name}")

    def _operate(self) -> None:
        self._run.operator.act()

    def _damage(self) -> None:
        self._run.damage.act()

    def _clone(self) -> None:
        self._run.cloning.act()

    def _forsake(self) -> None:
        self._run.forsaking.act()

    def _old_disk(self) -> None:
        self._run.old_disks.old_disk()

    def _lost_tail(self) -> None:
        self._run.old_disks.lost_tail()

    def _gap(self) -> None:
        self._run.old_disks.gap()

    def _stand_still(self) -> None:
        self._run.standing.act()

    def _unmount(self) -> None:
        if not self._run.forsaking.begun:  # a start is forced with the connected nodes
            self._run.unmounted.act()

    def _interrupt(self) -> None:
        self._run.interrupts.act()

    def _break_promise(self) -> None:
        self._run.broken_promises.act()


#: Not in the full mix, in which only data that was not synced is lost: with another fault at the same
#: time no sound copy may be left.
OLD_DISKS = ("old-disk", "lost-tail", "gap")
#: The operator's commands: not a fault, but as unexpected for the nodes.
OPERATE = "operate"
#: Kinds that were added when many seeds were known, with the part of the seeds that has each.
LATER = {
    "pause-client": 0.6,
    "reset": 0.6,
    "clone": 0.2,
    "damage": 0.2,
    "forsake": 0.2,
    "unmount": 0.2,
    STAND_STILL: 0.3,
    "broken-promise": 0.2,
    INTERRUPTED: 0.2,
}

#: Kinds in which one node is kept away for long, or finds another disk: not for nodes that share a
#: process.
ALONE = frozenset(("clone", "forsake", "unmount", "broken-promise", *OLD_DISKS))

KINDS: dict[str, Callable[[Faults], None]] = {
    "kill-server": Faults._kill_server,
    "kill-client": Faults._kill_client,
    "pause": Faults._pause,
    "cut": Faults._cut,
    "slow-link": Faults._slow_link,
    "clock": Faults._jump,
    "slow-disk": Faults._slow_disk,
    "full-disk": Faults._full_disk,
    "failing-disk": Faults._failing_disk,
    OPERATE: Faults._operate,
    "pause-client": Faults._pause_client,
    "reset": Faults._reset,
    "clone": Faults._clone,
    "forsake": Faults._forsake,
    "unmount": Faults._unmount,
    "damage": Faults._damage,
    "old-disk": Faults._old_disk,
    "lost-tail": Faults._lost_tail,
    "gap": Faults._gap,
    STAND_STILL: Faults._stand_still,
    "broken-promise": Faults._break_promise,
    INTERRUPTED: Faults._interrupt,
}
