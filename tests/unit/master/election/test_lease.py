"""The pure parts of the election: epochs, leases, and the founding of a log."""

from __future__ import annotations

import pytest

from neo.master.election.epochs import Claim, Epochs, Forget, Resign, Table, encode
from neo.master.election.founding import Founding
from neo.master.election.lease import LEASE_SECONDS, OVER_SECONDS, Lease, LeaseGrantor
from neo.protocol.packets import NotifyLogState
from neo.transactor.durable import Begun

THREE = ("a", "b", "c")


# -- the log -----------------------------------------------------------------------------------------


def test_the_first_claim_of_an_epoch_is_the_one() -> None:
    """Specification 19.12."""
    epochs = Epochs()
    assert epochs.apply(encode(Claim(1, "a", 7))) == Claim(1, "a", 7)
    assert epochs.apply(encode(Claim(1, "b", 8))) is None
    assert epochs.apply(encode(Claim(3, "b", 8))) is None
    assert (epochs.epoch, epochs.primary, epochs.incarnation) == (1, "a", 7)


def test_what_a_former_primary_says_changes_nothing() -> None:
    """Specification 19.12."""
    epochs = Epochs()
    for claim in (Claim(1, "a", 7), Claim(2, "b", 8)):
        epochs.apply(encode(claim))
    for late in (Table(1, 7, 5, (1,)), Resign(1, 7, True, ""), Forget(1, 7, 5), Table(2, 7, 5, ())):
        assert epochs.apply(encode(late)) is None
    assert (epochs.ptid, epochs.resigned) == (None, False)


def test_the_newest_table_stays_until_it_is_given_up_by_its_number() -> None:
    """Specification 19.15."""
    epochs = Epochs()
    epochs.apply(encode(Claim(1, "a", 7)))
    epochs.apply(encode(Table(1, 7, 5, (1, 2))))
    assert epochs.apply(encode(Table(1, 7, 4, (3,)))) is None
    assert epochs.apply(encode(Forget(1, 7, 4))) is None
    assert (epochs.ptid, epochs.nodes) == (5, {1, 2})
    epochs.apply(encode(Forget(1, 7, 5)))
    assert (epochs.ptid, epochs.nodes, epochs.greatest) == (None, set(), 5)


def test_what_a_later_version_writes_is_left_alone() -> None:
    """Specification 19.11."""
    assert Epochs().apply(b"\x93\x20\x01\x02") is None


@pytest.mark.parametrize(
    ("log", "doubt"),
    [
        ([Claim(1, "a", 7)], False),
        ([Claim(1, "a", 7), Claim(2, "b", 8)], True),
        ([Claim(1, "a", 7), Resign(1, 7, True, ""), Claim(2, "b", 8)], False),
        # It never served, so it did not wait for the primary before it.
        ([Claim(1, "a", 7), Claim(2, "b", 8), Resign(2, 8, False, ""), Claim(3, "c", 9)], True),
        ([Claim(1, "a", 7), Claim(2, "b", 8), Resign(2, 8, True, ""), Claim(3, "c", 9)], False),
        # The same master: its former process is dead, but not the primary before that.
        ([Claim(1, "a", 7), Claim(2, "a", 8)], False),
        ([Claim(1, "a", 7), Claim(2, "b", 8), Claim(3, "b", 9)], True),
        ([Claim(1, "a", 7), Claim(2, "b", 8), Table(2, 8, 1, ()), Claim(3, "b", 9)], False),
    ],
)
def test_whether_an_earlier_primary_may_still_serve(log: list[Claim], doubt: bool) -> None:
    """Specification 19.21."""
    epochs = Epochs()
    for decision in log:
        assert epochs.apply(encode(decision)) is not None
    assert epochs.doubt is doubt


# -- leases ------------------------------------------------------------------------------------------


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    """Specification 19.20."""
    lease = Lease("a", 1, 10.0, doubt=False, clear=0.0)
    lease.refresh(THREE, 10.0)
    assert lease.left(10.0) == 0
    lease.granted("b", 10.0, 0.0, 11.5)
    lease.refresh(THREE, 11.5)
    assert lease.left(11.5) == pytest.approx(LEASE_SECONDS - 1.5)
    assert lease.left(10 + LEASE_SECONDS) <= 0


