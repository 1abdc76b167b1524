"""How long transactions wait for one synchronous backup in all (specification 25.65), and backups that
leave again and again (specification 25.67)."""

from __future__ import annotations

import pytest

from neo.master.commit.sync_backups import LEASE_OVER_SECONDS, ROUNDING_SECONDS
from neo.master.flapping import FLAP_LOSSES, FLAP_SECONDS
from neo.master.settings import SyncPolicy
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AskJoinSync,
    AskLockBackup,
    AskSyncLease,
    SetSync,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.waiting_world import TIMEOUT, WaitingWorld, admits

LONGEST = TIMEOUT + LEASE_OVER_SECONDS + 2 * ROUNDING_SECONDS


def keep_joining(world: WaitingWorld, backup: Remote, seconds: float) -> None:
    """Join whenever the upstream cluster admits it, and ask for leases, but lock nothing."""
    for _ in range(round(seconds / 0.5)):
        if not admits(backup, AskSyncLease()) and admits(backup, AskJoinSync()):
            assert admits(backup, AskSyncLease())
        world.host.advance(0.5)


def test_a_transaction_waits_once_for_a_backup_that_joins_again_and_again() -> None:
    """Specification 25.65: its master lives, and a storage node of it stands still."""
    world = WaitingWorld()
    backup = world.in_sync()
    finished = world.finish()
    keep_joining(world, backup, TIMEOUT + 1.0)
    assert not finished.done
    keep_joining(world, backup, LONGEST - TIMEOUT - 1.0)
    world.host.advance(1.0)
    assert finished.done, "it waits for the same backup for the second time"


def test_the_time_goes_on_when_the_connection_breaks() -> None:
    """Specification 25.65: each new connection would begin it anew."""
    world = WaitingWorld()
    backup = world.in_sync()
    finished = world.finish()
    for _ in range(4):
        world.host.advance(TIMEOUT / 5)
        backup.lose()
        backup = world.in_sync()
        assert backup.has(AskLockBackup) and not finished.done
    world.host.advance(TIMEOUT / 5 + ROUNDING_SECONDS)
    assert world.state()[1] == "lost" and not finished.done
    refused = error_of(backup.ask(AskJoinSync()))
    assert refused.code is ErrorCode.DENIED
    assert refused.message == (
        "a transaction has waited 3 seconds for synchronous standby far, and goes on without it first"
    )
    world.host.advance(LEASE_OVER_SECONDS)
    assert finished.done
    assert admits(backup, AskJoinSync()), "nothing waits for it any more"


def test_a_prepared_transaction_waits_once_as_well() -> None:
    """Specification 25.26, 25.65."""
    world = WaitingWorld()
    backup = world.in_sync()
    prepared = world.prepare()
    keep_joining(world, backup, LONGEST + 1.0)
    assert prepared.done


def test_what_is_prepared_for_long_keeps_no_backup_out() -> None:
    """Specification 25.65: it waits for its coordinator, not for the backup."""
    world = WaitingWorld()
    backup = world.in_sync()
    prepared = world.prepare()
    world.keep(backup)
    assert prepared.done
    world.host.advance(1000.0)
    assert admits(world.backup(), AskJoinSync())


def test_with_the_policy_to_stop_a_backup_may_always_join() -> None:
    """Specification 25.16: it is what the transactions wait for."""
    world = WaitingWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    finished = world.finish()
    backup.lose()
    world.host.advance(60.0)
    backup = world.in_sync()
    assert not finished.done
    world.acknowledge(backup)
    assert finished.done


# -- backups that flap ---------------------------------------------------------------------------


def flap(world: WaitingWorld, times: int) -> Remote:
    for _ in range(times):
        backup = world.in_sync()
        world.host.advance(1.0)
        backup.lose()
        world.host.advance(LEASE_OVER_SECONDS)
    return world.in_sync()


def test_a_backup_that_flaps_is_named_while_it_is_in_sync_and_while_it_is_not() -> None:
    """Specification 25.67."""
    world = WaitingWorld()
    backup = flap(world, FLAP_LOSSES - 1)
    assert world.state()[1::4] == ("sync", "")
    backup.lose()
    first = world.state()[2]
    text = "the last time because: the connection with its master was lost"
    assert world.state()[5].startswith(f"it left {FLAP_LOSSES} times in ")
    backup = world.in_sync()
    world.host.advance(1.0)
    name, state, since, _, _, reason = world.state()
    assert state == "sync" and reason.endswith(text)
    assert since > first, "since when it is in sync"
    backup.lose()
    world.host.advance(LEASE_OVER_SECONDS)
    name, state, since, _, _, reason = world.state()
    assert state == "async"
    assert since == pytest.approx(first, abs=0.01), "since when it flaps"
    assert reason.startswith(f"it left {FLAP_LOSSES + 1} times in ")


def test_losses_of_long_ago_do_not_count() -> None:
    """Specification 25.67."""
    world = WaitingWorld()
    backup = flap(world, FLAP_LOSSES)
    world.renew(backup, FLAP_SECONDS)
    assert world.state()[1::4] == ("sync", "")


def test_a_backup_that_was_switched_off_and_on_does_not_flap() -> None:
    world = WaitingWorld()
    flap(world, FLAP_LOSSES)
    for on in (False, True):
        world.admin().ask(SetSync("far", on)).result()
    world.in_sync()
    assert world.state()[1::4] == ("sync", "")


# -- backups that never join ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connected", "why"),
    [(False, "its master is not connected"), (True, "its master is connected, and knows why")],
)
def test_a_backup_that_never_joins(connected: bool, why: str) -> None:
    """Specification 25.45."""
    world = WaitingWorld()
    if connected:
        world.backup()
    world.host.advance(LEASE_OVER_SECONDS)
    assert world.state()[1::4] == ("async", f"it has not joined yet: {why}")
