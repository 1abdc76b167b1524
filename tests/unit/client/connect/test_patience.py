"""For how long a client waits for a silent primary master."""

from __future__ import annotations

import pytest

from neo.client import NEOStorage
from neo.client.connect.connections import patience_of
from neo.client.connect.master import MASTER_PATIENCE_SECONDS
from tests.unit.client.scripted import NAME, Scripted


@pytest.mark.parametrize("several", [False, True])
def test_a_silent_primary_is_given_up_soon_if_another_master_may_take_over(several: bool) -> None:
    """Specification 4.39; test_channel shows that a channel ends after twice its patience."""
    cluster = Scripted([[1]])
    masters = cluster.masters + " 127.0.0.1:1" * several
    storage = NEOStorage(masters, NAME, wait_timeout=10.0)
    try:
        storage.sync()
        joined = storage._session.master.current
        assert joined is not None
        patience = joined.channel._patience
        assert patience == (MASTER_PATIENCE_SECONDS if several else patience_of(10.0))
        assert 2 * MASTER_PATIENCE_SECONDS == 3.0
    finally:
        storage.close()
        cluster.close()
