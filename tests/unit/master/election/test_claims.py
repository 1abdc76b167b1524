"""When a master asks for its lease, suspects the primary and claims the next epoch (pure parts)."""

from __future__ import annotations

import pytest

from neo.master.election.election import Election
from neo.master.election.epochs import Claim, Decision, Epochs, Resign, encode
from neo.protocol.packets import NotifyLease

MEMBERS = ("a", "b", "c")
LIFE = {"a": 7, "b": 8, "c": 9}


def election(me: str, *log: Decision, now: float = 0.0) -> Election:
    """Return the election as a master sees it that has just learned these decisions."""
    epochs = Epochs()
    found = Election(me, LIFE[me], epochs, now)
    for decision in log:
        assert epochs.apply(encode(decision)) is not None
        found.decided(decision, now)
    return found


def hear(found: Election, now: float, serving: bool = True) -> bool:
    """Let the primary ask for its lease; return whether it is granted."""
    asked = NotifyLease(found.epochs.epoch, now, serving)
    return found.asked(found.epochs.primary, asked, now) is not None


def test_a_primary_asks_for_its_lease_every_0_4_seconds() -> None:
    """Specification 19.18."""
    found = election("a", Claim(1, "a", 7), now=10.0)
    assert found.ask(False, 10.0) == NotifyLease(1, 10.0, False)
    assert found.ask(True, 10.39) is None
    assert found.ask(True, 10.41) == NotifyLease(1, 10.41, True)
    assert election("b", Claim(1, "a", 7)).ask(False, 99.0) is None


def test_a_lease_is_granted_to_the_primary_alone() -> None:
    """Specification 19.19."""
    found = election("b", Claim(1, "a", 7))
    assert found.asked("c", NotifyLease(1, 1.0, False), 1.0) is None
    assert found.asked("a", NotifyLease(0, 1.0, False), 1.0) is None
    granted = found.asked("a", NotifyLease(1, 123.0, False), 1.5)
    assert granted is not None and (granted.epoch, granted.sent, granted.age) == (1, 123.0, 1.5)


def test_a_primary_that_is_not_heard_serving_is_suspected() -> None:
    """Specification 19.24."""
    found = election("b", Claim(1, "a", 7))
    assert hear(found, 4.5, serving=False)
    assert not found.suspects(4.59) and found.suspects(4.61)
    assert hear(found, 5.0)
    assert not found.suspects(7.49) and found.suspects(7.51)
    assert not election("a", Claim(1, "a", 7)).suspects(99.0)


def test_a_primary_whose_address_refuses_connections_is_suspected_soon() -> None:
    """Specification 19.24."""
    found = election("b", Claim(1, "a", 7))
    found.refused("a", 1.0)
    found.refused("a", 1.1)
    assert not found.suspects(1.14) and found.suspects(1.16)
    found.reached("a")
    assert not found.suspects(1.2)


def test_a_suspicion_is_said_every_0_25_seconds() -> None:
    """Specification 19.24."""
    found = election("b", Claim(1, "a", 7))
    assert not found.suspicion(4.0)
    assert [found.suspicion(now) for now in (5.0, 5.2, 5.26)] == [True, False, True]


def test_a_majority_that_suspects_the_primary_is_needed_to_claim() -> None:
    """What another master said counts for a second (specification 19.24, 19.25)."""
    found = election("b", Claim(1, "a", 7))
    assert found.claim(MEMBERS, 5.0) is None
    found.suspected("c", 0, 5.0)  # about an earlier primary
    found.suspected("stranger", 1, 5.0)
    assert found.claim(MEMBERS, 5.1) is None
    found.suspected("c", 1, 5.0)
    assert found.claim(MEMBERS, 6.01) is None
    assert found.claim(MEMBERS, 5.99) == Claim(2, "b", 8)
    assert found.claim(("a", "c"), 5.99) is None, "it is no member"


def test_members_claim_in_turns_that_begin_after_the_last_primary() -> None:
    """Specification 19.25."""
    for me, place in (("b", 0), ("c", 1)):
        found = election(me, Claim(1, "a", 7), Resign(1, 7, True, ""), now=1.0)
        assert found.claim(MEMBERS, 1.0) == (None if place else Claim(2, me, LIFE[me]))
        assert found.claim(MEMBERS, 1.09) == (None if place else Claim(2, me, LIFE[me]))
        assert found.claim(MEMBERS, 1.11) == Claim(2, me, LIFE[me])


def test_a_member_claims_when_there_is_no_epoch_or_it_was_primary_before_its_restart() -> None:
    """Specification 19.25."""
    assert election("a").claim(MEMBERS, 0.0) == Claim(1, "a", 7)
    assert election("a", Claim(1, "a", 99)).claim(MEMBERS, 0.0) == Claim(2, "a", 7)
    assert election("a", Claim(1, "a", 7)).claim(MEMBERS, 99.0) is None, "it is the primary"


@pytest.mark.parametrize(("me", "seconds"), [("c", 0.0), ("b", 2.5), ("a", 2.5)])
def test_only_the_successor_claims_at_once(me: str, seconds: float) -> None:
    """Specification 19.13."""
    found = election(me, Claim(1, "a", 7), Resign(1, 7, True, "c"), now=1.0)
    assert not found.is_primary
    if seconds:
        assert found.claim(MEMBERS, 0.99 + seconds) is None
    found.claim(MEMBERS, 1.01 + seconds)
    assert found.claim(MEMBERS, 1.22 + seconds) == Claim(2, me, LIFE[me])
