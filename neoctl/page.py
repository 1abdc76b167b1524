"""Commands of the web page, executed as ``neoctl`` does: by the same verbs, over a connection to the
admin node (specification 17.63)."""

from __future__ import annotations

import hashlib
import json
import ssl
from typing import Any

from neo.admin import facts
from neo.admin.page.commanding import Refused, Shown, Wanted
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import Address
from neoctl import commands, operations, render  # register the verbs
from neoctl.client import AdminAway, AdminClient
from neoctl.verbs import HINTS, Arguments, CommandError, Reply, find

__all__ = ["PageCommander", "commands", "operations"]

#: Timeout of each answer: storage nodes that do not answer cost the master 3 seconds.
TIMEOUT_SECONDS = 15.0


class PageCommander:
    """Implements :class:`neo.admin.page.commanding.Commander`. ``address``: of the admin node. ``tls``:
    None for plain connections."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls

    def preview(self, wanted: Wanted) -> Shown:
        """Return what a command will do. Raise Refused."""
        show = {"abort": self._show_abort, "end": self._show_end, "tweak": self._show_tweak}
        will, text, what = show[wanted.action](wanted.subject)
        command = " ".join(["neoctl", *filter(None, wanted)])
        seal = hashlib.sha256(json.dumps([command, what]).encode()).hexdigest()
        return Shown(command, will, text, seal)

    def execute(self, wanted: Wanted, seal: str) -> str:
        """Execute a command, if it does what was shown, and return its result. Raise Refused."""
        if self.preview(wanted).seal != seal:
            raise Refused("it would not do any more what was shown", "look again")
        return _text(self._run(*filter(None, wanted)))

    # -- what is shown: a sentence, what neoctl prints, and what must not change meanwhile ---------

    def _show_abort(self, id: str) -> tuple[str, str, Any]:
        reply = self._run("print", "operations", id)
        (row,) = reply.data["operations"]
        if row["state"] in facts.OPERATION_ENDED:
            raise Refused(f"operation {id} has ended: {render.operation_line(row)}")
        will = (
            "The operation does not go on, and each step that was begun is undone, on all of its nodes."
            " If it succeeds before it hears of this, the command is refused."
        )
        return will, _text(reply), [row["id"], row["kind"], row["arguments"]]

    def _show_end(self, ttid: str) -> tuple[str, str, Any]:
        rows = self._run("print", "transactions").data["transactions"]
        row = next((each for each in rows if each["ttid"] == ttid), None)
        if row is None:
            raise Refused(f"transaction {ttid} is not open any more")
        if not row["waiting"]:
            raise Refused(
                f"no other transaction waits for {ttid}", f"if it must end: neoctl end {ttid}"
            )
        will = (
            f"The transaction of client {row['client']} is aborted, and nothing of it is stored: its"
            " application gets an error, and may try again. Those that wait for its locks go on."
        )
        return will, render.transaction_text([row]), [row["client"]]

    def _show_tweak(self, nothing: str) -> tuple[str, str, Any]:
        if nothing:
            raise Refused("the page balances all nodes", "to empty some: neoctl tweak NODE...")
        reply = self._run("tweak", dry_run=True)
        if not reply.data["changed"]:
            raise Refused("there is nothing to do: the partitions are balanced")
        will = (
            "Cells move to the nodes that get them. They are copied while the cluster serves, and given"
            " up where they were when that is done."
        )
        return will, _text(reply), reply.data["partitions"]

    def _run(self, *words: str, dry_run: bool = False) -> Reply:
        """Run a verb. Raise Refused."""
        try:
            found, rest = find(list(words))
            assert found.run is not None
            with AdminClient(self._address, self._tls, TIMEOUT_SECONDS) as admin:
                return found.run(admin, Arguments(rest, dry_run))
        except ErrorAnswer as e:
            message = e.message or e.code.name
            raise Refused(message, HINTS.get(message, "")) from None
        except CommandError as e:
            raise Refused(str(e), e.hint) from None
        except AdminAway as e:
            raise Refused(str(e)) from None


def _text(reply: Reply) -> str:
    """Return what a person reads in a terminal."""
    return "\n".join(filter(None, [reply.text, reply.hint]))
