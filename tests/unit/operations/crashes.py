"""Crashes of peers and of the primary, after each event of an operation, and at random."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from neo.operations.initiator import Refused
from neo.operations.model import INITIATOR
from tests.unit.operations.world import World, step

PEERS = A, B, C = 1, 2, 3
PRIMARY = 0


def begin(world: World) -> None:
    world.settle(1)
    world.begin(
        step("first", [A, B]),
        step("second", [C, B]),
        step("third", [A, B, C], synchronised=True),
        step("of the primary", [INITIATOR], synchronised=True),
        step("last", [B], synchronised=True),
    )


def crash(world: World, who: int) -> None:
    if who == PRIMARY:
        world.elect()
    else:
        world.peers[who].crash()


def length(make: Callable[[], World]) -> int:
    """Return how many events an operation takes that nothing disturbs."""
    world = make()
    begin(world)
    count = 0
    while events := world.events():
        events[0]()
        count += 1
    return count


def one_crashes_after_any_event(persistent: bool, fails: int | None, who: int) -> None:
    """``fails``: a step of B."""

    def make() -> World:
        world = World(persistent=persistent)
        if fails is not None:
            world.peers[B].failing = {fails}
        return world

    for moment in range(length(make)):
        world = make()
        begin(world)
        for _ in range(moment):
            world.events()[0]()
        crash(world, who)
        for _ in range(5):
            if events := world.events():
                events[0]()
        world.peers[B].failing = set()
        world.heal()
        world.check()


def all_crash_after_any_event(persistent: bool) -> None:
    for moment in range(length(lambda: World(persistent=persistent))):
        world = World(persistent=persistent)
        begin(world)
        for _ in range(moment):
            world.events()[0]()
        for who in (A, B, C, PRIMARY):
            crash(world, who)
        world.heal()
        world.check()


def all_crash_while_the_disk_is_slow(persistent: bool) -> None:
    """Each sync ends as late as it can."""

    def go_on(world: World) -> None:
        disk = world.peers[A].journal
        fast = [event for event in world.events() if event != disk.synced]
        if fast:
            fast[0]()
        elif disk.syncs and world.now % 3 == 0:
            disk.synced()
            world.tick()
        else:
            world.tick()

    for moment in range(60):
        world = World(1, persistent)
        world.settle(1)
        world.begin(step("only", [A]))
        for _ in range(moment):
            go_on(world)
        for who in (A, PRIMARY):
            crash(world, who)
        world.heal()
        world.check()
    assert world.reported


def play(seed: int, persistent: bool, count: int = 250) -> World:
    """Begin operations at random, and let events, faults and time come in a random order."""
    chance = Random(seed)
    world = World(chance.randrange(2, 5), persistent)
    numbers = list(world.peers)
    for peer in world.peers.values():
        peer.failing = {chance.randrange(5)} if chance.random() < 0.3 else set()
        peer.bad_undos = chance.choice((0, 0, 1, 3))
    world.own.bad = chance.choice((0, 0, 2, 9))
    for _ in range(count):
        dice = chance.random()
        if dice < 0.03:
            who = chance.choice([PRIMARY, *numbers])
            if who == PRIMARY or world.peers[who].up:
                crash(world, who)
        elif dice < 0.08:
            down = [peer for peer in world.peers.values() if not peer.up]
            if down:
                chance.choice(down).start()
        elif dice < 0.11:
            world.peers[chance.choice(numbers)].disconnect()
        elif dice < 0.16:
            world.tick()
        elif dice < 0.22:
            random_operation(world, chance)
        elif dice < 0.23 and world.namespace.pending:
            abort(world, chance.choice(list(world.namespace.pending)))
        elif events := world.events():
            chance.choice(events)()
    for peer in world.peers.values():
        peer.failing = set()
    world.heal()
    world.check()
    return world


def random_operation(world: World, chance: Random) -> None:
    numbers = list(world.peers)
    steps = [
        step(
            f"step {n}",
            sorted(chance.sample(numbers, chance.randrange(1, len(numbers) + 1))),
            synchronised=chance.random() < 0.5,
        )
        for n in range(chance.randrange(1, 5))
    ]
    if chance.random() < 0.4:
        own = step("of the primary", [INITIATOR], synchronised=True)
        steps.insert(chance.randrange(1, len(steps) + 1), own)
    locks = tuple(chance.sample(("history", "table", "nodes"), chance.randrange(1, 3)))
    with suppress(Refused):
        world.begin(*steps, locks=locks, resumable=chance.random() < 0.3, seconds=30.0)


def abort(world: World, id: int) -> None:
    with suppress(Refused):
        world.initiator.abort(id, "the operator wished so")