def test_a_lease_needs_a_majority_of_the_members() -> None:
    """Specification 19.20."""
    five = ("a", "b", "c", "d", "e")
    lease = Lease("a", 1, 0.0, doubt=False, clear=0.0)
    lease.granted("b", 1.0, 0.0, 1.0)
    lease.granted("stranger", 1.0, 0.0, 1.0)
    lease.refresh(five, 1.0)
    assert lease.left(1.0) == 0
    lease.granted("c", 1.0, 0.0, 1.0)
    lease.refresh(five, 1.0)
    assert lease.left(1.0) > 0
    lease.granted("b", 9.0, 0.0, 9.0)
    lease.refresh(five, 9.0)
    assert lease.left(9.0) < 0  # only two of five in this time


def test_in_doubt_a_majority_must_be_sure_that_earlier_leases_are_over() -> None:
    """Specification 19.21."""
    lease = Lease("a", 2, 0.0, doubt=True, clear=5.0)
    lease.granted("b", 0.1, 1.5, 0.1)  # it granted the old one 1.5 s ago
    lease.refresh(THREE, 0.2)
    assert lease.left(0.2) == 0
    lease.granted("c", 0.3, OVER_SECONDS, 0.3)
    lease.granted("b", 0.6, 2.0, 0.6)
    lease.refresh(THREE, 0.65)
    assert lease.left(0.65) == 0
    lease.granted("b", 0.7, OVER_SECONDS, 0.7)
    lease.refresh(THREE, 0.7)
    assert lease.left(0.7) > 0


def test_a_grantor_grants_only_the_newest_epoch_it_knows() -> None:
    """Specification 19.19."""
    grantor = LeaseGrantor(0.0, 1)
    assert grantor.grant(1, 5.0) is not None
    assert grantor.grant(2, 5.0) is None
    grantor.decided(2, 5.5)
    assert grantor.grant(1, 6.0) is None
    assert grantor.grant(2, 6.0) == 1.0  # since it granted epoch 1


def test_a_grantor_that_was_restarted_may_have_granted_until_then() -> None:
    grantor = LeaseGrantor(100.0, 1)
    assert grantor.grant(1, 100.5) == 0.5
    grantor.decided(2, 101.0)
    assert grantor.grant(2, 101.0) == 0.5


# -- the founding of a log ---------------------------------------------------------------------------

A, B, C = ("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 3)


def test_a_log_is_founded_when_all_have_heard_the_same() -> None:
    """Specification 19.7."""
    masters = {me: Founding(me, [A, B, C], number) for number, me in enumerate([A, B, C], 1)}
    begun: dict[object, Begun] = {}
    for _ in range(3):
        for me, founding in masters.items():
            for other in masters:
                if other != me:
                    beginning = founding.hear(other, masters[other].state())
                    if beginning is not None:
                        begun[me] = beginning
    assert begun == dict.fromkeys([A, B, C], Begun.FRESH)


def test_a_log_is_not_founded_with_another_disk_than_was_agreed_on() -> None:
    """Specification 19.7."""
    founding = Founding(A, [A, B, C], 1)
    founding.hear(B, NotifyLogState(2, False, b"", [(B, 2)]))
    told = [(A, 1), (B, 2), (C, 3)]
    assert founding.hear(C, NotifyLogState(3, False, b"", told)) is None
    # B comes with another disk, and C does not know yet.
    told_b = [(A, 1), (B, 22), (C, 3)]
    assert founding.hear(B, NotifyLogState(22, False, b"", told_b)) is None
    assert founding.hear(C, NotifyLogState(3, False, b"", told_b)) is Begun.FRESH


@pytest.mark.parametrize(
    ("told", "beginning"),
    [
        ([(A, 1), (B, 2), (C, 3)], Begun.FRESH),  # a founder that hears of it last
        ([(A, 9), (B, 2), (C, 3)], Begun.RECOVERED),  # a founder that lost its disk
        ([(A, 0), (B, 2), (C, 3)], Begun.RECOVERED),  # a master that was added
        ([(A, 1), (B, 2)], Begun.RECOVERED),  # another list of masters than configured
        ([(B, 2), (C, 3)], None),  # no member
    ],
)
def test_what_a_master_is_that_finds_a_log(
    told: list[tuple[tuple[str, int], int]], beginning: Begun | None
) -> None:
    """Specification 19.8."""
    founding = Founding(A, [A, B, C], 1)
    assert founding.hear(B, NotifyLogState(2, True, b"12345678", told)) is beginning


def test_a_master_with_another_configuration_is_not_counted() -> None:
    founding = Founding(A, [A, B], 1)
    founding.hear(C, NotifyLogState(3, False, b"", [(A, 1), (B, 2), (C, 3)]))
    assert founding.waits_for() == [B]
