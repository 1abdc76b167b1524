"""Open transactions as data and text, and the blocking ones as problems of ``status``."""

from __future__ import annotations

from typing import Any

from neo.net.sockets import format_address
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import AskTransactions, TransactionRow
from neoctl import render
from neoctl.client import AdminClient

#: A transaction that blocks others for longer is a problem. Commits take a fraction of a second. Longer
#: ones belong to stopped clients or to bulk imports.
BLOCKING_SECONDS = 5.0
#: Bound of the listed transactions; the others are only counted.
NAMED_MOST = 5

Data = dict[str, Any]


def transaction_data(rows: list[TransactionRow]) -> list[Data]:
    """Return ``ttid client address age phase waiting seconds`` of each.

    ``address``: null if the client is not connected. ``age``: seconds. ``waiting``: how many transactions
    wait for it, the first of them for ``seconds``. ``phase``: ``begun``, ``storing``, ``waiting``,
    ``voted``, ``finishing``, or ``ended`` by the operator.
    """
    return [
        {
            "ttid": render.hex_id(ttid),
            "client": format_nid(client),
            "address": None if address is None else format_address(address),
            "age": round(age, 1),
            "phase": phase,
            "waiting": waiting,
            "seconds": round(seconds, 1),
        }
        for ttid, client, address, age, phase, waiting, seconds in rows
    ]


def transaction_text(rows: list[Data]) -> str:
    """Return a title, then a line for each: ``0x…12 | C1 | 10.0.0.7:41234 | 95.1 | voted | 3 | 42.0``."""
    lines = [
        " | ".join(
            (
                *(row["ttid"], row["client"], row["address"] or "-", f"{row['age']:.1f}"),
                *(row["phase"], str(row["waiting"]), f"{row['seconds']:.1f}"),
            )
        )
        for row in rows
    ]
    return "\n".join(["# ttid | client | address | age | phase | waiting | seconds", *lines])


def open_transactions(admin: AdminClient) -> list[Data]:
    """Ask for the open transactions. Empty if the master does not know the question."""
    try:
        return transaction_data(admin.ask(AskTransactions()).row_list)
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return []
        raise


def blocking(rows: list[Data]) -> list[tuple[str, str]]:
    """Return (what is wrong, what to do) for each transaction that blocks others for too long.

    A transaction that waits itself is omitted, because the one that it waits for is listed.
    """
    found = [row for row in rows if row["waiting"] and row["seconds"] >= BLOCKING_SECONDS]
    first = [row for row in found if row["phase"] != "waiting"] or found
    first.sort(key=lambda row: -row["seconds"])
    problems = [(_sentence(row), _advice(row)) for row in first[:NAMED_MOST]]
    if len(first) > NAMED_MOST:
        text = f"{len(first) - NAMED_MOST} more transactions make others wait"
        problems.append((text, _advice(None)))
    return problems


def _sentence(row: Data) -> str:
    where = row["address"] or "not connected"
    others = "1 other waits" if row["waiting"] == 1 else f"{row['waiting']} others wait"
    return (
        f"{others} for transaction {row['ttid']} of {row['client']} ({where}) since"
        f" {row['seconds']:.0f} s; it began {row['age']:.0f} s ago and is {row['phase']}"
    )


def _advice(row: Data | None) -> str:
    """Return what to do. ``row``: None for the transactions that are only counted."""
    if row is None:
        return "neoctl print transactions"
    if row["phase"] == "finishing":
        return "it will be committed: look for a storage node that is stopped or slow"
    return f"let that client go on, or abort its transaction: neoctl end {row['ttid']}"
