"""Reads wait for a commit up to ``wait-timeout``, and name it (specification 6.29)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from transaction.interfaces import TransientError

from neo.client import NEOStorage
from neo.client.connect.master import Partition
from neo.client.errors import UnavailableError
from neo.client.host import system
from neo.protocol.ids import INVALID_OID, ZERO_TID, p64, parse_nid
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerLockHolders,
    AnswerTIDs,
    AskLockHolders,
    AskObject,
    AskTIDs,
    HolderRow,
    Message,
)
from tests.unit.client.peers import in_threads
from tests.unit.client.reading import OID, answer
from tests.unit.client.scripted import Node, scripted

SHORT = 0.05
HOLDER: HolderRow = (p64(77), parse_nid("C7"), None, 95.2, "locked")
DELAYED = AnswerLockHolders(0.0, [HOLDER])
TIDS, FOUND = AskTIDs(0, 9, 0), AnswerTIDs([p64(50)])
FREE = AnswerLockHolders(None, [])


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval at which a thread that waits for bytes checks its deadline."""
    monkeypatch.setattr(system, "TICK_SECONDS", SHORT / 2)


@contextmanager
def delayed(
    request: type[Message], holders: Callable[[AskLockHolders], Message]
) -> Iterator[tuple[NEOStorage, Node]]:
    """Yield a client and its storage node, which does not answer requests of this type."""
    with scripted([1], wait_timeout=SHORT, cache_size=0) as (cluster, storage):
        node = cluster.storages[1]
        node.answers |= {request: lambda m: None, AskLockHolders: holders}
        cluster.storage_features[1] = [FEATURE_OURS]
        yield storage, node


@pytest.mark.parametrize("prefetched", [False, True])
def test_a_read_that_waits_for_too_long_names_the_transaction(prefetched: bool) -> None:
    with delayed(AskObject, lambda m: DELAYED) as (storage, node):
        named = (
            rf"object 0x{OID.hex()} could not be read for 0.05 s, because transaction 0x{p64(77).hex()}"
            " is being committed; a synchronous standby may hold commits: see 'neoctl print backups'"
        )
        request = OID, AskObject(OID, None, None)
        with pytest.raises(UnavailableError, match=named) as raised:
            storage.replicas.read_many([request]) if prefetched else storage.load(OID)
        assert isinstance(raised.value, TransientError)
        assert node.asked(AskLockHolders) == [AskLockHolders(ZERO_TID, OID)]
        # The late answer has no effect, and the connection goes on.
        node.answer_last(AskObject, answer(b"late")(AskObject(OID, None, None)))
        node.answers[AskObject] = answer(b"next")
        assert storage.load(OID)[0] == b"next"
        assert len(node.server.peers) == 1


def test_all_threads_that_wait_are_told() -> None:
    """One of them reads for all, until its own deadline."""
    with delayed(AskObject, lambda m: DELAYED) as (storage, _):

        def load() -> None:
            with pytest.raises(UnavailableError, match="being committed"):
                storage.load(OID)

        assert in_threads(load, load, load) == [None] * 3


def test_a_read_of_any_object_names_all_that_delay_it() -> None:
    other: HolderRow = (p64(78), *HOLDER[1:])
    with delayed(AskTIDs, lambda m: AnswerLockHolders(0.0, [HOLDER, other])) as (storage, node):
        both = f"what is read could not .* 0x{p64(77).hex()}, 0x{p64(78).hex()} is being committed"
        with pytest.raises(UnavailableError, match=both):
            storage.replicas.read(Partition(0, 1), TIDS)
        assert node.asked(AskLockHolders) == [AskLockHolders(ZERO_TID, INVALID_OID)]


def test_a_node_whose_disk_is_slow_is_waited_for() -> None:
    def nobody(m: AskLockHolders) -> Message:
        if len(node.asked(AskLockHolders)) == 2:
            node.answer_last(AskTIDs, FOUND)
        return FREE

    with delayed(AskTIDs, nobody) as (storage, node):
        assert storage.replicas.read(Partition(0, 1), TIDS) == FOUND
        assert len(node.asked(AskLockHolders)) == 2
        assert len(node.asked(AskTIDs)) == 1, "it is not asked anew"


def test_an_answer_that_comes_before_that_of_the_holders_is_taken() -> None:
    def just_unlocked(m: AskLockHolders) -> Message:
        node.answer_last(AskObject, answer(b"x")(AskObject(OID, None, None)))
        return DELAYED

    with delayed(AskObject, just_unlocked) as (storage, node):
        assert storage.load(OID)[0] == b"x"
