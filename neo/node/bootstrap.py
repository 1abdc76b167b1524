"""How a node finds the primary master and becomes known to it (specification, *Joining a Cluster*)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from neo.net.sockets import format_address
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Cancelled, Future
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AcceptIdentification, NotPrimaryMaster, RequestIdentification
from neo.topology.masters import MasterCandidates

if TYPE_CHECKING:
    from neo.node.core import Core

logger = logging.getLogger("neo.node")

#: Pause before dialing again, so that a cluster without primary is not flooded (FACTS 3.10).
RETRY_SECONDS = 1.0
#: A master answers at once or refuses; one that is stopped must not keep us from the others.
ANSWER_SECONDS = 30.0


class _Candidate(Handler):
    """The handler of a master that has not said yet whether it is the primary."""

    def __init__(self, redirected: Future[NotPrimaryMaster]) -> None:
        self._redirected = redirected

    @on(NotPrimaryMaster)
    def not_primary_master(self, peer: Peer, message_id: int, message: NotPrimaryMaster) -> None:
        self._redirected.resolve(message)
        peer.close()


async def find_primary(
    core: Core, masters: MasterCandidates, request: RequestIdentification, handler: Handler
) -> tuple[Peer, AcceptIdentification]:
    """Try all masters until one accepts ``request``; its peer then has ``handler``.

    Each distinct reason of a failure is logged once a minute, not at every try.
    """
    hinted = False
    while True:
        was_hint, hinted = hinted, False
        address = masters.take()
        redirected: Future[NotPrimaryMaster] = Future()
        peer = core.dial(address, _Candidate(redirected))
        timer = core.call_later(ANSWER_SECONDS, partial(peer.lost, "it does not answer"))
        pause = True
        try:
            accepted = await peer.ask(request)
            assert isinstance(accepted, AcceptIdentification)
            if accepted.node_type is NodeType.MASTER and accepted.your_nid is not None:
                peer.handler = handler
                return peer, accepted
            reason = "it is not a master"
            peer.close()
        except ErrorAnswer as e:
            reason = f"it refused: {e}"
            peer.close()
        except ConnectionLost as e:
            if redirected.done:
                reason = "it is not the primary"
                hinted = masters.learn(redirected.result())
                # Two masters that point to each other must not be dialed in a tight loop.
                pause = was_hint or not hinted
            else:
                reason = str(e)
        except Cancelled:
            # Its answer may be under way, to a handler that expects nothing else.
            peer.close()
            raise
        finally:
            timer.cancel()
        report = f"master {format_address(address)}: {reason}"
        if (more := core.noise.admit(report)) is not None:
            logger.warning("%s%s", report, more)
        if pause:
            await core.sleep(RETRY_SECONDS)
