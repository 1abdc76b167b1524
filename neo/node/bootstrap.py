"""Find the primary master and identify to it (specification 4.35 to 4.41)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from neo.net.sockets import format_address
from neo.node.answering import answering
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.liveness import LOOK_SECONDS, Pulse
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    AcceptIdentification,
    Address,
    NotPrimaryMaster,
    RequestIdentification,
)
from neo.topology.masters import MasterCandidates, PrimarySearch

logger = logging.getLogger("neo.node")

#: Timeout of an identification. A master answers at once, but to a clone only when other nodes have
#: stored its id or were given up.
ANSWER_SECONDS = 30.0
#: Timeout of an identification among several masters: one that is stopped must not delay the search.
ANSWER_SECONDS_OF_SEVERAL = 2.0
#: A silent primary is given up after this time, if another master can replace it.
SILENCE_SECONDS = 2.5


class _Candidate(Handler):
    """Handler of a master that may or may not be the primary."""

    def __init__(self, redirected: Future[NotPrimaryMaster]) -> None:
        self._redirected = redirected

    @on(NotPrimaryMaster)
    def not_primary_master(self, peer: Peer, message_id: int, message: NotPrimaryMaster) -> None:
        self._redirected.resolve(message)
        peer.close()


async def find_primary(
    core: Core,
    masters: MasterCandidates,
    request: RequestIdentification,
    handler: Handler,
    *,
    insist: bool = True,
    failed: Callable[[str], None] = lambda reason: None,
) -> tuple[Peer, AcceptIdentification]:
    """Try all masters in turn until one accepts ``request``, and give its peer ``handler``.

    Each distinct failure is logged once a minute; ``failed`` is called at each. Unless ``insist``, a
    refusal other than NOT_READY raises ErrorAnswer, and the timeout is the long one even among several
    masters.
    """
    search = PrimarySearch(masters)
    while True:
        address = search.next()
        redirected: Future[NotPrimaryMaster] = Future()
        peer = core.dial(address, _Candidate(redirected))
        limit = ANSWER_SECONDS_OF_SEVERAL if search.several and insist else ANSWER_SECONDS
        try:
            with answering(core, peer, limit, silent=partial(masters.silent, address)):
                accepted = await peer.ask(request)
            assert isinstance(accepted, AcceptIdentification)
            if accepted.node_type is NodeType.MASTER and accepted.your_nid is not None:
                peer.handler, peer.leads = handler, True
                _watch(core, masters, Pulse(peer))
                return peer, accepted
            reason = "it is not a master"
            peer.close()
        except ErrorAnswer as e:
            if not insist and e.code is not ErrorCode.NOT_READY:
                raise
            reason = f"it refused: {e}"
        except ConnectionLost as e:
            if redirected.done:
                reason = "it is not the primary"
                search.redirected(redirected.result())
            else:
                reason = str(e)
        failed(_report(core, address, reason))
        if pause := search.pause():
            await core.sleep(pause)


def _report(core: Core, address: Address, reason: str) -> str:
    """Log why a master was not joined, and return it."""
    report = f"master {format_address(address)}: {reason}"
    if (more := core.log_throttle.admit(report)) is not None:
        logger.warning("%s%s", report, more)
    return report


def _watch(core: Core, masters: MasterCandidates, pulse: Pulse) -> None:
    """Give up a primary that falls silent, if another master can take over. Reschedules itself."""
    peer = pulse.peer
    if peer.closed:
        return
    if len(masters.addresses) > 1 and pulse.look() > SILENCE_SECONDS:
        assert peer.address is not None
        masters.silent(peer.address)
        peer.lost("it does not answer, and another master may be primary")
        return
    core.call_later(LOOK_SECONDS, partial(_watch, core, masters, pulse))
