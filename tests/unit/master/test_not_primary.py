"""What a secondary master answers to a node that looks for the primary."""

from __future__ import annotations

from neo.protocol.enums import NodeType
from neo.protocol.packets import NotPrimaryMaster, RequestIdentification
from tests.support.remote import Remote
from tests.unit.master.masters import Masters


def answer_of(masters: Masters, which: int) -> tuple[NotPrimaryMaster, int | None]:
    """Return the answer to a request for identification, and its message id."""
    remote = Remote.connect(masters.core(which))
    request = RequestIdentification(NodeType.CLIENT, None, None, "test", None, {})
    remote.connection.send(request, message_id=77)
    remote._flush()
    answer = remote.take(NotPrimaryMaster)
    assert remote.closed
    return answer, remote.ids[id(answer)]


def test_a_secondary_names_the_primary_in_a_notification_with_its_own_number() -> None:
    """Specification 2.22, 4.36."""
    masters = Masters(3)
    masters.start()
    first = masters.until_serving()
    masters.run(1)
    for other in {0, 1, 2} - {first}:
        answer, message_id = answer_of(masters, other)
        assert answer.known_master_list == masters.addresses
        assert answer.primary == first
        assert message_id == 0


def test_a_secondary_that_hears_no_primary_names_none() -> None:
    """Specification 4.36."""
    masters = Masters(3)
    masters.start()
    first = masters.until_serving()
    masters.processes[first].kill()
    masters.processes[(first + 1) % 3].kill()
    masters.run(10)
    answer, _ = answer_of(masters, (first + 2) % 3)
    assert answer == NotPrimaryMaster(None, masters.addresses)
